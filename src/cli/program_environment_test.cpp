// SPDX-License-Identifier: Apache-2.0
#include "cli/program_environment.h"

#include "client/fake_server.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

namespace sublet::cli {
namespace {

const char* const ours[] = {"PATH=/bin", "HOME=/home/ana", "LC_ALL=C", "LC_TIME=de", "SECRET=1",
                            "PATHS=/x",  "TZ=UTC=odd",     "BROKEN",   nullptr};

TEST(ProgramEnvironment, TakesOverFewVariables) {
  EXPECT_EQ(
      inherited(ours),
      (Variables{{"HOME", "/home/ana"}, {"LC_ALL", "C"}, {"LC_TIME", "de"}, {"PATH", "/bin"}, {"TZ", "UTC=odd"}}));
}

TEST(ProgramEnvironment, OfTwoValuesTheLastOneWins) {
  Variables found;
  ASSERT_TRUE(add_env_lines("# comment\n\n A=1\nB= two words \r\nEMPTY=\n  # more\nA=2\nX==", "f", found));
  EXPECT_EQ(found, (Variables{{"A", "2"}, {"B", " two words "}, {"EMPTY", ""}, {"X", "="}}));
  ASSERT_TRUE(add_env_flags({"A=3", "A=4", "SECRET"}, ours, found));
  EXPECT_EQ(found["A"], "4");
  EXPECT_EQ(found["SECRET"], "1");
}

TEST(ProgramEnvironment, NamesTheWrongLine) {
  Variables found;
  for (const char* wrong : {"NAME", "=1", "A B=1", "export A=1"}) {
    const Status added = add_env_lines(std::string("A=1\n\n") + wrong + "\n", "vars.env", found);
    ASSERT_FALSE(added) << wrong;
    EXPECT_EQ(added.error().detail, "vars.env:3: '" + std::string(wrong) + "' is not NAME=VALUE");
  }
}

TEST(ProgramEnvironment, RefusesAFlagWithoutNameOrValue) {
  Variables found;
  EXPECT_EQ(add_env_flags({"=1"}, ours, found).error().detail, "--env: '=1' has no name");
  EXPECT_EQ(add_env_flags({"A B=c"}, ours, found).error().detail,
            "--env: the name 'A B' has a blank or a control character");
  const Status added = add_env_flags({"MISSING"}, ours, found);
  EXPECT_EQ(added.error().detail, "--env: your environment has no variable MISSING");
  EXPECT_EQ(added.error().hint, "give a value: --env MISSING=VALUE");
}

TEST(ProgramEnvironment, ReadsAFile) {
  const test::ScratchDir dir;
  const std::string path = dir.path() + "/env";
  std::ofstream(path) << "A=1\n";
  Variables found;
  ASSERT_TRUE(add_env_file(path, found));
  EXPECT_EQ(found["A"], "1");
  EXPECT_NE(add_env_file(path + "2", found).error().detail.find("cannot read the file"), std::string::npos);
  std::ofstream(path) << std::string(2u << 20, '\n');
  EXPECT_NE(add_env_file(path, found).error().detail.find("larger than 1 MiB"), std::string::npos);
}

TEST(ProgramEnvironment, RefusesWhatJsonCannotCarry) {
  EXPECT_TRUE(check_utf8("the argument", {"plain", "größe"}));
  const Status checked = check_utf8("the argument", {"plain", "a\xff"});
  EXPECT_EQ(checked.error().detail, "the argument 'a\\xff' is not UTF-8");
}

TEST(ProgramEnvironment, AllVariablesAreThoseOfTheUser) {
  const char* const ours[] = {"VIRTUAL_ENV=/venv",
                              "A=",
                              "SUBLET_LEASE=lease-1",
                              "CUDA_VISIBLE_DEVICES=GPU-1",
                              "SUBLET_HOST=x",
                              "WORD",
                              "BAD=\xff",
                              "WANDB_MODE=a=b",
                              nullptr};
  EXPECT_EQ(all_of(ours), (Variables{{"VIRTUAL_ENV", "/venv"}, {"A", ""}, {"WANDB_MODE", "a=b"}}));
}

TEST(ProgramEnvironment, HasDirectoryUmaskAndAllLimits) {
  const auto found = surroundings();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->at("directory").get<std::string>().front(), '/');
  EXPECT_GE(found->at("umask").get<int>(), 0);
  EXPECT_EQ(found->at("limits").size(), static_cast<std::size_t>(RLIM_NLIMITS));
  EXPECT_TRUE(found->at("limits").at(0).at("hard").is_number_unsigned());
}

}  // namespace
}  // namespace sublet::cli
