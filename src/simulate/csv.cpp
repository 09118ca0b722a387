// SPDX-License-Identifier: Apache-2.0
#include "simulate/csv.h"

#include "base/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>

namespace sublet::simulate {
namespace {

constexpr Bytes largest_file = GiB;

Error problem_in(const std::string& file, std::size_t line, std::string detail, std::string hint = {}) {
  return {Code::BadRequest, fmt::format("{}:{}: {}", file, line, detail), std::move(hint)};
}

// Nothing if a quotation mark stays open.
std::optional<std::vector<std::string>> split(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '"' && i + 1 < line.size() && line[i + 1] == '"') fields.back() += line[++i];
    else if (c == '"') quoted = !quoted;
    else if (c == ',' && !quoted) fields.emplace_back();
    else fields.back() += c;
  }
  if (quoted) return std::nullopt;
  return fields;
}

std::string_view trimmed(std::string_view name) {
  const auto first = name.find_first_not_of(' ');
  return first == std::string_view::npos ? "" : name.substr(first, name.find_last_not_of(' ') + 1 - first);
}

}  // namespace

bool is_plain_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::optional<std::size_t> CsvRow::find(std::string_view column) const {
  const auto found = std::ranges::find(names_, column);
  if (found == names_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names_.begin());
}

std::string_view CsvRow::text(std::string_view column) const {
  const auto at = find(column);
  return at ? std::string_view(fields_[*at]) : std::string_view();
}

void CsvRow::wrong(std::string_view column, std::string_view problem, std::string hint) {
  if (problem_) return;
  problem_ = problem_in(file_, line_, fmt::format("column '{}': '{}' {}", column, printable(text(column)), problem),
                        std::move(hint));
}

std::int64_t CsvRow::number(std::string_view column, std::int64_t least, std::int64_t most) {
  const std::string_view text = this->text(column);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && end == text.data() + text.size() && !text.empty();
  if (is_number && value >= least && value <= most) return value;
  wrong(column, is_number ? fmt::format("is not between {} and {}", least, most) : "is no whole number");
  return 0;
}

Duration CsvRow::duration(std::string_view column) {
  const std::string_view text = this->text(column);
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  constexpr double most = 100.0 * 366 * 86400;
  if (error == std::errc() && end == text.data() + text.size() && !text.empty()) {
    if (seconds >= 0 && seconds <= most) return Duration(std::llround(seconds * 1e9));
    wrong(column, seconds < 0 ? "is a time that runs backwards" : "is longer than 100 years");
    return {};
  }
  const auto parsed = parse_duration(text);
  if (!parsed) wrong(column, "is no duration", "write seconds, or for example 1h30m");
  return parsed ? *parsed : Duration();
}

Bytes CsvRow::size(std::string_view column) {
  const auto parsed = parse_size(text(column));
  if (!parsed) wrong(column, "is no size", "for example 8GiB");
  else if (*parsed < least_without_unit && is_plain_number(text(column)))
    wrong(column, "has no unit", fmt::format("{0}GiB or {0}MiB; a number alone is in bytes", text(column)));
  return parsed ? *parsed : Bytes();
}

void CsvRow::check_text() {
  for (std::size_t i = 0; i < fields_.size(); ++i)
    if (!is_printable(fields_[i])) wrong(names_[i], "is no text of printable characters", "save the file in UTF-8");
}

std::string_view CsvRow::required(std::string_view column) {
  if (text(column).empty()) wrong(column, "must not be empty");
  return text(column);
}

// Tells a column that is missing, unknown or there twice.
static Status check_names(const std::string& path, const std::vector<std::string>& names,
                          const std::vector<std::string>& columns, const std::vector<std::string_view>& others) {
  for (const std::string& column : columns)
    if (std::ranges::find(names, column) == names.end())
      return problem_in(path, 1,
                        fmt::format("the column '{}' is missing; there are {}", column,
                                    printable(fmt::format("{}", fmt::join(names, ", ")))),
                        fmt::format("needed are {}, with commas between", fmt::join(columns, ", ")));
  std::vector<std::string_view> known(columns.begin(), columns.end());
  known.insert(known.end(), others.begin(), others.end());
  for (const std::string& name : names) {
    if (std::ranges::count(names, name) > 1)
      return problem_in(path, 1, fmt::format("the column '{}' is there twice", printable(name)), "remove one");
    if (!others.empty() && std::ranges::find(known, name) == known.end())
      return problem_in(path, 1,
                        fmt::format("the column '{}' is not known{}", printable(name), did_you_mean(name, known)),
                        fmt::format("known are {}", fmt::join(known, ", ")));
  }
  return {};
}

// A device never ends, and a pipe may have no writer.
static Status check_file(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return {};  // told when it is opened
  if (!S_ISREG(file.st_mode))
    return bad_request(fmt::format("cannot read {}: it is no regular file", path), "write the rows to a file first");
  if (const Bytes size{file.st_size}; size > largest_file)
    return bad_request(fmt::format("cannot read {}: it has {}, and at most {} are read", path, format_size(size),
                                   format_size(largest_file)),
                       "leave out rows");
  return {};
}

Status each_row(const std::string& path, const std::vector<std::string>& columns,
                const std::function<void(CsvRow&)>& row, const std::vector<std::string_view>& others) {
  if (const Status readable = check_file(path); !readable) return readable;
  std::ifstream in(path);
  if (!in) return Error{Code::NotFound, fmt::format("cannot read {}: {}", path, std::strerror(errno)), ""};
  std::string line;
  std::size_t number = 0;
  const auto next = [&] { return ++number, static_cast<bool>(std::getline(in, line)); };
  if (!next()) return problem_in(path, 1, "the file is empty", "the first line has the names of the columns");
  auto names = split(line);
  if (!names) return problem_in(path, 1, "a quotation mark is never closed");
  if (names->front().starts_with("\xEF\xBB\xBF")) names->front().erase(0, 3);
  for (std::string& name : *names) name = std::string(trimmed(name));
  if (const Status good = check_names(path, *names, columns, others); !good) return good;
  CsvRow its(path, *names);
  std::size_t rows = 0;
  while (next()) {
    if (line.empty() || line == "\r") continue;
    auto fields = split(line);
    if (!fields) return problem_in(path, number, "a quotation mark is never closed");
    if (fields->size() != names->size())
      return problem_in(path, number,
                        fmt::format("{} fields, and the first line names {} columns", fields->size(), names->size()),
                        in.eof() ? "the file may have been cut off" : "");
    const bool is_text = is_printable(line);
    its.set(number, std::move(*fields));
    if (!is_text) its.check_text();
    row(its);
    if (its.problem()) return *its.problem();
    ++rows;
  }
  return rows > 0 ? Status() : problem_in(path, number, "there is no row below the names of the columns");
}

}  // namespace sublet::simulate
