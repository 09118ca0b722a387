// SPDX-License-Identifier: Apache-2.0
// Data on stdout: safe text, widths, colours, tables, times. Pure functions, except look_for().
#pragma once

#include "base/text.h"
#include "cli/verb.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::cli {

// Columns that `text` takes on a terminal: wide characters take two, combining ones none.
std::size_t display_width(std::string_view text);

enum class Paint { none, bold, dim, red, green, yellow, cyan };

// Properties of the reader's terminal, and the time to compare with.
struct Look {
  bool color = false;
  Time now{};
  std::size_t width = 0;                            // width to which tables are cut; 0: never cut
  std::map<std::string, std::string> device_names;  // uuid → "gpu0"
};

// Colours only on a terminal that is not dumb, and without NO_COLOR; --color overrules both.
bool wants_color(const Common& common, std::FILE* stream);
Look look_for(const Common& common);

std::string paint(std::string_view text, Paint color, const Look& look);

// Read a reply defensively: a missing, null or mistyped value is "" or unset.
std::string text_at(const nlohmann::json& object, std::string_view key);  // made visible()
std::optional<std::int64_t> number_at(const nlohmann::json& object, std::string_view key);
bool flag_at(const nlohmann::json& object, std::string_view key);
const nlohmann::json& member(const nlohmann::json& object, std::string_view key);   // null if it is missing
const nlohmann::json& list_at(const nlohmann::json& object, std::string_view key);  // an empty list if it is not a list
std::optional<Time> time_at(const nlohmann::json& object, std::string_view key);

std::string size_at(const nlohmann::json& object, std::string_view key);       // "6.0 GiB" or "-"
std::string size_at_most(const nlohmann::json& object, std::string_view key);  // like size_at(), rounded down
std::string device_name(const std::string& uuid, const Look& look);            // "gpu0", or the start of the uuid
std::optional<Time> parse_rfc3339(std::string_view text);
std::string compact(Duration duration);  // "45s", "12m", "3h", "9d": one unit, rounded down
std::string coming(Duration left);       // "in about 5 min", or "at once"

struct Cell {
  std::string text;  // after visible()
  Paint color = Paint::none;
};

Cell text_cell(const nlohmann::json& row, std::string_view key);
Cell size_cell(const nlohmann::json& row, std::string_view key);
Cell number_cell(const nlohmann::json& row, std::string_view key);

// Treatment of a column in a table wider than the terminal. `needless`: left out if every row has `plain`. `below`: the
// last column, printed on lines of its own below each row.
enum class Narrow { cut, shorten, needless, below };

struct Column {
  std::string_view name;   // for -o
  std::string_view title;  // heading
  bool usual;              // shown without -o
  bool right;              // aligned to the right: numbers
  Cell (*cell)(const nlohmann::json& row, const Look& look);
  Narrow narrow = Narrow::cut;
  std::string_view plain = {};  // value that need not be shown; such columns are left out first
};

std::string column_names(std::span<const Column> columns);  // "id,name,state"

// Breaks `text` into lines of at most `width` columns, between words if possible. Without colours.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

// The table with its heading (unless --no-header) and the columns of -o. BadRequest for an unknown column.
Result<std::string> render_table(std::string_view verb, std::span<const Column> columns, const nlohmann::json& rows,
                                 const Common& common, const Look& look);

}  // namespace sublet::cli
