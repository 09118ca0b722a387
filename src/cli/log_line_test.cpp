// SPDX-License-Identifier: Apache-2.0
#include "cli/log_line.h"

#include <gtest/gtest.h>

namespace sublet::cli {
namespace {

TEST(LogLine, HasATimeAndAText) {
  LogLine line = parse_log_line("2026-11-26T20:00:00.123Z step 1");
  EXPECT_EQ(line.time, "2026-11-26T20:00:00.123Z");
  EXPECT_EQ(line.text, "step 1");
  line = parse_log_line("2026-11-26T20:00:00.123Z ");
  EXPECT_EQ(line.time, "2026-11-26T20:00:00.123Z");
  EXPECT_EQ(line.text, "");
  line = parse_log_line("no time here");
  EXPECT_EQ(line.time, "");
  EXPECT_EQ(line.text, "no time here");
}

TEST(LogLine, CannotSteerTheTerminal) {
  EXPECT_EQ(for_terminal("a\x1b[2Jb\x1b]0;title\x07", true), "a\\x1b[2Jb\\x1b]0;title\\x07");
  EXPECT_EQ(for_terminal("tab\there", true), "tab\there");
  EXPECT_EQ(for_terminal("\x1b", true), "\\x1b");
  EXPECT_EQ(for_terminal("\x1b[1;3", true), "\\x1b[1;3");
}

TEST(LogLine, KeepsColoursWhereTheyAreWanted) {
  EXPECT_EQ(for_terminal("\x1b[1;31mred\x1b[0m end", true), "\x1b[1;31mred\x1b[0m end\x1b[0m");
  EXPECT_EQ(for_terminal("\x1b[31mred", false), "red");
}

TEST(LogLine, OfAProgressBarTheLastStateStays) {
  EXPECT_EQ(for_terminal("10 %\r20 %\r30 %", true), "30 %");
  EXPECT_EQ(for_terminal("done\r", true), "done");
}

}  // namespace
}  // namespace sublet::cli
