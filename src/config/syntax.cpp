// SPDX-License-Identifier: Apache-2.0
#include "config/syntax.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <system_error>

namespace sublet::config {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto blank = " \t\r";
  const auto first = text.find_first_not_of(blank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(blank) - first + 1);
}

bool in_key(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.'; }

std::string_view key_of(std::string_view line) {
  const auto end = std::find_if_not(line.begin(), line.end(), in_key);
  return line.substr(0, static_cast<std::size_t>(end - line.begin()));
}

std::string quoted(std::string_view value) {
  std::string out;
  for (const char c : value)
    if (c != '"' && c != '\'') out += c;
  return '"' + printable(out) + '"';
}

// Returns the position of the quote that closes `value`. An escaped quote does not close it.
std::size_t closing_quote(std::string_view value) {
  for (std::size_t i = 1; i < value.size(); ++i) {
    if (value[i] == '\\' && value[0] == '"') ++i;
    else if (value[i] == value[0]) return i;
  }
  return std::string_view::npos;
}

// Returns the first escape that TOML does not know, or "".
std::string_view wrong_escape(std::string_view value) {
  for (auto at = value.find('\\'); at < value.size() - 1; at = value.find('\\', at + 2)) {
    const char kind = value[at + 1];
    if (std::string_view("btnfr\"\\").find(kind) != std::string_view::npos) continue;
    const std::size_t digits = kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    const std::string_view code = value.substr(at + 2, digits);
    const auto hex = [](unsigned char c) { return std::isxdigit(c) != 0; };
    if (digits == 0) return value.substr(at, 2);
    if (code.size() < digits || !std::all_of(code.begin(), code.end(), hex)) return value.substr(at, 2 + code.size());
  }
  return {};
}

// For a value in quotes with nothing behind it: the fault is between the quotes.
Complaint about_text(std::string_view name, std::string_view value) {
  const std::string_view inside = value.substr(1, value.size() - 2);
  const std::string_view wrong = value[0] == '"' ? wrong_escape(inside) : std::string_view();
  if (wrong.empty())
    return {fmt::format("{} contains a character that text may not contain", printable(value)), "remove the character"};
  const std::string what = fmt::format("'{}' is not a valid escape in quoted text", printable(wrong));
  if (inside.find('\'') != std::string_view::npos) return {what, "write two backslashes for one backslash"};
  return {what, fmt::format("write {} = '{}': single quotes keep a backslash as it is", name, printable(inside))};
}

// Whether the text is a well-formed number that does not fit into 64 bits.
bool out_of_range(std::string_view bare) {
  std::string digits;
  for (const char c : bare.substr(bare.starts_with('+') ? 1 : 0))
    if (c != '_') digits += c;
  const auto beyond = [&](auto number) {
    const char* last = digits.data() + digits.size();
    const auto [end, error] = std::from_chars(digits.data(), last, number);
    return end == last && error == std::errc::result_out_of_range;
  };
  return beyond(std::int64_t{}) || beyond(double{});
}

Complaint about_value(std::string_view key, std::string_view value) {
  const std::string name = printable(key);
  if (value.empty() || value[0] == '#')
    return {"there is no value after the '='",
            fmt::format("write a value, such as {} = \"10s\", or remove the line", name)};
  if (value.starts_with("\"\"\"") || value.starts_with("'''")) {
    const std::string_view inside = value.substr(3, value.find(value.substr(0, 3), 3) - 3);
    return {"three quotes start text of several lines, which no key takes",
            fmt::format("write {} = {}", name, inside.empty() ? "\"10s\"" : quoted(inside))};
  }
  if (value[0] == '"' || value[0] == '\'') {
    const auto end = closing_quote(value);
    if (end == std::string_view::npos)
      return {fmt::format("the quote of {} is not closed", printable(value)),
              fmt::format("write {} = {}", name, quoted(value))};
    const std::string_view behind = trimmed(value.substr(end + 1));
    if (behind.empty() || behind[0] == '#') return about_text(name, value.substr(0, end + 1));
    return {fmt::format("unexpected '{}' after the value", printable(behind)),
            fmt::format("write {} = {}; a comment begins with '#'", name, printable(value.substr(0, end + 1)))};
  }
  const std::string_view bare = trimmed(value.substr(0, value.find('#')));
  if (out_of_range(bare))
    return {fmt::format("{} is out of range for every key", printable(bare)), "all keys and ranges: man sublet.toml"};
  return {fmt::format("'{}' is neither a number nor true or false, and text needs quotes", printable(bare)),
          fmt::format("write {} = {}", name, quoted(bare))};
}

}  // namespace

std::string_view line_of(std::string_view file, unsigned line) {
  for (; line > 1 && !file.empty(); --line) file.remove_prefix(std::min(file.find('\n'), file.size() - 1) + 1);
  return trimmed(file.substr(0, file.find('\n')));
}

bool lacks_equals(std::string_view line) {
  const std::string_view key = key_of(line);
  if (key.empty() || std::isalpha(static_cast<unsigned char>(key[0])) == 0) return false;
  const std::string_view rest = trimmed(line.substr(key.size()));
  return rest.empty() || (line[key.size()] != '=' && rest[0] != '=');
}

Complaint complaint_about(std::string_view file, unsigned line, bool twice) {
  const std::string_view text = line_of(file, line);
  if (twice) return {"this is defined twice", "remove one of the two"};
  if (text.starts_with('[') && text.find(']') == std::string_view::npos)
    return {"the name of the table is not closed", fmt::format("write {}]", printable(trimmed(text)))};
  if (lacks_equals(text)) {
    const std::string_view key = key_of(text);
    const std::string_view value = trimmed(text.substr(key.size()));
    return {fmt::format("there is no '=' after {}", printable(key)),
            fmt::format("write {} = {}", printable(key), value.empty() ? "\"10s\"" : quoted(value))};
  }
  const std::string_view key = key_of(text);
  const std::string_view rest = trimmed(text.substr(key.size()));
  if (!key.empty() && rest.starts_with('=') && rest.find_first_of("[{") == std::string_view::npos)
    return about_value(key, trimmed(rest.substr(1)));
  return {"this line is neither a table, a key with a value, nor a comment",
          "write a table ([queue]), a key and its value (claim_window = \"10s\") or a comment (# ...)"};
}

}  // namespace sublet::config
