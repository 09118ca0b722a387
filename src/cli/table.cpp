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

constexpr std::size_t shortest_name = 12;
constexpr std::string_view indent = "    ";

// The cells of the columns that are shown: the heading first, if there is one.
struct Table {
  std::vector<const Column*> columns;
  std::vector<std::vector<Cell>> lines;
  std::vector<Cell> below;  // of each line, if the last column was taken out
  bool headed = false;

  std::vector<std::size_t> widths() const {
    std::vector<std::size_t> widths(columns.size(), 0);
    for (const auto& line : lines) {
      for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], display_width(line[i].text));
    }
    return widths;
  }
  std::size_t width() const {
    std::size_t all = 0;
    for (const std::size_t width : widths()) all += width + 2;
    return all - std::min<std::size_t>(all, 2);
  }
  bool plain(std::size_t column) const {
    const auto begin = lines.begin() + (headed ? 1 : 0);
    const std::string_view plain = columns[column]->plain;
    return !plain.empty() &&
           std::all_of(begin, lines.end(), [&](const auto& line) { return line[column].text == plain; });
  }
  void leave_out(std::size_t column) {
    columns.erase(columns.begin() + static_cast<std::ptrdiff_t>(column));
    for (auto& line : lines) line.erase(line.begin() + static_cast<std::ptrdiff_t>(column));
  }
  template <typename Which>
  void leave_out_if(Which which) {
    for (std::size_t i = columns.size(); i-- > 0;)
      if (which(i)) leave_out(i);
  }
};

// In the order of what is missed least.
void make_narrow(Table& table, std::size_t width) {
  if (table.width() > width) table.leave_out_if([&](std::size_t i) { return table.plain(i); });
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    const std::size_t all = table.width();
    if (table.columns[i]->narrow != Narrow::shorten || all <= width) continue;
    const std::size_t now = table.widths()[i];
    const std::size_t left = std::max(shortest_name, now - std::min(now, all - width));
    for (auto& line : table.lines) {
      if (display_width(line[i].text) > left) line[i].text = cut(line[i].text, left);
    }
  }
  if (table.width() <= width || table.columns.empty() || table.columns.back()->narrow != Narrow::below) return;
  for (auto& line : table.lines) table.below.push_back(std::move(line.back()));
  table.leave_out(table.columns.size() - 1);
  if (table.width() > width) table.leave_out_if([&](std::size_t i) { return !table.columns[i]->plain.empty(); });
}

// So many bytes of it, whole characters and at least one, are at most so wide.
std::size_t fitting(std::string_view text, std::size_t width) {
  std::size_t end = 0;
  while (end < text.size()) {
    std::size_t next = end + 1;
    while (next < text.size() && (static_cast<unsigned char>(text[next]) & 0xc0) == 0x80) ++next;
    if (end > 0 && display_width(text.substr(0, next)) > width) break;
    end = next;
  }
  return end;
}

std::string below(const Cell& cell, const Look& look) {
  std::string out;
  if (cell.text == "-") return out;
  const std::string_view before = look.width > 3 * indent.size() ? indent : "";
  for (const std::string& line : wrapped(cell.text, look.width - before.size()))
    out += fmt::format("{}{}\n", before, paint(line, cell.color, look));
  return out;
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

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    std::string word(text.substr(0, text.find(' ')));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (!lines.back().empty() && display_width(lines.back()) + 1 + display_width(word) > width) lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
    while (display_width(lines.back()) > width) {  // one word that is longer than a line
      std::string rest = lines.back().substr(fitting(lines.back(), width));
      if (rest.empty()) break;
      lines.back().resize(lines.back().size() - rest.size());
      lines.push_back(std::move(rest));
    }
  }
  return lines;
}

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
  Table table{*picked, {}, {}, !common.no_header};
  auto& lines = table.lines;
  if (table.headed) {
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
  if (common.columns.empty()) {
    table.leave_out_if([&](std::size_t i) { return table.columns[i]->narrow == Narrow::needless && table.plain(i); });
    if (look.width > 0) make_narrow(table, look.width);
  }
  const auto widths = table.widths();
  std::string out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    out += line_of(lines[i], table.columns, widths, look);
    if (!table.below.empty() && (i > 0 || !table.headed)) out += below(table.below[i], look);
  }
  return out;
}

}  // namespace sublet::cli
