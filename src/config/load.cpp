// SPDX-License-Identifier: Apache-2.0
// Turns a file's text into a Config, and reports every error with its line.
#include "base/fd.h"
#include "base/text.h"
#include "config/schema.h"
#include "config/syntax.h"
#include "config/toml.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace sublet::config {

namespace {

constexpr std::size_t largest_file = 4 << 20;  // a larger file is no configuration, but /dev/zero or a wrong path

class Reader {
 public:
  Reader(Loaded& into, const Schema& schema) : into_(into), schema_(schema) {}

  void read(const toml::table& root) {
    for (const auto& [name, node] : root) read_section(std::string(name.str()), name.source(), node);
    check_together();
    std::stable_sort(into_.problems.begin(), into_.problems.end(),
                     [](const Problem& a, const Problem& b) { return a.line < b.line; });
  }

 private:
  void read_section(const std::string& section, const toml::source_region& where, const toml::node& node) {
    if (const List* list = find_list(section); list != nullptr) return read_list(*list, where, node);
    if (const toml::table* inner = node.as_table(); inner != nullptr && known_section(section)) {
      for (const auto& [name, value] : *inner) {
        const std::string full = section + "." + std::string(name.str());
        if (const List* list = find_list(full); list != nullptr) read_list(*list, name.source(), value);
        else read_key(full, name.source(), value);
      }
      return;
    }
    if (known_section(section)) {
      return add(Problem::Kind::bad_value, where, section,
                 node.is_array_of_tables() ? "is a single table, not a list of tables" : "is a table, not a value",
                 fmt::format("write [{}], and its keys below it", section));
    }
    if (const std::string full = key_ending_in(section); !full.empty() && !node.is_table()) {
      return add(Problem::Kind::unknown_key, where, section, fmt::format("unknown key – did you mean '{}'?", full),
                 place_of(full));
    }
    if (!node.is_table()) return unknown(where, section);
    const std::string guess = nearest(section, sections());
    add(Problem::Kind::unknown_key, where, section,
        "unknown table" + (guess.empty() ? std::string() : fmt::format(" – did you mean '{}'?", guess)),
        guess.empty() ? "all tables and keys: man sublet.toml" : fmt::format("write [{}]", guess));
  }

  void read_key(const std::string& name, const toml::source_region& where, const toml::node& node) {
    const auto key = std::find_if(schema_.keys.begin(), schema_.keys.end(),
                                  [&](const Key& candidate) { return candidate.name == name; });
    if (key == schema_.keys.end()) return unknown(where, name);
    const auto text = text_of(type_name(*key), "the default is " + default_text(*key), node);
    if (!text) return add(Problem::Kind::bad_value, node.source(), name, text.error().detail, text.error().hint);
    if (const Status set = set_value(*key, *text, into_.config); !set) {
      return add(Problem::Kind::bad_value, node.source(), name, set.error().detail, set.error().hint);
    }
    into_.lines[name] = where.begin.line;
  }

  // Each [[list]] in the file becomes a row of the Config, also a table with a problem.
  void read_list(const List& list, const toml::source_region& where, const toml::node& node) {
    const std::string name(list.name);
    const std::string hint = fmt::format("write [[{}]] and the keys of one table below", name);
    const toml::array* tables = node.as_array();
    if (tables == nullptr) {
      return add(Problem::Kind::bad_value, where, name,
                 fmt::format("is a list of tables, not {}", node.is_table() ? "one table" : kind_of(node)), hint);
    }
    std::map<std::string, unsigned> taken;  // line of each value of the unique field
    for (const toml::node& entry : *tables) {
      if (const toml::table* table = entry.as_table(); table != nullptr) read_row(list, *table, taken);
      else add(Problem::Kind::bad_value, entry.source(), name, fmt::format("has {} in the list", kind_of(entry)), hint);
    }
  }

  void read_row(const List& list, const toml::table& table, std::map<std::string, unsigned>& taken) {
    const std::string row_name = fmt::format("{}[{}]", list.name, list.rows.count(into_.config));
    void* row = list.rows.add(into_.config);
    into_.row_lines[row_name] = table.source().begin.line;
    for (const auto& [name, value] : table) {
      const auto field = std::find_if(list.fields.begin(), list.fields.end(),
                                      [&](const Field& candidate) { return candidate.name == name.str(); });
      if (field == list.fields.end()) {
        unknown_field(list, name.source(), std::string(name.str()));
        continue;
      }
      if (!read_field(list, *field, value, row)) continue;
      into_.row_lines[fmt::format("{}.{}", row_name, field->name)] = name.source().begin.line;
      if (field->name != list.unique) continue;
      const std::string text = value_text(*field, row);
      const auto [first, is_new] = taken.emplace(text, value.source().begin.line);
      if (is_new) continue;
      add(Problem::Kind::bad_value, value.source(), full_name(list, field->name),
          fmt::format("{} is also the {} of the table on line {}", text, field->name, first->second),
          "write another value or remove one of the two tables");
    }
    for (const Field& field : list.fields) {
      if (!field.required || table.contains(field.name)) continue;
      add(Problem::Kind::bad_value, table.source(), full_name(list, field.name), "is missing in this table",
          fmt::format("write {} = {}", field.name, example_of(field)));
    }
  }

  bool read_field(const List& list, const Field& field, const toml::node& node, void* row) {
    const std::string fallback = default_text(list, field);
    const std::string hint =
        field.required ? fmt::format("write {} = {}", field.name, example_of(field)) : "the default is " + fallback;
    const auto text = text_of(type_name(field), hint, node);
    const Status set = text ? set_value(list, field, *text, row) : Status(text.error());
    if (set) return true;
    add(Problem::Kind::bad_value, node.source(), full_name(list, field.name), set.error().detail, set.error().hint);
    return false;
  }

  void unknown_field(const List& list, const toml::source_region& where, const std::string& name) {
    std::vector<std::string_view> names;
    for (const Field& field : list.fields) names.push_back(field.name);
    const std::string guess = nearest(name, names);
    add(Problem::Kind::unknown_key, where, full_name(list, name),
        guess.empty() ? std::string("unknown key") : fmt::format("unknown key – did you mean '{}'?", guess),
        fmt::format("the keys of [[{}]] are {}", list.name, fmt::join(names, ", ")));
  }

  static std::string full_name(const List& list, std::string_view field) {
    return fmt::format("{}.{}", list.name, field);
  }

  // A value that the field takes, as it stands in a file.
  static std::string example_of(const Field& field) {
    if (type_name(field) == "name") return "\"NAME\"";
    if (type_name(field) == "path") return "\"/PATH\"";
    if (type_name(field) == "address") return "\"127.0.0.1:PORT\"";
    if (type_name(field) == "URL") return "\"https://HOST/PATH\"";
    if (type_name(field) == "text" || type_name(field) == "secret") return "\"TEXT\"";
    if (type_name(field) == "true or false") return "true";
    const bool number = type_name(field) == "integer" || type_name(field) == "number";
    return number ? std::string(field.maximum) : fmt::format("\"{}\"", field.maximum);
  }

  const List* find_list(std::string_view name) const {
    const auto found =
        std::find_if(schema_.lists.begin(), schema_.lists.end(), [&](const List& list) { return list.name == name; });
    return found == schema_.lists.end() ? nullptr : &*found;
  }

  // One account or word in each line.
  static Result<std::string> list_of(std::string_view type, const std::string& hint, const toml::node& node) {
    const toml::array* list = node.as_array();
    if (list == nullptr) return bad_request(fmt::format("is {}, not a {}", kind_of(node), type), hint);
    std::string all;
    for (const toml::node& each : *list) {
      const auto* text = each.as_string();
      if (text == nullptr || text->get().find_first_of("\n[") != std::string::npos || text->get().empty())
        return bad_request("has a value in the list that is not a name", hint);
      all += text->get() + "\n";
    }
    return all;
  }

  // Returns the value as text for set_value(), if the file's type is `type`. `hint` says what to write instead.
  static Result<std::string> text_of(std::string_view type, const std::string& hint, const toml::node& node) {
    if (type.starts_with("list of ")) return list_of(type, hint, node);
    if (const auto* number = node.as_integer(); number != nullptr) {
      if (type == "integer" || type == "number") return fmt::format("{}", number->get());
      if (type == "duration" || type == "size") {
        return bad_request(fmt::format("{} has no unit", number->get()),
                           type == "duration" ? fmt::format("write a duration with its unit: \"{}s\"", number->get())
                                              : fmt::format("write a size with its unit: \"{}MiB\"", number->get()));
      }
    }
    if (const auto* number = node.as_floating_point(); number != nullptr && type == "number") {
      return fmt::format("{}", number->get());
    }
    if (const auto* truth = node.as_boolean(); truth != nullptr && type == "true or false") {
      return std::string(truth->get() ? "true" : "false");
    }
    if (const auto* text = node.as_string();
        text != nullptr && type != "true or false" && type != "integer" && type != "number") {
      return std::string(text->get());
    }
    const bool vowel = type == "integer" || type == "address";
    const std::string_view article = type == "true or false" ? "" : vowel ? "an " : "a ";
    return bad_request(fmt::format("is {}, not {}{}", kind_of(node), article, type), hint);
  }

  static std::string_view kind_of(const toml::node& node) {
    switch (node.type()) {
      case toml::node_type::table: return "a table";
      case toml::node_type::array: return "a list";
      case toml::node_type::string: return "text";
      case toml::node_type::integer:
      case toml::node_type::floating_point: return "a number";
      case toml::node_type::boolean: return "true or false";
      default: return "a date or time";
    }
  }

  // Checks values against each other: a snapshot must not be too old before the next one is due.
  void check_together() {
    const Config::Gpu& gpu = into_.config.gpu;
    const auto conflict = [&](const char* key, const char* other, std::string text) {
      const auto line = [&](const char* name) { return into_.lines.contains(name) ? into_.lines[name] : 0; };
      const char* blamed = line(key) != 0 ? key : other;  // the key of the two that the file sets
      if (line(blamed) == 0) return;
      const std::string_view theirs = blamed == std::string_view(key) ? other : key;
      into_.problems.push_back({Problem::Kind::bad_value, into_.file, line(blamed), 1, blamed, std::move(text),
                                fmt::format("set {} to match", theirs)});
    };
    if (gpu.interval_busy > gpu.interval_idle) {
      conflict("gpu.interval_busy", "gpu.interval_idle",
               fmt::format("gpu.interval_busy ({}) is more than gpu.interval_idle ({})",
                           format_duration(gpu.interval_busy), format_duration(gpu.interval_idle)));
    }
    if (gpu.max_age <= gpu.interval_idle) {
      conflict("gpu.max_age", "gpu.interval_idle",
               fmt::format("gpu.max_age ({}) must be more than gpu.interval_idle ({}): otherwise every reading expires "
                           "before the next one",
                           format_duration(gpu.max_age), format_duration(gpu.interval_idle)));
    }
  }

  void unknown(const toml::source_region& where, const std::string& name) {
    for (const LaterKey& later : later_keys()) {
      if (later.name == name) {
        return add(Problem::Kind::not_supported, where, name,
                   fmt::format("not supported by this version, which lacks {}", later.feature), "remove the line");
      }
    }
    std::vector<std::string_view> names;
    for (const Key& key : schema_.keys) names.push_back(key.name);
    for (const List& list : schema_.lists) names.push_back(list.name);
    std::string guess = key_ending_in(name.substr(name.find('.') + 1));
    if (guess.empty()) guess = nearest(name, names);
    if (guess.empty()) return add(Problem::Kind::unknown_key, where, name, "unknown key", "all keys: man sublet.toml");
    add(Problem::Kind::unknown_key, where, name, fmt::format("unknown key – did you mean '{}'?", guess),
        place_of(guess));
  }

  std::string place_of(std::string_view key) const {
    if (find_list(key) != nullptr) return fmt::format("write [[{}]]", key);
    const auto dot = key.find('.');
    return fmt::format("write {} below [{}]", key.substr(dot + 1), key.substr(0, dot));
  }

  std::string key_ending_in(std::string_view last_part) const {
    const auto ends_so = [&](std::string_view name) { return name.substr(name.find('.') + 1) == last_part; };
    for (const Key& key : schema_.keys)
      if (ends_so(key.name)) return std::string(key.name);
    for (const List& list : schema_.lists)
      if (ends_so(list.name)) return std::string(list.name);
    return {};
  }

  std::vector<std::string_view> sections() const {
    std::vector<std::string_view> names;
    const auto take = [&](std::string_view key) { names.push_back(key.substr(0, key.find('.'))); };
    for (const Key& key : schema_.keys) take(key.name);
    for (const List& list : schema_.lists) take(list.name);
    for (const LaterKey& key : later_keys()) take(key.name);
    return names;
  }
  bool known_section(std::string_view name) const {
    const auto names = sections();
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  void add(Problem::Kind kind, const toml::source_region& where, const std::string& key, std::string text,
           std::string hint) {
    into_.problems.push_back(
        {kind, into_.file, where.begin.line, where.begin.column, printable(key), std::move(text), std::move(hint)});
  }

  Loaded& into_;
  const Schema& schema_;
};

Problem unreadable(const std::string& file, std::string why) {
  return {Problem::Kind::unreadable,           file, 0, 0, {}, "cannot be read: " + std::move(why),
          "check the file and its permissions"};
}

std::string reason(int errnum) { return std::generic_category().message(errnum); }

// Returns the whole file, or the reason why not. The type is checked after the file is open, so that a pipe or a
// directory cannot take its place.
Result<std::string> read_all(const std::string& file, bool& missing) {
  const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd) {
    const int error = errno;
    // A link without a target is an error, because its author meant a file.
    missing = error == ENOENT && ::lstat(file.c_str(), &info) != 0;
    return unavailable(reason(error));
  }
  if (::fstat(fd.get(), &info) != 0) return unavailable(reason(errno));
  if (!S_ISREG(info.st_mode)) return unavailable("not a regular file");
  std::string text;
  char buffer[4096];
  while (text.size() <= largest_file) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unavailable(reason(errno));
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  return unavailable("larger than 4 MiB");
}

}  // namespace

std::string without_hint(const Problem& problem) {
  std::string out = printable(problem.file);
  if (problem.line != 0) out += fmt::format(":{}:{}", problem.line, problem.column);
  out += ": ";
  if (!problem.key.empty()) out += problem.key + ": ";
  return out + problem.text;
}

std::string place_of(const Loaded& loaded, const std::string& entry) {
  const auto line = loaded.row_lines.find(entry);
  return printable(loaded.file) + (line == loaded.row_lines.end() ? "" : fmt::format(":{}", line->second));
}

std::string to_string(const Problem& problem) {
  return without_hint(problem) + (problem.hint.empty() ? "" : fmt::format(" ({})", problem.hint));
}

namespace {

// Whether a string may begin after `before`. `many_lines`: the string may span lines.
bool may_begin_string(std::string_view before, bool many_lines) {
  const auto last = before.find_last_not_of(" \t\r");
  // A multi-line string is never a key. It may be an element of a list, but no value of ours is a list.
  if (many_lines) return last != std::string_view::npos && before[last] == '=';
  if (last == std::string_view::npos) return true;
  if (before[last] != '.') return std::string_view("=[,{\n").find(before[last]) != std::string_view::npos;
  // A key in parts: a.'b'. A number with a dot ends before the quote, and the parser would read on as if it did not.
  const auto outside = before.find_last_of(" \t\r\n=[,{\"'", last);
  const char first = before[outside == std::string_view::npos ? 0 : outside + 1];
  return first != '+' && first != '-' && (first < '0' || first > '9');
}

// Returns the place of the first character that TOML does not allow there, or npos. Outside of strings and comments,
// TOML allows only ASCII without control characters, and quotes only where a value or key begins. The parser's tables
// are undefined for some other characters.
std::size_t first_stray(std::string_view text) {
  const std::size_t start = text.starts_with("\xef\xbb\xbf") ? 3 : 0;
  std::size_t at = start;
  while (at < text.size()) {
    const auto c = static_cast<signed char>(text[at]);  // negative: not ASCII
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '"' || c == '\'') {
      const bool lines = text.substr(at, 3) == std::string(3, text[at]);
      if (!may_begin_string(text.substr(start, at - start), lines)) return at;
      const std::string_view quote = text.substr(at, lines ? 3 : 1);
      at += quote.size();
      while (at < text.size() && text.substr(at, quote.size()) != quote && (lines || text[at] != '\n')) {
        at += c == '"' && text[at] == '\\' ? 2 : 1;
      }
      at = std::min(at + quote.size(), text.size());
    } else if ((c < ' ' && c != '\t' && c != '\n' && c != '\r') || c == '\x7f') {
      return at;
    } else {
      ++at;
    }
  }
  return std::string_view::npos;
}

Problem stray_problem(std::string_view text, std::size_t at, const std::string& file) {
  const std::string_view before = text.substr(0, at);
  const auto line = static_cast<unsigned>(1 + std::count(before.begin(), before.end(), '\n'));
  const auto column = static_cast<unsigned>(at - (before.rfind('\n') + 1) + 1);
  if (lacks_equals(line_of(text, line))) {
    Complaint complaint = complaint_about(text, line, false);
    return {Problem::Kind::syntax, file, line, column, {}, std::move(complaint.text), std::move(complaint.hint)};
  }
  const std::string_view rest = text.substr(at, 4);
  return {Problem::Kind::syntax,
          file,
          line,
          column,
          {},
          fmt::format("'{}' is not allowed here", printable(rest.substr(0, rest.find_first_of(" \n")))),
          "put text into quotes"};
}

bool breaks(std::string_view text) try {
  (void)toml::parse(text);
  return false;
} catch (const Broken&) {
  return true;
}

// Returns the line that breaks the parser: the parser fails with this line, and not with only the lines before it.
unsigned broken_line(std::string_view text) {
  std::vector<std::size_t> ends;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', end + 1))
    ends.push_back(end);
  const auto line = std::partition_point(ends.begin(), ends.end(),
                                         [text](std::size_t end) { return !breaks(text.substr(0, end + 1)); });
  return static_cast<unsigned>(line - ends.begin()) + 1;
}

}  // namespace

Loaded parse(std::string_view text, const std::string& file_name) { return parse(text, file_name, schema()); }

Loaded parse(std::string_view text, const std::string& file_name, const Schema& schema) try {
  Loaded loaded;
  loaded.file = file_name;
  loaded.file_exists = true;
  if (const std::size_t stray = first_stray(text); stray != std::string_view::npos) {
    loaded.problems.push_back(stray_problem(text, stray, file_name));
    return loaded;
  }
  const toml::parse_result result = toml::parse(text);
  if (result) {
    Reader(loaded, schema).read(result.table());
    return loaded;
  }
  const toml::parse_error& error = result.error();
  const auto& at = error.source().begin;
  // The parser's text describes the parser. Only a redefinition is of use to the user.
  const bool twice = error.description().find("redefine") != std::string_view::npos;
  Complaint complaint = complaint_about(text, at.line, twice);
  loaded.problems.push_back(
      {Problem::Kind::syntax, file_name, at.line, at.column, {}, std::move(complaint.text), std::move(complaint.hint)});
  return loaded;
} catch (const Broken&) {
  Loaded loaded;
  loaded.file = file_name;
  loaded.file_exists = true;
  const unsigned line = broken_line(text);
  Complaint complaint = complaint_about(text, line, false);
  loaded.problems.push_back(
      {Problem::Kind::syntax, file_name, line, 1, {}, std::move(complaint.text), std::move(complaint.hint)});
  return loaded;
}

static Loaded load(const std::filesystem::path& file, const Schema& schema) {
  bool missing = false;
  const auto text = read_all(file.string(), missing);
  if (text) return parse(*text, file.string(), schema);
  Loaded loaded;
  loaded.file = file.string();
  loaded.file_exists = !missing;
  if (!missing) loaded.problems.push_back(unreadable(loaded.file, text.error().detail));
  return loaded;
}

Loaded load(const std::filesystem::path& file) { return load(file, schema()); }

Loaded load_named(const std::filesystem::path& file) { return load_named(file, schema()); }

Loaded load_named(const std::filesystem::path& file, const Schema& schema) {
  Loaded loaded = load(file, schema);
  if (!loaded.file_exists && loaded.problems.empty())
    loaded.problems.push_back(
        {Problem::Kind::unreadable, loaded.file, 0, 0, {}, "no such file", "name an existing file"});
  return loaded;
}

Error to_error(const std::vector<Problem>& problems) {
  const std::string file = problems.empty() ? "" : printable(problems.front().file);
  return to_error(problems, "list all problems: sublet config check --file " + file);
}

Error to_error(const std::vector<Problem>& problems, std::string hint) {
  std::string detail = problems.empty() ? "" : to_string(problems.front());
  if (problems.size() > 1) detail += fmt::format("; and {} more", problems.size() - 1);
  return bad_request(std::move(detail), std::move(hint));
}

}  // namespace sublet::config
