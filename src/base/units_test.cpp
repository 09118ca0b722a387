// SPDX-License-Identifier: Apache-2.0
#include "base/units.h"

#include "base/size_bounds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

namespace sublet {
namespace {

using namespace std::chrono_literals;

std::int64_t size(std::string_view text) {
  const auto bytes = parse_size(text);
  return bytes ? bytes->count : -1;
}

TEST(ParseSize, KnowsBinaryAndDecimalUnits) {
  EXPECT_EQ(size("8G"), 8LL << 30);
  EXPECT_EQ(size("8GiB"), 8LL << 30);
  EXPECT_EQ(size("8Gi"), 8LL << 30);
  EXPECT_EQ(size("8GB"), 8'000'000'000);
  EXPECT_EQ(size("8gib"), 8LL << 30);
  EXPECT_EQ(size("512M"), 512LL << 20);
  EXPECT_EQ(size("3k"), 3072);
  EXPECT_EQ(size("3KB"), 3000);
  EXPECT_EQ(size("2T"), 2LL << 40);
  EXPECT_EQ(size("1P"), 1LL << 50);
  EXPECT_EQ(size("17"), 17);
  EXPECT_EQ(size("17B"), 17);
  EXPECT_EQ(size("8 GiB"), 8LL << 30);
}

TEST(ParseSize, CalculatesFractionsInIntegers) {
  EXPECT_EQ(size("0.5GiB"), 1LL << 29);
  EXPECT_EQ(size("1.5K"), 1536);
  EXPECT_EQ(size("0.1GiB"), 107'374'182);
  EXPECT_EQ(size("2."), 2);
}

TEST(ParseSize, StopsAtTwoToTheSixtyTwo) {
  EXPECT_EQ(size("4611686018427387904"), 1LL << 62);
  EXPECT_EQ(size("4096P"), 1LL << 62);
  for (const char* text : {"4611686018427387905", "4097P", "18446744073709551616", "99999999999999999999999999999999",
                           "1000000000000000000000000000000P",
                           // 2^78 + 1 PiB, which is 2^50 modulo 2^128
                           "302231454903657293676545P"}) {
    const auto refused = parse_size(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().code, Code::BadRequest);
    EXPECT_NE(refused.error().detail.find("2^62"), std::string::npos) << refused.error().detail;
  }
}

TEST(ParseSize, RefusesWhatIsNoSizeAndNamesIt) {
  for (const char* text : {"",    "-1",    "-0",  "+1",  "0",   "0.0",  "0GiB", "8Q",  "8GiBs",    "8GG",  "GiB",
                           ".5G", "1.2.3", "1e9", " 8G", "8G ", "0x10", "1,5G", "nan", "\x1b[31m", "8\xff"}) {
    const auto refused = parse_size(text);
    ASSERT_FALSE(refused) << text << " was taken as " << refused->count;
    EXPECT_EQ(refused.error().code, Code::BadRequest);
    EXPECT_FALSE(refused.error().hint.empty());
    EXPECT_EQ(refused.error().detail.find('\x1b'), std::string::npos) << "must be safe to print";
  }
  EXPECT_NE(parse_size("8Q").error().detail.find("'8Q'"), std::string::npos);
  EXPECT_NE(parse_size("-1").error().detail.find("negative"), std::string::npos);
  EXPECT_NE(parse_size("1,5GiB").error().detail.find("comma"), std::string::npos);
}

TEST(ParseSize, TakesZeroWhereAllowed) {
  ASSERT_TRUE(parse_size("0", true));
  EXPECT_EQ(parse_size("0GiB", true)->count, 0);
  EXPECT_FALSE(parse_size("-0", true));
}

TEST(ParseSize, WhateverIsTypedIsASizeInRangeOrAnError) {
  const unsigned seed = 7;
  std::mt19937 random(seed);
  const std::string_view letters = "0123456789.-+ eKMGTPBiq\t\xc3";
  for (int i = 0; i < 100'000; ++i) {
    std::string text;
    for (unsigned length = random() % 24; length > 0; --length) text += letters[random() % letters.size()];
    const auto bytes = parse_size(text);
    if (!bytes) continue;
    EXPECT_GT(bytes->count, 0) << text;
    EXPECT_LE(bytes->count, 1LL << 62) << text;
  }
}

TEST(FormatSize, UsesThreeDigitsAndAFittingUnit) {
  EXPECT_EQ(format_size({0}), "0 B");
  EXPECT_EQ(format_size({17}), "17 B");
  EXPECT_EQ(format_size({1023}), "1023 B");
  EXPECT_EQ(format_size(KiB), "1.0 KiB");
  EXPECT_EQ(format_size(512 * MiB), "512 MiB");
  EXPECT_EQ(format_size(6 * GiB), "6.0 GiB");
  EXPECT_EQ(format_size(99 * GiB), "99.0 GiB");
  EXPECT_EQ(format_size(100 * GiB), "100 GiB");
  EXPECT_EQ(format_size(2048 * GiB), "2.0 TiB");
  EXPECT_EQ(format_size({-6LL << 30}), "-6.0 GiB");
  EXPECT_EQ(format_size({-5}), "-5 B");
  EXPECT_EQ(format_size({1LL << 62}), "4194304 TiB");
}

TEST(FormatSize, RoundsAsThePrintingOfADoubleDoes) {
  EXPECT_EQ(format_size(64 * KiB + Bytes{512}), "64.5 KiB");
  EXPECT_EQ(format_size({99 * 1024 + 973}), "100 KiB");
  EXPECT_EQ(format_size({99 * 1024 + 972}), "99.9 KiB");
  std::uint64_t random = 1;
  for (int i = 0; i < 20'000; ++i) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    // A double holds each number below 2^50 exactly. Every other number ends in zeros, so that some lie between two
    // texts.
    std::int64_t size = static_cast<std::int64_t>(random >> (14 + i % 40));
    if (i % 2 == 0) size = size >> (i % 9) << (i % 9);
    const auto [unit, name] = size >= (1LL << 40)   ? std::pair(1LL << 40, "TiB")
                              : size >= (1LL << 30) ? std::pair(1LL << 30, "GiB")
                              : size >= (1LL << 20) ? std::pair(1LL << 20, "MiB")
                                                    : std::pair(1LL << 10, "KiB");
    if (size < 1024) continue;
    const double value = static_cast<double>(size) / static_cast<double>(unit);
    ASSERT_EQ(format_size({size}), fmt::format("{:.{}f} {}", value, value < 99.95 ? 1 : 0, name)) << size;
  }
}

TEST(FormatSize, OfTwoThatAreToldApartLooksDifferent) {
  using Pair = std::pair<std::string, std::string>;
  EXPECT_EQ(format_sizes_apart(2 * GiB, 2 * GiB - MiB), Pair("2.0 GiB", "1.9 GiB"));
  EXPECT_EQ(format_sizes_apart(2 * GiB + MiB, 2 * GiB), Pair("2.1 GiB", "2.0 GiB"));
  EXPECT_EQ(format_sizes_apart({3'774'873'600}, 2 * GiB), Pair("3.5 GiB", "2.0 GiB"));
  EXPECT_EQ(format_sizes_finely(3 * GiB, 2 * GiB), Pair("3.0 GiB", "2.0 GiB"));
  EXPECT_EQ(format_sizes_finely(GiB + 2 * MiB, GiB), Pair("1026 MiB", "1024 MiB"));
  EXPECT_EQ(format_sizes_finely(GiB + KiB, GiB), Pair("1048577 KiB", "1048576 KiB"));
  EXPECT_EQ(format_sizes_finely(GiB, GiB), Pair("1.0 GiB", "1.0 GiB"));
}

TEST(FormatSize, BoundsAreNotCrossedByWhoTypesThem) {
  EXPECT_EQ(format_size({3'919'157'658}), "3.7 GiB") << "3.65";
  EXPECT_EQ(format_size_down({3'919'157'658}), "3.6 GiB");
  EXPECT_EQ(format_size_up({3'876'208'000}), "3.7 GiB") << "3.61";
  EXPECT_EQ(format_size_up({99 * 1024 + 972}), "100 KiB");
  EXPECT_EQ(format_size_down({100 * 1024 + 1023}), "100 KiB");
  EXPECT_EQ(format_size_up({100 * 1024 + 1}), "101 KiB");
  for (const Bytes whole : {Bytes{17}, KiB, 512 * MiB, 6 * GiB, 100 * GiB}) {
    EXPECT_EQ(format_size_down(whole), format_size(whole));
    EXPECT_EQ(format_size_up(whole), format_size(whole));
  }
  std::uint64_t random = 1;
  for (int i = 0; i < 20'000; ++i) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    const Bytes size{static_cast<std::int64_t>(random >> (14 + i % 40))};
    ASSERT_LE(*parse_size(format_size_down(size), true), size);
    ASSERT_GE(*parse_size(format_size_up(size), true), size);
  }
}

std::int64_t duration(std::string_view text) {
  const auto parsed = parse_duration(text);
  return parsed ? parsed->count() : -1;
}

TEST(ParseDuration, KnowsUnitsAndSumsOfThem) {
  EXPECT_EQ(duration("90"), Duration(90s).count());
  EXPECT_EQ(duration("90s"), Duration(90s).count());
  EXPECT_EQ(duration("0"), 0);
  EXPECT_EQ(duration("5m"), Duration(5min).count());
  EXPECT_EQ(duration("5min"), Duration(5min).count());
  EXPECT_EQ(duration("1h30m"), Duration(90min).count());
  EXPECT_EQ(duration("2d"), Duration(48h).count());
  EXPECT_EQ(duration("2w"), Duration(336h).count());
  EXPECT_EQ(duration("250ms"), Duration(250ms).count());
  EXPECT_EQ(duration("1.5s"), Duration(1500ms).count());
  EXPECT_EQ(duration("10us"), 10'000);
  EXPECT_EQ(duration("10ns"), 10);
}

TEST(ParseDuration, RefusesWhatIsNoDurationAndNamesIt) {
  for (const char* text :
       {"", "-1s", "+1s", "s", "1x", "1h30", "0m5", "0m0s5", "5m0", "1 h", "1s ", "1e3", ".5s", "37000d",
        "3938453320844195178974244d", "1000000000000d", "99999999999999999999999999999999s", "inf"}) {
    const auto refused = parse_duration(text);
    ASSERT_FALSE(refused) << text << " was taken as " << refused->count();
    EXPECT_EQ(refused.error().code, Code::BadRequest);
    EXPECT_FALSE(refused.error().hint.empty());
  }
}

TEST(FormatDuration, UsesTheTwoLargestUnits) {
  EXPECT_EQ(format_duration(0ms), "0 ms");
  EXPECT_EQ(format_duration(250ms), "250 ms");
  EXPECT_EQ(format_duration(3s), "3 s");
  EXPECT_EQ(format_duration(2600ms), "3 s");
  EXPECT_EQ(format_duration(125s), "2 min 5 s");
  EXPECT_EQ(format_duration(2min), "2 min");
  EXPECT_EQ(format_duration(63min), "1 h 3 min");
  EXPECT_EQ(format_duration(49h), "2 d 1 h");
  EXPECT_EQ(format_duration(-3s), "-3 s");
}

TEST(FormatRfc3339, IsUtcWithMilliseconds) {
  EXPECT_EQ(format_rfc3339({0}), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(format_rfc3339({1'795'276'805'123'999'999}), "2026-11-21T16:00:05.123Z");
}

TEST(TimeAndBytes, CalculateAndCompareAsNumbers) {
  constexpr Time start{1'000};
  static_assert(start + Duration(5) == Time{1'005});
  static_assert((start + Duration(5)) - start == Duration(5));
  static_assert(start < Time::never());
  Bytes sum = 2 * GiB;
  sum += 512 * MiB;
  sum -= GiB;
  EXPECT_EQ(sum, 1536 * MiB);
  EXPECT_LT(MiB - GiB, Bytes{});
}

}  // namespace
}  // namespace sublet
