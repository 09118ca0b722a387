// SPDX-License-Identifier: Apache-2.0
// A Config as the command line shows it: as a file that sets every key, and as JSON.
#include "base/text.h"
#include "config/schema.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace sublet::config {
namespace {

using Lines = std::map<std::string, unsigned>;

std::string origin_of(const Loaded& loaded, const Lines& lines, const std::string& name) {
  const auto line = lines.find(name);
  return line == lines.end() ? "default" : fmt::format("{}:{}", visible(loaded.file), line->second);
}

std::string with_origin(const std::string& line, bool origin, const std::string& where) {
  return origin ? fmt::format("{:<32} # {}\n", line, where) : line + "\n";
}

std::string section_of(std::string_view name) { return std::string(name.substr(0, name.find('.'))); }

std::string list_text(const Loaded& loaded, const List& list, bool origin) {
  std::string out;
  auto& config = const_cast<Config&>(loaded.config);  // nothing is written through the accesses here
  for (std::size_t index = 0; index < list.rows.count(config); ++index) {
    const std::string row = fmt::format("{}[{}]", list.name, index);
    out += "\n" + with_origin(fmt::format("[[{}]]", list.name), origin, origin_of(loaded, loaded.row_lines, row));
    for (const Field& field : list.fields) {
      const std::string line = fmt::format("{} = {}", field.name, value_text(field, list.rows.at(config, index)));
      out += with_origin(line, origin, origin_of(loaded, loaded.row_lines, fmt::format("{}.{}", row, field.name)));
    }
  }
  return out;
}

}  // namespace

std::string file_text(const Loaded& loaded, bool origin, const Schema& schema) {
  std::string out;
  std::string section;
  for (const Key& key : schema.keys) {
    const std::string table = section_of(key.name);
    if (table != section) out += fmt::format("{}[{}]\n", section.empty() ? "" : "\n", table);
    section = table;
    const std::string line = fmt::format("{} = {}", key.name.substr(table.size() + 1), value_text(key, loaded.config));
    out += with_origin(line, origin, origin_of(loaded, loaded.lines, std::string(key.name)));
  }
  // Behind all keys: a key below a [[list]] would belong to the last table of the list.
  for (const List& list : schema.lists) out += list_text(loaded, list, origin);
  return out;
}

std::string values_json(const Loaded& loaded, const Schema& schema) {
  // TOML writes these values as JSON does.
  auto values = nlohmann::json::object();
  for (const Key& key : schema.keys) {
    const std::string name(key.name);
    values[name] = {{"value", nlohmann::json::parse(value_text(key, loaded.config))},
                    {"origin", origin_of(loaded, loaded.lines, name)}};
  }
  auto& config = const_cast<Config&>(loaded.config);  // as above
  for (const List& list : schema.lists) {
    auto rows = nlohmann::json::array();
    auto origins = nlohmann::json::array();
    for (std::size_t index = 0; index < list.rows.count(config); ++index) {
      auto row = nlohmann::json::object();
      for (const Field& field : list.fields)
        row[std::string(field.name)] = nlohmann::json::parse(value_text(field, list.rows.at(config, index)));
      rows.push_back(std::move(row));
      origins.push_back(origin_of(loaded, loaded.row_lines, fmt::format("{}[{}]", list.name, index)));
    }
    values[std::string(list.name)] = {{"value", std::move(rows)}, {"origin", std::move(origins)}};
  }
  return values.dump();
}

}  // namespace sublet::config
