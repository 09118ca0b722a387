// SPDX-License-Identifier: Apache-2.0
// Tables: which columns, how wide, in which colour.
#include "base/text.h"
#include "cli/screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace sublet::cli {

namespace {

bool same_word(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

Error no_column(std::string_view verb, std::string_view word, std::span<const Column> columns) {
  std::vector<std::string_view> names;
  for (const Column& column : columns) names.push_back(column.name);
  return bad_request(fmt::format("{} has no column '{}'{}", verb, visible(word), did_you_mean(word, names)),
                     "columns: " + column_names(columns));
}

Result<std::vector<const Column*>> chosen(std::string_view verb, std::span<const Column> columns,
                                          const std::vector<std::string>& names) {
  std::vector<const Column*> result;
  for (const std::string& name : names) {
    const auto found = std::find_if(columns.begin(), columns.end(), [&](const Column& column) {
      return same_word(column.name, name) || same_word(column.title, name);
    });
    if (found == columns.end()) return no_column(verb, name, columns);
    result.push_back(&*found);
  }
  if (!names.empty()) return result;
  for (const Column& column : columns) {
    if (column.usual) result.push_back(&column);
  }
  return result;
}

std::string line_of(const std::vector<Cell>& cells, const std::vector<const Column*>& columns,
                    const std::vector<std::size_t>& widths, const Look& look) {
  std::string line;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(widths[i] - display_width(cells[i].text), ' ');
    const std::string text = paint(cells[i].text, cells[i].color, look);
    const bool last = i + 1 == cells.size();
    line += columns[i]->right ? padding + text : text + (last ? "" : padding);
    if (!last) line += "  ";
  }
  return (look.width > 0 ? cut(line, look.width) : line) + "\n";
}

}  // namespace

Cell text_cell(const nlohmann::json& row, std::string_view key) { return {text_at(row, key), Paint::none}; }
Cell size_cell(const nlohmann::json& row, std::string_view key) { return {size_at(row, key), Paint::none}; }
Cell number_cell(const nlohmann::json& row, std::string_view key) {
  const auto number = number_at(row, key);
  return {number ? fmt::format("{}", *number) : "-", Paint::none};
}

std::string column_names(std::span<const Column> columns) {
  std::string names;
  for (const Column& column : columns) {
    if (!names.empty()) names += ',';
    names += column.name;
  }
  return names;
}

Result<std::string> render_table(std::string_view verb, std::span<const Column> columns, const nlohmann::json& rows,
                                 const Common& common, const Look& look) {
  const auto picked = chosen(verb, columns, common.columns);
  if (!picked) return picked.error();
  std::vector<std::vector<Cell>> lines;
  if (!common.no_header) {
    lines.emplace_back();
    for (const Column* column : *picked) lines.back().push_back({std::string(column->title), Paint::bold});
  }
  for (const auto& row : rows) {
    lines.emplace_back();
    for (const Column* column : *picked) {
      Cell cell = column->cell(row, look);
      if (cell.text.empty()) cell.text = "-";
      lines.back().push_back(std::move(cell));
    }
  }
  std::vector<std::size_t> widths(picked->size(), 0);
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], display_width(line[i].text));
  }
  std::string out;
  for (const auto& line : lines) out += line_of(line, *picked, widths, look);
  return out;
}

}  // namespace sublet::cli
