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

TEST(LogLine, TellsAMarkByItsTab) {
  const LogLine mark = parse_log_line("2026-11-26T20:00:00.123Z\tstart 1: pid 7\x1b[2J");
  EXPECT_TRUE(mark.mark);
  EXPECT_EQ(mark_text(mark), "== sublet 2026-11-26T20:00:00.123Z: start 1: pid 7\\x1b[2J ==");
  EXPECT_FALSE(parse_log_line("2026-11-26T20:00:00.123Z start\t1").mark);
  EXPECT_FALSE(parse_log_line("start\t1").mark);
  EXPECT_TRUE(imitates_mark("== sublet 2026-11-26T20:00:00.123Z: start 1: pid 7 =="));
  EXPECT_FALSE(imitates_mark("-- Configuring"));
  EXPECT_TRUE(may_imitate_mark("== sub"));
  EXPECT_FALSE(may_imitate_mark("== sum"));
}

TEST(LogLine, OfAStartBeginsALog) {
  const auto begins = [](const char* line) { return begins_log(parse_log_line(line)); };
  EXPECT_TRUE(begins("2026-11-26T20:00:00.123Z\tstart 1: pid 7 under lease-3"));
  EXPECT_TRUE(begins("2026-11-26T20:00:00.123Z\tstart 2 failed: no such file"));
  EXPECT_FALSE(begins("2026-11-26T20:00:00.123Z\tstart 1 has ended: exit status 3"));
  EXPECT_FALSE(begins("2026-11-26T20:00:00.123Z start 1: pid 7 under lease-3")) << "a program wrote it";
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
