// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace sublet::cli {
namespace {

using nlohmann::json;

TEST(DisplayWidth, CountsColumns) {
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("猫"), 2u);
  EXPECT_EQ(display_width("e\xcc\x81"), 1u);  // e and a combining accent
  EXPECT_EQ(display_width("–"), 1u);
}

TEST(Times, ReadsWhatTheApiWrites) {
  const auto time = parse_rfc3339("2026-11-21T16:00:05.123Z");
  ASSERT_TRUE(time);
  EXPECT_EQ(format_rfc3339(*time), "2026-11-21T16:00:05.123Z");
  EXPECT_EQ(format_rfc3339(*parse_rfc3339("2026-11-21T16:00:05Z")), "2026-11-21T16:00:05.000Z");
  for (const char* bad : {"", "yesterday", "2026-11-21 16:00:05Z", "2026-1x-21T16:00:05Z", "2026-11-21T16:00:05.x3Z"}) {
    EXPECT_FALSE(parse_rfc3339(bad)) << bad;
  }
}

TEST(Times, CompactHasOneUnit) {
  EXPECT_EQ(compact(std::chrono::milliseconds(-5)), "0s");
  EXPECT_EQ(compact(std::chrono::seconds(59)), "59s");
  EXPECT_EQ(compact(std::chrono::seconds(119)), "1m");
  EXPECT_EQ(compact(std::chrono::hours(5)), "5h");
  EXPECT_EQ(compact(std::chrono::hours(49)), "2d");
}

TEST(Reading, NothingOfAReplyIsTrusted) {
  const json row = json::parse(R"({"a": null, "b": 7, "c": "t\u001b", "d": [1], "e": 18446744073709551615, "f": 1.5})");
  EXPECT_EQ(text_at(row, "a"), "");
  EXPECT_EQ(text_at(row, "b"), "");
  EXPECT_EQ(text_at(row, "c"), "t\\x1b");
  EXPECT_EQ(number_at(row, "b"), 7);
  EXPECT_FALSE(number_at(row, "e"));
  EXPECT_FALSE(number_at(row, "f"));
  EXPECT_TRUE(list_at(row, "missing").empty());
  EXPECT_EQ(list_at(row, "d").size(), 1u);
  EXPECT_EQ(size_at(row, "missing"), "-");
  EXPECT_TRUE(member(json(3), "x").is_null());
}

constexpr Column columns[] = {
    {"name", "NAME", true, false, +[](const json& r, const Look&) { return text_cell(r, "name"); }},
    {"size", "SIZE", true, true, +[](const json& r, const Look&) { return size_cell(r, "size"); }},
    {"more", "MORE", false, false,
     +[](const json& r, const Look&) {
       return Cell{text_at(r, "more"), Paint::red};
     }},
};
const json rows = json::parse(R"([{"name": "猫", "size": 1073741824, "more": "x"}, {"name": "longer", "size": 1}])");

TEST(Table, AlignsByDisplayWidth) {
  EXPECT_EQ(*render_table("t", columns, rows, Common{}, Look{}),
            "NAME       SIZE\n"
            "猫      1.0 GiB\n"
            "longer      1 B\n");
}

TEST(Table, ChoosesColumnsInTheOrderAsked) {
  Common common;
  common.no_header = true;
  common.columns = {"MORE", "name"};
  EXPECT_EQ(*render_table("t", columns, rows, common, Look{}), "x  猫\n-  longer\n");
}

TEST(Table, AnUnknownColumnListsThose) {
  Common common;
  common.columns = {"nmae"};
  const auto result = render_table("t", columns, rows, common, Look{});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().detail, "t has no column 'nmae' – did you mean 'name'?");
  EXPECT_EQ(result.error().hint, "columns: name,size,more");
  EXPECT_EQ(exit_code(result.error().code), kUsage);
}

TEST(Table, ColoursDoNotCountAsWidth) {
  Look look;
  look.color = true;
  Common common;
  common.columns = {"more", "name"};
  EXPECT_EQ(*render_table("t", columns, rows, common, look),
            "\x1b[1mMORE\x1b[0m  \x1b[1mNAME\x1b[0m\n"
            "\x1b[31mx\x1b[0m     猫\n"
            "\x1b[31m-\x1b[0m     longer\n");
}

TEST(Colour, OnlyWhereItIsWanted) {
  Common common;
  EXPECT_FALSE(wants_color(common, std::tmpfile()));  // no terminal
  common.color = Color::always;
  EXPECT_TRUE(wants_color(common, stdout));
  common.color = Color::never;
  EXPECT_FALSE(wants_color(common, stdout));
}

TEST(ExitCodes, BelongToTheApisCodes) {
  EXPECT_EQ(exit_code(Code::Memory), 75);
  EXPECT_EQ(exit_code(Code::GpuLost), 75);
  EXPECT_EQ(exit_code(Code::External), 75);
  EXPECT_EQ(exit_code(Code::Denied), 77);
  EXPECT_EQ(exit_code(Code::BadRequest), 2);
  EXPECT_EQ(exit_code(Code::TooLarge), 1);
  EXPECT_EQ(exit_code(Code::NotFound), 4);
}

}  // namespace
}  // namespace sublet::cli
