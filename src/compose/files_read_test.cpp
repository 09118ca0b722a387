// SPDX-License-Identifier: Apache-2.0
#include "compose/files_read.h"

#include "proc/test_support.h"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <sys/xattr.h>
#include <algorithm>
#include <filesystem>
#include <fstream>

namespace sublet::compose {
namespace {

namespace fs = std::filesystem;

class FilesRead : public testing::Test {
 protected:
  FilesRead() {
    for (const char* name : {"chat", "chat/image", "shared"}) make_directory(name);
    write("chat/base.yaml", "services: {base: {env_file: deep.env}}");
    write("chat/more.yaml", "services: {db: {label_file: db.labels}}");
    write("chat/.env", "SHARED=../shared # beside\nexport KIND='app'\n");
  }
  void make_directory(const std::string& name) {
    fs::create_directories(at(name));
    ::chmod(at(name).c_str(), 0700);
  }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(at(name)) << text;
    ::chmod(at(name).c_str(), 0600);
  }
  std::string at(const std::string& name) const { return (fs::path(directory_.path()) / name).string(); }
  Result<std::vector<std::string>> read(const std::string& text) {
    write("chat/compose.yaml", text);
    Description stack;
    stack.file = at("chat/compose.yaml");
    stack.directory = at("chat");
    Variables environment;
    environment.values = {{"HOME", at("home")}, {"PWD", std::nullopt}};
    return files_read(stack, "", environment, Trust::own());
  }
  // Others may write to `name`, and to nothing else.
  void expect_refused(const std::string& text, const std::string& name) {
    if (!fs::exists(at(name))) write(name, "{}");
    ASSERT_TRUE(read(text)) << text << ": " << read(text).error().detail;
    const bool is_directory = fs::is_directory(at(name));
    ::chmod(at(name).c_str(), is_directory ? 0777 : 0666);
    const auto refused = read(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().code, Code::Denied);
    EXPECT_NE(refused.error().detail.find(at(name) + " can be written by everybody"), std::string::npos)
        << refused.error().detail;
    ::chmod(at(name).c_str(), is_directory ? 0700 : 0600);
  }

  proc::TempDir directory_;
};

TEST_F(FilesRead, EachFileThatOthersMayWriteToIsRefused) {
  expect_refused("services: {web: {image: a}}", "chat/.env");
  expect_refused("services: {web: {extends: {file: base.yaml, service: base}}}", "chat/base.yaml");
  expect_refused("services: {web: {extends: {file: ../chat/base.yaml, service: base}}}", "chat/deep.env");
  expect_refused("services: {web: {<<: {extends: {file: base.yaml, service: base}}, image: a}}", "chat/base.yaml");
  expect_refused("x: &x {file: base.yaml, service: base}\nservices: {web: {extends: *x}}", "chat/base.yaml");
  expect_refused("services: {}\n---\nservices: {web: {extends: {file: base.yaml, service: b}}}", "chat/base.yaml");
  expect_refused("include: [more.yaml]", "chat/more.yaml");
  expect_refused("include: [more.yaml]", "chat/db.labels");
  expect_refused("include: [{path: [more.yaml, over.yaml], env_file: inc.env}]", "chat/inc.env");
  expect_refused("include: [{path: [more.yaml, over.yaml]}]", "chat/over.yaml");
  expect_refused("include: [../shared/x.yaml]", "shared/.env");
  expect_refused("include: [{path: more.yaml, project_directory: ../shared}]", "shared/db.labels");
  expect_refused("services: {web: {env_file: app.env}}", "chat/app.env");
  expect_refused("services: {web: {env_file: [a.env, {path: b.env, required: false}]}}", "chat/b.env");
  expect_refused("services: {web: {env_file: \"${SHARED}/${KIND:-x}.env\"}}", "shared/app.env");
  expect_refused("services: {web: {env_file: \"${NONE:-${SHARED}}/y.env\"}}", "shared/y.env");
  expect_refused("services: {web: {label_file: [web.labels]}}", "chat/web.labels");
  expect_refused("services: {web: {security_opt: [\"seccomp:./profile.json\"]}}", "chat/profile.json");
  expect_refused("secrets: {key: {file: ./key.txt}}", "chat/key.txt");
  expect_refused("configs: {nginx: {file: ./nginx.conf}}", "chat/nginx.conf");
  expect_refused("services: {web: {build: ./image}}", "chat/image");
  expect_refused("services: {web: {build: {context: image}}}", "chat/image/app.py");
  expect_refused("services: {web: {build: {context: image, dockerfile: ../Dockerfile}}}", "chat/Dockerfile");
  expect_refused("services: {web: {build: {context: image, additional_contexts: {m: ../shared}}}}", "shared/model.py");
  expect_refused("services: {web: {build: {context: image, additional_contexts: [m=../shared]}}}", "shared/model.py");
}

TEST_F(FilesRead, AVariableOfAVariableIsReplaced) {
  make_directory("home");
  write("chat/.env", "BASE=../shared\nCONF=${BASE}/conf\nOWN=${HOME}/own\nHIDDEN: x\n");
  expect_refused("services: {web: {env_file: \"${CONF}.env\"}}", "shared/conf.env");
  expect_refused("services: {web: {extends: {file: \"${CONF}.yaml\", service: a}}}", "shared/conf.yaml");
  expect_refused("services: {web: {env_file: \"${OWN}.env\"}}", "home/own.env");
  for (const char* text : {"services: {web: {env_file: \"${HIDDEN}/x.env\"}}",
                           "services: {web: {env_file: $PWD/x.env}}",
                           "services: {web: {build: {context: image, cache_from: [\"type=local,src=x\"]}}}",
                           "services: {web: {provider: {type: ./own}}}"}) {
    const auto refused = read(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_NE(refused.error().detail.find("this path cannot be known"), std::string::npos) << refused.error().detail;
  }
  write("chat/.env", "A=\"open\nB=2\n");
  EXPECT_FALSE(read("services: {web: {env_file: \"${B}.env\"}}"));
  EXPECT_TRUE(read("services: {web: {env_file: app.env}}"));
}

TEST_F(FilesRead, AMergeIsFollowedAtEachLevel) {
  const std::string extending = "{extends: {file: base.yaml, service: base}}";
  expect_refused("x: &x {api: " + extending + "}\nservices: {<<: *x}", "chat/base.yaml");
  expect_refused("x: &x {api: " + extending + "}\ny: &y {}\nservices: {<<: [*y, *x], web: {image: a}}",
                 "chat/base.yaml");
  expect_refused("x: &x {key: {file: key.txt}}\nservices: {}\nsecrets: {<<: *x}", "chat/key.txt");
  expect_refused("x: &x {key: {file: key.txt}}\nservices: {}\nconfigs: {<<: *x}", "chat/key.txt");
  expect_refused("x: &x {m: ../shared}\nservices: {web: {build: {context: image, additional_contexts: {<<: *x}}}}",
                 "shared/model.py");
}

TEST_F(FilesRead, TheFirstIncludedFileSetsTheDirectory) {
  for (const char* name : {"chat/a", "chat/b"}) make_directory(name);
  write("chat/a/c.yaml", "services: {}");
  write("chat/b/over.yaml", "services: {web: {env_file: app.env}}");
  expect_refused("include: [{path: [a/c.yaml, b/over.yaml]}]", "chat/a/app.env");
  expect_refused("include: [{path: [a/c.yaml, b/over.yaml]}]", "chat/a/.env");
}

TEST_F(FilesRead, AFileThatOthersMayMakeIsRefused) {
  make_directory("open");
  ::chmod(at("open").c_str(), 01777);
  for (const char* text : {"services: {web: {env_file: [{path: ../open/x.env, required: false}]}}",
                           "services: {}\nsecrets: {key: {file: ../open/key}}",
                           "services: {}\nconfigs: {key: {file: ../open/deeper/key}}"}) {
    const auto refused = read(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_NE(refused.error().detail.find(at("open") + " can be written by everybody"), std::string::npos)
        << refused.error().detail;
  }
  write("open/x.env", "");
  EXPECT_TRUE(read("services: {web: {env_file: ../open/x.env}}")) << "only its owner can replace it";
  EXPECT_TRUE(read("services: {web: {env_file: /dev/null}}\nsecrets: {key: {file: /dev/null}}"));
}

TEST_F(FilesRead, AFileIsReadAgainWhereItsPathsMeanOthers) {
  write("chat/base.yaml", "services: {base: {env_file: \"${WHICH:-a}.env\"}}");
  write("chat/more.yaml", "services: {db: {extends: {file: base.yaml, service: base}}}");
  write("chat/inc.env", "WHICH=b");
  expect_refused(
      "services: {web: {extends: {file: base.yaml, service: base}}}\ninclude: [{path: more.yaml, env_file: inc.env}]",
      "chat/b.env");
}

TEST_F(FilesRead, OtherSourcesAreChecked) {
  make_directory("cache");
  for (const char* name : {"cache/blob", "shared/model.py", "shared/program"}) write(name, "x");
  expect_refused("services: {web: {provider: {type: " + at("shared/program") + "}}}", "shared/program");
  expect_refused("services: {web: {build: {context: image, additional_contexts: {m: \"oci-layout://" + at("shared") +
                     ":tag\"}}}}",
                 "shared/model.py");
  expect_refused("services: {web: {build: {context: image, cache_from: [\"type=local,src=" + at("cache") + "\"]}}}",
                 "cache/blob");
  EXPECT_TRUE(read("services: {web: {provider: {type: model}, build: {context: image, cache_from: [a/b]}}}"));
}

TEST_F(FilesRead, AnAccessListMayNameOthers) {
  write("chat/app.env", "");
  const std::uint32_t own = 0xffffffff;
  struct Part {
    std::uint16_t tag, rights;
    std::uint32_t id;
  };
  struct {
    std::uint32_t version = 2;
    Part parts[5];
  } list;
  const Part parts[] = {{1, 6, own}, {2, 6, 54399}, {4, 4, own}, {16, 6, own}, {32, 4, own}};
  std::ranges::copy(parts, list.parts);
  if (::setxattr(at("chat/app.env").c_str(), "system.posix_acl_access", &list, sizeof list, 0) != 0)
    GTEST_SKIP() << "the file system has no access lists";
  const auto refused = read("services: {web: {env_file: app.env}}");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().detail.find("others on its access list"), std::string::npos) << refused.error().detail;
}

TEST_F(FilesRead, MountsAndIgnoredPathsOfABuildAreLeftOut) {
  for (const char* name : {"chat/data", "chat/models", "chat/src"}) make_directory(name);
  for (const char* name : {"chat/data/db", "chat/models/m", "chat/src/a.py", "chat/Dockerfile"}) write(name, "x");
  write("chat/.dockerignore", "# text\n/models/\n*.py\n");
  for (const char* name : {"chat/data/db", "chat/models/m"}) ::chmod(at(name).c_str(), 0666);
  const std::string text = "services: {web: {build: .}, db: {image: d, volumes: [\"./data:/data\", \"own:/x\"]}}";
  expect_refused(text, "chat/src/a.py");
  expect_refused(text, "chat/.dockerignore");
  expect_refused("services: {web: {build: ., volumes: [{type: bind, source: ./data, target: /d}]}}", "chat/Dockerfile");
  EXPECT_FALSE(read("services: {web: {build: .}}")) << "nothing mounts its data";
  EXPECT_FALSE(read("services: {web: {build: ., volumes: [\".:/app\"]}}")) << "the whole context is no mount beside it";
  write("chat/.dockerignore", "models\n!models/m\n");
  EXPECT_FALSE(read(text));
  write("chat/.dockerignore", "models\nDockerfile\n");
  expect_refused(text, "chat/Dockerfile");
  write("chat/Dockerfile.dockerignore", "");
  EXPECT_FALSE(read(text)) << "the Dockerfile has a list of its own";
}

TEST_F(FilesRead, ALinkIsFollowed) {
  write("shared/real.yaml", "services: {}");
  fs::create_symlink("../shared/real.yaml", at("chat/link.yaml"));
  expect_refused("include: [link.yaml]", "shared/real.yaml");
}

TEST_F(FilesRead, FilesThatDoNotExistAreListed) {
  const auto files = read("services: {web: {env_file: [{path: none.env, required: false}]}}");
  ASSERT_TRUE(files);
  for (const char* name : {"chat/compose.yaml", "chat/.env", "chat/none.env"})
    EXPECT_EQ(std::ranges::count(*files, at(name)), 1) << name;
}

TEST_F(FilesRead, OtherMachinesAndUnknownPathsAreRefused) {
  for (const char* text : {"include: [\"https://example.org/x.git\"]", "include: [\"oci://example.org/x\"]",
                           "services: {web: {extends: {file: \"git@example.org:x.yaml\", service: a}}}"}) {
    const auto refused = read(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_NE(refused.error().detail.find("is on another machine"), std::string::npos) << refused.error().detail;
  }
  const auto unknown = read("services: {web: {env_file: \"${A|B}/x.env\"}}");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().detail.find("this path cannot be known"), std::string::npos);
  EXPECT_TRUE(read("services: {web: {build: \"https://example.org/x.git\"}}")) << "as an image";
}

// Compose 1 reads the home of that user, and Compose 2 another file below the own home.
TEST_F(FilesRead, AHomeOfAnotherUserIsRefused) {
  for (const char* text : {"services: {web: {env_file: ~ana/x.env}}", "services: {web: {build: ~ana/context}}",
                           "services: {web: {extends: {file: ~ana/base.yaml, service: base}}}",
                           "services: {web: {build: {context: ~, additional_contexts: {more: '~'}}}}",
                           "secrets: {key: {file: '~${WHO:-ana}/key'}}", "include: ['~ana/compose.yaml']"}) {
    SCOPED_TRACE(text);
    const auto refused = read(text);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::Denied);
    EXPECT_NE(refused.error().detail.find("names a file by '~"), std::string::npos) << refused.error().detail;
  }
  EXPECT_TRUE(read("services: {web: {env_file: ./~ana.env}}"));
}

TEST_F(FilesRead, FilesThatNameEachOtherComeToAnEnd) {
  write("chat/a.yaml", "services: {a: {extends: {file: b.yaml, service: b}}}");
  write("chat/b.yaml", "services: {b: {extends: {file: a.yaml, service: a}}}");
  EXPECT_TRUE(read("services: {web: {extends: {file: a.yaml, service: a}}}"));
}

}  // namespace
}  // namespace sublet::compose
