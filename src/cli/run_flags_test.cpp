// SPDX-License-Identifier: Apache-2.0
#include "cli/run_flags.h"

#include "cli/app.h"

#include <gtest/gtest.h>

namespace sublet::cli {
namespace {

std::string refusal(std::vector<const char*> words) {
  words.insert(words.begin(), {"sublet", "run"});
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = run_program(static_cast<int>(words.size()), words.data());
  testing::internal::GetCapturedStdout();
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, kUsage) << text;
  return text.substr(0, text.find('\n'));
}

TEST(RunFlags, OfTheBackgroundNeedDetach) {
  EXPECT_EQ(refusal({"--restart", "always", "--", "true"}), "sublet: --restart needs --detach");
  EXPECT_EQ(refusal({"--env", "A=1", "--", "true"}), "sublet: --env needs --detach");
  EXPECT_EQ(refusal({"--env-file", "f", "--", "true"}), "sublet: --env-file needs --detach");
}

TEST(RunFlags, OfTheForegroundExcludeDetach) {
  EXPECT_EQ(refusal({"--detach", "--wait", "5s", "--", "true"}), "sublet: --wait and --detach cannot both be given");
  EXPECT_EQ(refusal({"--detach", "--no-wait", "--", "true"}), "sublet: --no-wait and --detach cannot both be given");
  EXPECT_EQ(refusal({"--detach", "--ttl", "5s", "--", "true"}), "sublet: --ttl and --detach cannot both be given");
  EXPECT_EQ(refusal({"--command", "true", "--status-fd", "2"}),
            "sublet: --status-fd and --detach cannot both be given");
}

TEST(RunFlags, AShareNeedsTheLibraryAndIsAPercentage) {
  EXPECT_EQ(refusal({"--share", "30", "--", "true"}),
            "sublet: --share needs --interposer: the library in the program keeps the program to its share");
  EXPECT_EQ(refusal({"--interposer", "--share", "0", "--", "true"}), "sublet: --share: '0' is not between 1 and 100");
  EXPECT_EQ(refusal({"--interposer", "--share", "101%", "--", "true"}),
            "sublet: --share: '101%' is not between 1 and 100");
  for (const char* wrong : {"much", "%", "", "30.5", "-3", "30%%"})
    EXPECT_NE(refusal({"--interposer", "--share", wrong, "--", "true"}), "") << wrong;
  EXPECT_EQ(parse_share("30").value(), 30);
  EXPECT_EQ(parse_share("30%").value(), 30);
}

TEST(RunFlags, NeedOneProgram) {
  EXPECT_EQ(refusal({"--detach"}), "sublet: run needs a program after '--'");
  EXPECT_EQ(refusal({"--command", ""}), "sublet: --command: the line is empty");
  EXPECT_EQ(refusal({"--command", "true", "--", "true"}),
            "sublet: run has two programs: one by --command and one after '--'");
}

TEST(RunFlags, TheCeilingIsAboveSizeAndSoftLimit) {
  EXPECT_EQ(refusal({"--memory", "1G", "--vram", "2G", "--", "true"}),
            "sublet: --memory is 1.0 GiB, less than the 2.0 GiB of --vram");
  EXPECT_EQ(refusal({"--memory", "1G", "--soft", "1G", "--", "true"}),
            "sublet: --soft is 1.0 GiB, not below the 1.0 GiB of --memory");
}

TEST(RunFlags, AnUnknownPolicyIsNamed) {
  EXPECT_EQ(refusal({"--detach", "--restart", "alway", "--", "true"}),
            "sublet: --restart: 'alway' is not one of never, on-failure, always – did you mean 'always'?");
}

TEST(RunFlags, TheWordsOfAPlainCommandNameTheProgram) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(words_of("python3 train.py  --lr 1"), (Words{"python3", "train.py", "--lr", "1"}));
  EXPECT_EQ(words_of("A=1 B=2 train x=3"), (Words{"train", "x=3"}));
  for (const char* line : {"a; b", "cd /x && train", "train > log", "$HOME/train", "A=1", "train 'a b'", "a\nb"})
    EXPECT_EQ(words_of(line), Words{"sh"}) << line;
}

}  // namespace
}  // namespace sublet::cli
