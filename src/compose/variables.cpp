// SPDX-License-Identifier: Apache-2.0
#include "compose/variables.h"

#include <algorithm>
#include <cctype>

namespace sublet::compose {
namespace {

constexpr int most_nested = 10;
constexpr std::string_view blank = " \t\r";

bool is_first(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool is_name(char c) { return is_first(c) || std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::string_view trimmed(std::string_view text) {
  const auto begin = std::min(text.find_first_not_of(blank), text.size());
  const auto end = text.find_last_not_of(blank);
  return end == text.npos ? std::string_view() : text.substr(begin, end + 1 - begin);
}

std::size_t name_length(std::string_view text) {
  if (text.empty() || !is_first(text[0])) return 0;
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_name) - text.begin());
}

// A variable as it is used: unset, of a known value, or nothing for a value that cannot be known.
struct Found {
  bool is_set = false;
  std::string value;
};

std::optional<Found> look_up(std::string_view name, const Variables& variables) {
  const auto found = variables.values.find(std::string(name));
  if (found == variables.values.end()) return variables.complete ? std::optional(Found()) : std::nullopt;
  if (!found->second) return std::nullopt;
  return Found{true, *found->second};
}

// Without its quotes, or without a comment behind it; its variables are not replaced yet. Nothing: the versions of
// Compose do not agree on it.
std::optional<std::string_view> value_of(std::string_view text) {
  if (text.find('\\') != text.npos || text.find("\t#") != text.npos) return std::nullopt;
  if (!text.empty() && (text[0] == '"' || text[0] == '\'')) {
    const auto end = text.find(text[0], 1);
    if (end == text.npos) return std::nullopt;
    const std::string_view behind = text.substr(end + 1), value = text.substr(1, end - 1);
    if (!trimmed(behind).empty() && !behind.starts_with(" #")) return std::nullopt;
    if (text[0] == '\'' && value.find('$') != value.npos) return std::nullopt;
    return value;
  }
  if (text.starts_with('#')) return std::nullopt;
  text = trimmed(text.substr(0, text.find(" #")));
  return text.find_first_of("\"'") == text.npos ? std::optional(text) : std::nullopt;
}

// Compose 1 knows only ${NAME} and ${NAME:-VALUE} here.
bool has_simple_forms(std::string_view value) {
  for (auto at = value.find('$'); at != value.npos; at = value.find('$', at + 1)) {
    const std::string_view rest = value.substr(at + 1);
    if (!rest.starts_with('{')) return false;
    const std::string_view behind = rest.substr(1 + name_length(rest.substr(1)));
    if (behind.starts_with('}')) continue;
    if (!behind.starts_with(":-") || behind.substr(0, behind.find('}')).find('$') != behind.npos) return false;
  }
  return true;
}

std::optional<std::string> replace_all(std::string_view text, const Variables& variables, int depth);

// `body` is what stands between the braces.
std::optional<std::string> replace_braced(std::string_view body, const Variables& variables, int depth) {
  const std::size_t length = name_length(body);
  if (length == 0) return std::nullopt;
  const auto found = look_up(body.substr(0, length), variables);
  if (!found) return std::nullopt;
  const std::string& value = found->value;
  std::string_view rest = body.substr(length);
  if (rest.empty()) return value;
  const bool or_empty = rest[0] == ':';
  if (or_empty) rest.remove_prefix(1);
  const bool is_set = found->is_set && !(or_empty && value.empty());
  if (rest.empty()) return std::nullopt;
  const char form = rest[0];
  rest.remove_prefix(1);
  if (form == '-') return is_set ? value : replace_all(rest, variables, depth);
  if (form == '+') return is_set ? replace_all(rest, variables, depth) : std::optional<std::string>("");
  if (form == '?') return value;  // Compose itself refuses a file without the variable
  return std::nullopt;
}

// The place behind the brace that closes the one before `text`.
std::size_t closing_brace(std::string_view text) {
  int open = 1;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '{') ++open;
    if (text[at] == '}' && --open == 0) return at;
  }
  return text.npos;
}

std::optional<std::string> replace_all(std::string_view text, const Variables& variables, int depth) {
  if (depth > most_nested) return std::nullopt;
  std::string out;
  while (!text.empty()) {
    const auto dollar = std::min(text.find('$'), text.size());
    out += text.substr(0, dollar);
    text.remove_prefix(dollar);
    if (text.empty()) break;
    text.remove_prefix(1);
    if (text.empty()) return std::nullopt;
    if (text[0] == '$') {
      out += '$';
      text.remove_prefix(1);
    } else if (text[0] == '{') {
      text.remove_prefix(1);
      const auto end = closing_brace(text);
      if (end == text.npos) return std::nullopt;
      const auto value = replace_braced(text.substr(0, end), variables, depth + 1);
      if (!value) return std::nullopt;
      out += *value;
      text.remove_prefix(end + 1);
    } else {
      const std::size_t length = name_length(text);
      if (length == 0) return std::nullopt;
      const auto found = look_up(text.substr(0, length), variables);
      if (!found) return std::nullopt;
      out += found->value;
      text.remove_prefix(length);
    }
  }
  return out;
}

bool is_key(char c) { return is_name(c) || c == '.' || c == '-'; }

void parse_line(std::string_view line, const Variables& outer, Variables& own) {
  if (line.empty() || line[0] == '#') return;
  if (line.starts_with("export ") || line.starts_with("export\t")) line = trimmed(line.substr(7));
  const auto length = static_cast<std::size_t>(std::find_if_not(line.begin(), line.end(), is_key) - line.begin());
  const std::string name(line.substr(0, length));
  const std::string_view rest = trimmed(line.substr(length));
  if (length > 0 && rest.empty()) return;  // it stands for the variable of that name in `outer`
  std::optional<std::string_view> value;
  if (length > 0 && rest.starts_with('=') && rest.find('\r') == rest.npos) value = value_of(trimmed(rest.substr(1)));
  // A value that is not understood may go on in the next lines.
  if (!value && (length == 0 || rest.find_first_of("\"'\\\r") != rest.npos)) own.complete = false;
  if (length == 0) return;
  Variables known = outer;
  for (const auto& [key, text] : own.values) {  // the versions differ in which of two wins
    const auto [at, is_new] = known.values.emplace(key, text);
    if (!is_new && at->second != text) at->second.reset();
  }
  known.complete = outer.complete && own.complete;
  own.values[name] = value && has_simple_forms(*value) ? interpolate(*value, known) : std::nullopt;
}

}  // namespace

void Variables::merge(const Variables& other) {
  if (complete) values.insert(other.values.begin(), other.values.end());
  else
    for (const auto& [name, value] : other.values) values.emplace(name, std::nullopt);
  complete = complete && other.complete;
}

void parse_variables(std::string_view text, const Variables& outer, Variables& own) {
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    parse_line(trimmed(text.substr(0, end)), outer, own);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (own.complete) return;
  for (auto& [name, value] : own.values) value.reset();
}

std::optional<std::string> interpolate(std::string_view text, const Variables& variables) {
  return replace_all(text, variables, 0);
}

}  // namespace sublet::compose
