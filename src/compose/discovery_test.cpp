// SPDX-License-Identifier: Apache-2.0
#include "compose/discovery.h"

#include "proc/test_support.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

namespace sublet::compose {
namespace {

class Discovery : public ::testing::Test {
 protected:
  Discovery() { ::umask(022); }
  std::vector<Description> find(Sources sources) { return discover(sources, trust_); }
  Sources in_dir() { return {.dir = dir_.path("stacks"), .config = {}, .env_file = {}, .adopted = {}}; }
  static std::string error_of(const Description& stack) { return stack.error ? stack.error->detail : ""; }

  proc::TempDir dir_;
  Trust trust_ = Trust::own();
};

TEST_F(Discovery, ADirectoryWithAComposeFileIsAStack) {
  dir_.write("stacks/b/compose.yaml", "x");
  dir_.write("stacks/a/compose.yml", "x");
  dir_.write("stacks/a/docker-compose.yml", "x");
  dir_.write("stacks/c/other.yml", "x");
  dir_.write("stacks/.env", "x");
  dir_.write("elsewhere/compose.yml", "x");
  std::filesystem::create_directory_symlink(dir_.path("elsewhere"), dir_.path("stacks/link"));
  const auto found = find(in_dir());
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].name, "a");
  EXPECT_EQ(found[0].file, dir_.path("stacks/a/docker-compose.yml"));
  EXPECT_EQ(found[0].directory, dir_.path("stacks/a"));
  EXPECT_EQ(found[0].project, "a");
  EXPECT_EQ(found[1].name, "b");
  EXPECT_EQ(found[2].name, "link");
  for (const auto& stack : found) EXPECT_EQ(error_of(stack), "");
}

TEST_F(Discovery, ADirectoryThatCannotBeReadIsNamed) {
  const auto found = find(in_dir());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_NE(error_of(found[0]).find("No such file"), std::string::npos) << error_of(found[0]);
  EXPECT_EQ(find({.dir = "relative", .config = {}, .env_file = {}, .adopted = {}}).size(), 1u);
}

TEST_F(Discovery, ADirectoryWhoseNameIsNoStackNameIsRefused) {
  dir_.write("stacks/Big Name/compose.yml", "x");
  const auto found = find(in_dir());
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].name, "Big Name");
  EXPECT_NE(error_of(found[0]).find("cannot name a stack"), std::string::npos);
}

TEST_F(Discovery, AllFormsOfTheConfigurationAreRead) {
  dir_.write("a/docker-compose.yml", "x");
  dir_.write("b/my.yml", "x");
  const std::string a = dir_.path("a/docker-compose.yml"), b = dir_.path("b/my.yml");
  struct Case {
    std::string config;
    std::vector<std::string> names;
  };
  for (const Case& one : std::vector<Case>{
           {"one: " + a + "\ntwo: " + b, {"one", "two"}},
           {"one: {path: " + a + "}", {"one"}},
           {"services: {one: " + a + ", two: {path: " + b + "}}", {"one", "two"}},
           {"- " + a + "\n- " + b, {"a", "b"}},
           {"- {name: x, path: " + a + "}\n- {path: " + b + "}", {"b", "x"}},
           {"services:\n  - " + dir_.path("a"), {"a"}},
       }) {
    const auto found = find({.dir = {}, .config = one.config, .env_file = {}, .adopted = {}});
    ASSERT_EQ(found.size(), one.names.size()) << one.config;
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].name, one.names[i]) << one.config;
      EXPECT_EQ(found[i].origin, Origin::config);
      EXPECT_EQ(error_of(found[i]), "") << one.config;
    }
  }
}

TEST_F(Discovery, ABadConfigurationIsAStackWithAnError) {
  dir_.write("a/compose.yml", "x");
  struct Case {
    std::string config, text;
  };
  for (const Case& one : std::vector<Case>{
           {"a: [", "GPU_SERVICE_CONFIG_YAML:1"},
           {"word", "neither a mapping nor a list"},
           {"one: relative/compose.yml", "is not absolute"},
           {"one: /nowhere/compose.yml", "/nowhere/compose.yml does not exist"},
           {"one: " + dir_.path(), "has no Compose file"},
           {"one:", "is not absolute"},
           {"- {name: x}", "is not absolute"},
           {"a/b: " + dir_.path("a"), "cannot name a stack"},
           {"- " + dir_.path("a/compose.yml") + "\n- {name: a, path: " + dir_.path("a/compose.yml") + "}", ""},
       }) {
    const auto found = find({.dir = {}, .config = one.config, .env_file = {}, .adopted = {}});
    ASSERT_EQ(found.size(), 1u) << one.config;
    EXPECT_NE(error_of(found[0]).find(one.text), std::string::npos) << one.config << ": " << error_of(found[0]);
  }
}

TEST_F(Discovery, TwoStacksOfOneNameAreBothRefused) {
  dir_.write("stacks/a/compose.yml", "x");
  dir_.write("other/compose.yml", "x");
  Sources sources = in_dir();
  sources.adopted = {{"a", dir_.path("other")}, {"b", dir_.path("other/compose.yml")}};
  const auto found = find(sources);
  ASSERT_EQ(found.size(), 3u);
  for (int i : {0, 1}) {
    EXPECT_NE(error_of(found[i]).find(dir_.path("other/compose.yml")), std::string::npos) << error_of(found[i]);
    EXPECT_NE(error_of(found[i]).find(dir_.path("stacks/a/compose.yml")), std::string::npos);
  }
  EXPECT_EQ(error_of(found[2]), "");
}

TEST_F(Discovery, TheSameFileUnderTheSameNameIsOneAdoptedStack) {
  dir_.write("stacks/a/compose.yml", "x");
  Sources sources = in_dir();
  sources.adopted = {{"a", dir_.path("stacks/a")}};
  const auto found = find(sources);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].origin, Origin::adopted);
  EXPECT_EQ(error_of(found[0]), "");
}

TEST_F(Discovery, StacksOfOneProjectAreRefused) {
  std::vector<Description> stacks(4);
  for (std::size_t i = 0; i < stacks.size(); ++i) {
    stacks[i].name = std::string("abcd").substr(i, 1);
    stacks[i].project = i < 2 ? "p" : "q";
  }
  stacks[3].error = bad_request("broken");
  refuse_shared_projects(stacks);
  EXPECT_EQ(error_of(stacks[0]), "the stacks 'a' and 'b' are the same Compose project 'p'");
  EXPECT_EQ(error_of(stacks[1]), "the stacks 'b' and 'a' are the same Compose project 'p'");
  EXPECT_EQ(error_of(stacks[2]), "");
}

TEST_F(Discovery, OnlyTrustedUsersMayWriteTheFileAndItsDirectories) {
  const auto mode = [&](const std::string& name, mode_t bits) { ASSERT_EQ(::chmod(dir_.path(name).c_str(), bits), 0); };
  dir_.write("stacks/a/compose.yml", "x");
  const std::string file = dir_.path("stacks/a/compose.yml");
  EXPECT_TRUE(check_trusted(file, trust_));
  for (const auto& [name, good, bad] : std::vector<std::tuple<std::string, mode_t, mode_t>>{
           {"stacks/a/compose.yml", 0644, 0646}, {"stacks/a", 0755, 0757}, {"stacks", 0755, 0777}}) {
    mode(name, bad);
    const auto checked = check_trusted(file, trust_);
    ASSERT_FALSE(checked) << name;
    EXPECT_EQ(checked.error().code, Code::Denied);
    EXPECT_EQ(checked.error().detail, dir_.path(name) + " can be written by everybody");
    mode(name, good);
  }
  mode("stacks", 01777);  // sticky, above
  EXPECT_TRUE(check_trusted(file, trust_));
  EXPECT_FALSE(check_trusted(dir_.path("stacks"), trust_)) << "only above";
  EXPECT_EQ(check_trusted(dir_.path("nothing"), trust_).error().code, Code::NotFound);
  EXPECT_EQ(check_trusted("stacks", trust_).error().code, Code::BadRequest);
}

TEST_F(Discovery, TheEnvironmentFileOfTheDirectoryIsCheckedToo) {
  dir_.write("stacks/a/compose.yml", "x");
  dir_.write("stacks/a/.env", "IMAGE=x");
  const std::string file = dir_.path("stacks/a/.env");
  EXPECT_EQ(error_of(find(in_dir()).at(0)), "");
  ASSERT_EQ(::chmod(file.c_str(), 0646), 0);
  EXPECT_EQ(error_of(find(in_dir()).at(0)), file + " can be written by everybody");
  std::filesystem::remove(file);
  EXPECT_EQ(error_of(find(in_dir()).at(0)), "");
  std::filesystem::create_symlink(dir_.path("nothing"), file);
  EXPECT_EQ(error_of(find(in_dir()).at(0)), dir_.path("nothing") + " does not exist");
}

TEST_F(Discovery, AFileOfAnotherUserOrGroupIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give files away";
  constexpr uid_t other = 12345;
  dir_.write("a/compose.yml", "x");
  const std::string file = dir_.path("a/compose.yml");
  ASSERT_EQ(::chown(file.c_str(), other, 0), 0);
  EXPECT_EQ(check_trusted(file, trust_).error().detail, file + " belongs to uid 12345");
  EXPECT_TRUE(check_trusted(file, {.user = other, .group = other}));
  ASSERT_EQ(::chown(file.c_str(), 0, other), 0);
  EXPECT_TRUE(check_trusted(file, trust_));
  ASSERT_EQ(::chmod(file.c_str(), 0664), 0);
  EXPECT_EQ(check_trusted(file, trust_).error().detail, file + " can be written by its group");
  EXPECT_TRUE(check_trusted(file, {.user = 0, .group = other}));
  ASSERT_EQ(::chmod(file.c_str(), 0644), 0);
  ASSERT_EQ(::chown(dir_.path("a").c_str(), other, 0), 0);
  std::filesystem::create_directory_symlink(dir_.path("a"), dir_.path("link"));
  EXPECT_EQ(check_trusted(dir_.path("link/compose.yml"), trust_).error().detail,
            dir_.path("a") + " belongs to uid 12345");
}

TEST_F(Discovery, LinksInACircleEnd) {
  std::filesystem::create_symlink(dir_.path("b"), dir_.path("a"));
  std::filesystem::create_symlink(dir_.path("a"), dir_.path("b"));
  EXPECT_FALSE(check_trusted(dir_.path("a"), trust_));
}

}  // namespace
}  // namespace sublet::compose
