// SPDX-License-Identifier: Apache-2.0
// Lists of tables: the mechanism with a schema of the test, and the lists of the daemon.
#include "config/schema.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace sublet::config {
namespace {

struct Slot {
  Name name;
  Bytes limit{};  // required
  Duration window = std::chrono::seconds(10);
  std::int64_t count = 1;
  double share = 0.5;
  std::string path;
  LoopbackAddress target;
  bool strict = true;
};

// A Config has no member for the list of the test.
std::vector<Slot>& slots(Config&) {
  static std::vector<Slot> all;
  return all;
}

constexpr Field slot_fields[] = {
    {"count", "1", "8", "Number of slots.", field<&Slot::count>()},
    {"limit", "1MiB", "1TiB", "Memory of the slot.", field<&Slot::limit>(), true},
    {"name", "", "", "Name of the slot.", field<&Slot::name>(), true},
    {"path", "", "", "File of the slot.", field<&Slot::path>()},
    {"share", "0", "1", "Part of the device.", field<&Slot::share>()},
    {"strict", "", "", "Refuse everything else.", field<&Slot::strict>()},
    {"target", "", "", "Port of the slot.", field<&Slot::target>()},
    {"window", "1s", "1h", "Time of the slot.", field<&Slot::window>()},
};

constexpr List lists[] = {
    {"gpu.slot", "A slot is a part of a device.", "name", slot_fields, rows<slots>()},
};

const Schema& with_slots() {
  static const Schema made{schema().keys, lists};
  return made;
}

Loaded read_slots(const std::string& text) {
  Config none;
  slots(none).clear();
  return parse(text, "f", with_slots());
}

std::vector<std::string> slot_complaints(const std::string& text) {
  std::vector<std::string> lines;
  for (const Problem& problem : read_slots(text).problems) lines.push_back(to_string(problem));
  return lines;
}

const char* const two_slots =
    "[gpu]\n"
    "timeout = \"20s\"\n"
    "[[gpu.slot]]\n"
    "name = \"day\"\n"
    "limit = \"8GiB\"\n"
    "[[gpu.slot]]\n"
    "limit = \"512MiB\"\n"
    "name = \"night-1\"\n"
    "window = \"5m\"\n"
    "count = 2\n"
    "share = 1\n"
    "strict = false\n"
    "path = \"/a\"\n"
    "target = \"localhost:80\"\n"
    "[queue]\n"
    "claim_window = \"3s\"\n";

TEST(Lists, RowsArriveWithTheirValuesAndDefaults) {
  Loaded loaded = read_slots(two_slots);
  ASSERT_TRUE(loaded.problems.empty()) << to_string(loaded.problems.front());
  const auto& all = slots(loaded.config);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].name.text, "day");
  EXPECT_EQ(all[0].limit, 8 * GiB);
  EXPECT_EQ(all[0].window, std::chrono::seconds(10));
  EXPECT_TRUE(all[0].strict);
  EXPECT_EQ(all[1].name.text, "night-1");
  EXPECT_EQ(all[1].limit, 512 * MiB);
  EXPECT_EQ(all[1].window, std::chrono::minutes(5));
  EXPECT_EQ(all[1].count, 2);
  EXPECT_EQ(all[1].share, 1.0);
  EXPECT_EQ(all[1].path, "/a");
  EXPECT_EQ(address_text(all[1].target), "127.0.0.1:80");
  EXPECT_FALSE(all[1].strict);
  EXPECT_EQ(loaded.config.gpu.timeout, std::chrono::seconds(20));
  EXPECT_EQ(loaded.config.queue.claim_window, std::chrono::seconds(3));
}

TEST(Lists, LinesAreKnownForEachTableAndKey) {
  const Loaded loaded = read_slots(two_slots);
  EXPECT_EQ(loaded.row_lines.at("gpu.slot[0]"), 3U);
  EXPECT_EQ(loaded.row_lines.at("gpu.slot[1]"), 6U);
  EXPECT_EQ(loaded.row_lines.at("gpu.slot[1].window"), 9U);
  EXPECT_FALSE(loaded.row_lines.contains("gpu.slot[0].window"));
  EXPECT_EQ(loaded.lines, (std::map<std::string, unsigned>{{"gpu.timeout", 2}, {"queue.claim_window", 16}}));
}

TEST(Lists, InlineTablesAndNoTableAtAllAreGood) {
  Loaded loaded = read_slots("[gpu]\nslot = [{name = \"a\", limit = \"1GiB\"}, {name = \"b\", limit = \"1GiB\"}]\n");
  ASSERT_TRUE(loaded.problems.empty()) << to_string(loaded.problems.front());
  EXPECT_EQ(slots(loaded.config).size(), 2U);
  EXPECT_TRUE(slot_complaints("gpu.slot = []\n").empty());
  EXPECT_TRUE(slot_complaints("").empty());
}

TEST(Lists, EachErrorNamesFileLineAndKey) {
  const struct {
    const char* text;
    std::vector<std::string> expected;
  } cases[] = {
      {"[[gpu.slot]]\nname = \"a\"\nlimt = \"1GiB\"\nlimit = \"1GiB\"\n",
       {"f:3:1: gpu.slot.limt: unknown key – did you mean 'limit'? (the keys of [[gpu.slot]] are count, limit, name, "
        "path, share, strict, target, window)"}},
      {"[[gpu.slot]]\nname = \"a\"\nlimit = \"1GiB\"\ncount = \"two\"\n",
       {"f:4:9: gpu.slot.count: is text, not an integer (the default is 1)"}},
      {"[[gpu.slot]]\nname = \"a\"\nlimit = 8\n",
       {"f:3:9: gpu.slot.limit: 8 has no unit (write a size with its unit: \"8MiB\")"}},
      {"[[gpu.slot]]\nname = 7\nlimit = \"1GiB\"\n",
       {"f:2:8: gpu.slot.name: is a number, not a name (write name = \"NAME\")"}},
      {"[[gpu.slot]]\nname = \"a\"\nlimit = \"1GiB\"\n[gpu.slot.window]\nx = 1\n",
       {"f:4:1: gpu.slot.window: is a table, not a duration (the default is \"10s\")"}},
      {"[[gpu.slot]]\nname = \"a b\"\nlimit = \"1GiB\"\n",
       {"f:2:8: gpu.slot.name: 'a b' is not a name (a name has 1 to 64 of the letters a-z and A-Z, digits, '.', '_' "
        "and '-')"}},
      {"[[gpu.slot]]\nname = \"a\"\nlimit = \"1GiB\"\ncount = 9\n",
       {"f:4:9: gpu.slot.count: 9 is not between 1 and 8 (the default is 1)"}},
      {"[[gpu.slot]]\nname = \"a\"\nlimit = \"1KiB\"\n",
       {"f:3:9: gpu.slot.limit: 1KiB is not between 1MiB and 1TiB (write a value in this range)"}},
      {"[queue]\n\n[[gpu.slot]]\ncount = 2\n",
       {"f:3:1: gpu.slot.limit: is missing in this table (write limit = \"1TiB\")",
        "f:3:1: gpu.slot.name: is missing in this table (write name = \"NAME\")"}},
      {"[[gpu.slot]]\nname = \"a\"\nlimit = \"1GiB\"\n[[gpu.slot]]\nlimit = \"1GiB\"\nname = \"a\"\n",
       {"f:6:8: gpu.slot.name: \"a\" is also the name of the table on line 2 (write another value or remove one of "
        "the two tables)"}},
      {"[gpu.slot]\nname = \"a\"\n",
       {"f:1:6: gpu.slot: is a list of tables, not one table (write [[gpu.slot]] and the keys of one table below)"}},
      {"[gpu]\nslot = 3\n",
       {"f:2:1: gpu.slot: is a list of tables, not a number (write [[gpu.slot]] and the keys of one table below)"}},
      {"[gpu]\nslot = [\n  1]\n",
       {"f:3:3: gpu.slot: has a number in the list (write [[gpu.slot]] and the keys of one table below)"}},
      {"[[gpu.slots]]\nname = \"a\"\n",
       {"f:1:7: gpu.slots: unknown key – did you mean 'gpu.slot'? (write [[gpu.slot]])"}},
      {"[queue]\nslot = 1\n",
       {"f:2:1: queue.slot: unknown key – did you mean 'tenants.slot'? (write slot below [tenants])"}},
      {"[[gpu.timeout]]\nx = 1\n", {"f:1:1: gpu.timeout: is a list, not a duration (the default is \"10s\")"}},
  };
  for (const auto& [text, expected] : cases) EXPECT_EQ(slot_complaints(text), expected) << text;
}

TEST(Lists, ErrorsOfSeveralTablesComeInTheOrderOfTheFile) {
  const auto found = slot_complaints("[[gpu.slot]]\ncount = 0\n[gpu]\ntimeout = 1\n[[gpu.slot]]\nname = \"b\"\n");
  ASSERT_EQ(found.size(), 5U);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const char* places[] = {"f:1:", "f:1:", "f:2:", "f:4:", "f:5:"};
    EXPECT_TRUE(found[i].starts_with(places[i])) << found[i];
  }
}

TEST(Lists, ADaemonWithoutListsRefusesThem) {
  EXPECT_EQ(to_string(parse("[[gpu.slot]]\nname = \"a\"\n", "f").problems.at(0)),
            "f:1:7: gpu.slot: unknown key – did you mean 'tenants.slot'? (write slot below [tenants])");
}

TEST(Lists, ShownTextIsReadAsTheSameValues) {
  Loaded loaded = read_slots(two_slots);
  const std::string shown = file_text(loaded, true, with_slots());
  EXPECT_NE(shown.find("\n[[gpu.slot]]                     # f:6\n"), std::string::npos) << shown;
  EXPECT_NE(shown.find("\nlimit = \"512MiB\"                 # f:7\n"), std::string::npos) << shown;
  EXPECT_NE(shown.find("\nwindow = \"10s\"                   # default\n"), std::string::npos) << shown;
  Loaded again = read_slots(shown);
  ASSERT_TRUE(again.problems.empty()) << to_string(again.problems.front());
  EXPECT_EQ(file_text(again, false, with_slots()), file_text(read_slots(two_slots), false, with_slots()));
}

TEST(Lists, JsonHasAnArrayOfObjects) {
  const auto shown = nlohmann::json::parse(values_json(read_slots(two_slots), with_slots()));
  const auto& list = shown.at("gpu.slot");
  EXPECT_EQ(list.at("origin"), nlohmann::json::parse(R"(["f:3", "f:6"])"));
  EXPECT_EQ(list.at("value").at(1), nlohmann::json::parse(R"({"name": "night-1", "limit": "512MiB", "window": "5m",
    "count": 2, "share": 1.0, "strict": false, "path": "/a", "target": "127.0.0.1:80"})"));
  EXPECT_EQ(shown.at("gpu.timeout"), nlohmann::json::parse(R"({"value": "20s", "origin": "f:2"})"));
}

TEST(Lists, ThePagesHaveATableForEachList) {
  const std::string page = reference_page(with_slots());
  EXPECT_NE(page.find("\n## `[[gpu.slot]]`\n\nA slot is a part of a device. "), std::string::npos);
  EXPECT_NE(page.find("\n| `count` | integer | `1` | 1 to 8 | Number of slots. |\n"), std::string::npos);
  EXPECT_NE(page.find("\n| `limit` | size | required | 1MiB to 1TiB | Memory of the slot. |\n"), std::string::npos);
  EXPECT_NE(reference_page().find("[[events.webhook]]"), std::string::npos);
  const std::string manual = manual_page(with_slots());
  EXPECT_NE(manual.find("[[gpu.slot]]"), std::string::npos);
  EXPECT_NE(manual.find("Memory of the slot."), std::string::npos);
  EXPECT_NE(manual.find("size, 1MiB to 1TiB; required"), std::string::npos) << manual;
}

TEST(Lists, TenantsOfUsersAndGroups) {
  const Loaded good = parse(
      "[tenants]\nuser = [{name = \"ana\", tenant = \"vision\"}]\n"
      "[[tenants.group]]\nname = \"the lab\"\ntenant = \"speech\"\n"
      "[[tenants.group]]\nname = \"staff\"\ntenant = \"speech\"\n",
      "f");
  ASSERT_TRUE(good.problems.empty()) << to_string(good.problems.front());
  ASSERT_EQ(good.config.tenants.users.size(), 1U);
  EXPECT_EQ(good.config.tenants.users[0].tenant.text, "vision");
  ASSERT_EQ(good.config.tenants.groups.size(), 2U);
  EXPECT_EQ(good.config.tenants.groups[0].name.text, "the lab");
  const struct {
    const char* text;
    const char* expected;
  } cases[] = {
      {"[[tenants.user]]\nname = \"ana\"\n",
       "f:1:1: tenants.user.tenant: is missing in this table (write tenant = \"NAME\")"},
      {"[[tenants.user]]\nname = \"\"\ntenant = \"a\"\n",
       "f:2:8: tenants.user.name: the text is empty (write a value in this range)"},
      {"[[tenants.group]]\nname = \"lab\"\ntenant = \"a b\"\n",
       "f:3:10: tenants.group.tenant: 'a b' is not a name (a name has 1 to 64 of the letters a-z and A-Z, digits, '.', "
       "'_' and '-')"},
      {"[tenants]\nuser = [\"ana=vision\"]\n",
       "f:2:9: tenants.user: has text in the list (write [[tenants.user]] and the keys of one table below)"},
      {"[tenants]\nusers = 1\n",
       "f:2:1: tenants.users: unknown key – did you mean 'tenants.user'? (write "
       "[[tenants.user]])"},
      {"[[tenants.user]]\nname = \"ana\"\ntenant = \"a\"\n[[tenants.user]]\nname = \"ana\"\ntenant = \"b\"\n",
       "f:5:8: tenants.user.name: \"ana\" is also the name of the table on line 2 (write another value or remove one "
       "of the two tables)"},
  };
  for (const auto& [text, expected] : cases) {
    const Loaded loaded = parse(text, "f");
    ASSERT_EQ(loaded.problems.size(), 1U) << text;
    EXPECT_EQ(to_string(loaded.problems.front()), expected) << text;
  }
}

// The daemon's own lists, and the lists above.
TEST(Lists, EveryListHoldsTogether) {
  for (const Schema* each : {&schema(), &with_slots()}) {
    for (const List& list : each->lists) {
      EXPECT_NE(list.name.find('.'), std::string_view::npos) << list.name;
      EXPECT_EQ(list.summary.back(), '.') << list.name;
      EXPECT_EQ(find(list.name), nullptr) << list.name;
      bool unique_found = list.unique.empty();
      std::string_view before;
      for (const Field& row : list.fields) {
        EXPECT_LT(before, row.name) << "fields are in order";
        before = row.name;
        EXPECT_EQ(row.summary.back(), '.') << row.name;
        unique_found |=
            row.name == list.unique && row.required && (type_name(row) == "name" || type_name(row) == "text");
        std::string text = default_text(list, row);
        if (text.starts_with('"')) text = text.substr(1, text.size() - 2);
        Slot scratch;
        if (each == &with_slots() && !row.required) {
          EXPECT_TRUE(set_value(list, row, text, &scratch)) << row.name;
        }
      }
      EXPECT_TRUE(unique_found) << list.name;
    }
  }
}

}  // namespace
}  // namespace sublet::config
