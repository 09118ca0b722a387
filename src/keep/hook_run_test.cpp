// SPDX-License-Identifier: Apache-2.0
#include "keep/hook_run.h"

#include "client/fake_server.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace sublet::keep {
namespace {

using namespace std::chrono_literals;
using test::ScratchDir;

// Whether the process is gone, or a zombie that init has not reaped yet, within ten seconds.
bool ends(pid_t pid) {
  for (int i = 0; i < 10'000; ++i) {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    if (!(stat >> number >> name >> state) || state == "Z") return true;
    ::usleep(1000);
  }
  return false;
}

struct HookTest : ::testing::Test {
  ScratchDir dir;
  std::filesystem::path before = std::filesystem::current_path();

  ~HookTest() override { std::filesystem::current_path(before); }

  HookResult run(const std::string& line, Duration timeout = 20s) {
    Document document;
    document.session = "session-7";
    document.hook = {1, timeout};
    document.arguments = {"sh", "-c", line};
    document.environment = {"PATH=/usr/bin:/bin", "SUBLET_CHECKPOINT=" + previous};
    document.directory = dir.path();
    return run_command(document);
  }

  std::string previous = "/data/old";  // the locator of the run before
};

TEST_F(HookTest, TheLastLineOfItsOutputIsTheLocator) {
  const struct {
    const char* line;
    const char* locator;
  } cases[] = {{"echo one; echo '  data/two  '; echo", "data/two"},
               {"true", ""},
               {"printf data/x", "data/x"},
               {"echo \"x$SUBLET_CHECKPOINT.new\"", "x/data/old.new"},
               {"pwd -P | sed 's|.*/||'; cat; echo said >&2; echo end", "end"}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.line);
    const HookResult result = run(one.line);
    EXPECT_EQ(result.problem, "");
    EXPECT_EQ(result.locator, one.locator);
  }
}

TEST_F(HookTest, AFailureNamesTheStatusAndTheLastErrorLine) {
  const struct {
    const char* line;
    const char* problem;
  } cases[] = {{"echo a; echo no space left >&2; exit 3", "its command ended with exit status 3: no space left"},
               {"exit 1", "its command ended with exit status 1"},
               {"kill -TERM $$", "its command ended with signal 15 (Terminated)"},
               {"head -c 5000 /dev/zero | tr '\\0' x", "the last line of its output has 5000 bytes; the most is 4096"}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.line);
    const HookResult result = run(one.line);
    EXPECT_EQ(result.problem, one.problem);
    EXPECT_EQ(result.locator, "");
  }
}

TEST_F(HookTest, AnAbsoluteLocatorMustNameWhatWasSaved) {
  const struct {
    const char* line;
    std::optional<std::int64_t> bytes;
    const char* problem;  // "": none
  } cases[] = {{"printf abc > state; echo $PWD/state", 3, ""},
               {"mkdir -p d/e; printf abc > d/x; printf de > d/e/y; ln -s x d/z; echo $PWD/d", 5, ""},
               {"echo state.pt", std::nullopt, ""},
               {"echo $PWD/nothing", std::nullopt, "cannot be found"},
               {": > empty; echo $PWD/empty", std::nullopt, "is empty"},
               {"mkdir -p none/deep; echo $PWD/none", std::nullopt, "is empty"},
               {"echo /bin/sh", std::nullopt, "was last changed before"},
               {"echo /dev/null", std::nullopt, "is neither a file nor a directory"},
               {"mkfifo pipe; echo $PWD/pipe", std::nullopt, "is neither a file nor a directory"}};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.line);
    const HookResult result = run(one.line);
    EXPECT_EQ(result.bytes, one.bytes);
    EXPECT_NE(result.problem.find(one.problem), std::string::npos) << result.problem;
    EXPECT_EQ(result.problem.empty(), std::string_view(one.problem).empty()) << result.problem;
    EXPECT_EQ(result.locator.empty(), !result.problem.empty());
  }
}

TEST_F(HookTest, TheWorkOfAnEarlierRunIsNotThatOfThisOne) {
  for (const auto& [what, saves] : {std::pair{"state", "echo $$ > new; mv new state"},
                                    {"dir", "mkdir -p dir; rm -f dir/x; echo more >> dir/y; echo $$ > dir/x"}}) {
    SCOPED_TRACE(what);
    const std::string names = std::string("echo $PWD/") + what;
    previous = run(std::string(saves) + "; " + names).locator;
    ASSERT_FALSE(previous.empty());
    EXPECT_NE(run(names).problem.find("was last changed before"), std::string::npos) << run(names).problem;
    EXPECT_EQ(run(std::string(saves) + "; " + names).locator, previous);
  }
}

TEST_F(HookTest, ManyLinesDoNotBlockIt) {
  EXPECT_EQ(run("i=0; while [ $i -lt 20000 ]; do echo line $i; echo err $i >&2; i=$((i+1)); done").locator,
            "line 19999");
}

TEST_F(HookTest, ACommandThatHangsIsKilledWithItsChildren) {
  const HookResult result = run("sh -c 'echo $$ > child; exec sleep 1000' & sleep 1000", 300ms);
  EXPECT_NE(result.problem.find("did not end within"), std::string::npos) << result.problem;
  std::ifstream file(dir.path() + "/child");
  pid_t child = 0;
  ASSERT_TRUE(file >> child);
  EXPECT_TRUE(ends(child)) << "pid " << child;
}

TEST_F(HookTest, ACommandThatAlwaysWritesHasADeadlineToo) {
  EXPECT_NE(run("yes", 300ms).problem.find("did not end within"), std::string::npos);
}

TEST_F(HookTest, HasTheLimitsOfItsDocument) {
  Document document;
  document.hook = {1, 20s};
  document.arguments = {"sh", "-c", "ulimit -n"};
  document.environment = {"PATH=/usr/bin:/bin"};
  document.directory = dir.path();
  document.limits = {{RLIMIT_NOFILE, {77, 77}}};
  EXPECT_EQ(run_command(document).locator, "77");
}

TEST_F(HookTest, AMissingProgramOrDirectoryIsAProblem) {
  Document document;
  document.hook = {1, 1s};
  document.arguments = {"no-such-command"};
  document.directory = dir.path();
  EXPECT_NE(run_command(document).problem.find("no-such-command"), std::string::npos);
  document.directory = dir.path() + "/missing";
  EXPECT_NE(run_command(document).problem.find("cannot enter the directory"), std::string::npos);
}

}  // namespace
}  // namespace sublet::keep
