// SPDX-License-Identifier: Apache-2.0
#include "cli/screen.h"

#include <gtest/gtest.h>

namespace sublet::cli {
namespace {

TEST(Screen, ALineIsCutByWhatItShowsNotByItsBytes) {
  EXPECT_EQ(cut("abcdef", 6), "abcdef");
  EXPECT_EQ(cut("abcdefg", 6), "abcde…");
  EXPECT_EQ(cut("日本語", 5), "日本…");
  EXPECT_EQ(cut("日本語", 4), "日…");
  EXPECT_EQ(cut("ab", 1), "…");
  EXPECT_EQ(cut("ab", 0), "");
}

TEST(Screen, ColoursTakeNoRoomAndEndWithTheCut) {
  EXPECT_EQ(cut("\x1b[32mactive\x1b[0m", 6), "\x1b[32mactive\x1b[0m");
  EXPECT_EQ(cut("\x1b[32mactive\x1b[0m", 4), "\x1b[32mact…\x1b[0m");
  EXPECT_EQ(cut("\x1b[32mab\x1b[0mcdef", 4), "\x1b[32mab\x1b[0mc…");
}

TEST(Screen, WhatDoesNotFitIsCounted) {
  EXPECT_EQ(framed("a\nb\nc\n", {3, 80}), "a\nb\nc\n");
  EXPECT_EQ(framed("a\nb\nc\nd\n", {3, 80}), "a\nb\n… 2 more lines\n");
  EXPECT_EQ(framed("a\nb\n", {1, 6}), "… 2 m…\n");
  EXPECT_EQ(framed("", {3, 80}), "");
}

}  // namespace
}  // namespace sublet::cli
