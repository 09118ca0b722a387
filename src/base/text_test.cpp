// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <array>
#include <random>
#include <string>

namespace sublet {
namespace {

using namespace std::string_literals;

TEST(SignalName, IsTheShellsWithItsPrefix) {
  EXPECT_EQ(signal_name(15), "SIGTERM");
  EXPECT_EQ(signal_name(40), "signal 40");
}

TEST(Printable, KeepsTextAndShowsTheRestAsHex) {
  EXPECT_EQ(printable("train.py --lr=0.1"), "train.py --lr=0.1");
  EXPECT_EQ(printable("Zoë → 模型 🙂"), "Zoë → 模型 🙂");
  EXPECT_EQ(printable("a\nb\tc\x1b[31m"), "a\\x0ab\\x09c\\x1b[31m");
  EXPECT_EQ(printable("\x7f"), "\\x7f");
  EXPECT_EQ(printable("a\0b"s), "a\\x00b");
  EXPECT_EQ(printable(""), "");
}

TEST(Printable, ShowsWhatIsNotUtf8AsHex) {
  EXPECT_EQ(printable("\xff"), "\\xff");
  EXPECT_EQ(printable("\xc3"), "\\xc3") << "cut short";
  EXPECT_EQ(printable("\xc3("), "\\xc3(");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf") << "overlong";
  EXPECT_EQ(printable("\xe0\x80\xaf"), "\\xe0\\x80\\xaf") << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond Unicode";
  EXPECT_EQ(printable("\xf0\x9f\x99\x82"), "🙂");
}

TEST(Printable, CutsLongText) {
  const std::string shown = printable(std::string(100'000, 'x'));
  EXPECT_LT(shown.size(), 210U);
  EXPECT_TRUE(shown.ends_with("…"));
  EXPECT_EQ(printable(std::string(200, 'x')), std::string(200, 'x'));
}

TEST(Printable, IsAlwaysAJsonString) {
  const unsigned seed = 11;
  std::mt19937 random(seed);
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    for (unsigned length = random() % 12; length > 0; --length) text += static_cast<char>(random());
    EXPECT_NO_THROW((void)nlohmann::json(printable(text)).dump()) << "seed " << seed << " round " << i;
  }
}

constexpr std::array<std::string_view, 6> verbs{"queue", "release", "renew", "run", "status", "stop"};

TEST(Nearest, FindsWhatWasMeant) {
  EXPECT_EQ(nearest("quue", verbs), "queue");
  EXPECT_EQ(nearest("relase", verbs), "release");
  EXPECT_EQ(nearest("statsu", verbs), "status");
  EXPECT_EQ(nearest("rel", verbs), "release") << "a beginning of three letters or more";
  EXPECT_EQ(nearest("run", verbs), "run");
}

TEST(Nearest, SaysNothingWhenNothingIsNear) {
  EXPECT_EQ(nearest("xylophone", verbs), "");
  EXPECT_EQ(nearest("abcde", verbs), "");
  EXPECT_EQ(nearest(std::string(100'000, 'q'), verbs), "") << "and takes no time over it";
  EXPECT_EQ(nearest("queue", {}), "");
}

TEST(DidYouMean, IsTheEndOfASentence) {
  EXPECT_EQ(did_you_mean("quue", verbs), " – did you mean 'queue'?");
  EXPECT_EQ(did_you_mean("xylophone", verbs), "");
}

TEST(Visible, LetsNothingSteerTheTerminal) {
  EXPECT_EQ(visible("plain – ok 猫"), "plain – ok 猫");
  EXPECT_EQ(visible("a\x1b[31mb\nc\x7f"), "a\\x1b[31mb\\x0ac\\x7f");
  EXPECT_EQ(visible("\xc2\x9b"
                    "31m"),
            "\\u009b31m");  // CSI in one character
  EXPECT_EQ(visible("\xe2\x80\xae"
                    "txt"),
            "\\u202etxt");  // text that runs backwards
  EXPECT_EQ(visible("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(visible(std::string(500, 'a')), std::string(500, 'a'));
}

TEST(Visible, WhatItShowsIsPrintable) {
  for (const std::string_view text : {"a\x1b[31m", "\xc2\x9b", "\xe2\x80\xae", "\xff"}) {
    EXPECT_FALSE(is_printable(text));
    EXPECT_TRUE(is_printable(visible(text)));
    EXPECT_EQ(printable(text), visible(text));
  }
}

}  // namespace
}  // namespace sublet
