// SPDX-License-Identifier: Apache-2.0
// From a file's text to a Config, with every error at its line.
#include "base/fd.h"
#include "base/text.h"
#include "config/schema.h"

#include <fmt/format.h>

// The parser asserts what a file may break ("[{"); a broken file must be a problem with a line, not our end.
#define TOML_ASSERT(condition) (static_cast<bool>(condition) ? void() : throw sublet::config::Broken())
namespace sublet::config {
struct Broken {};
}  // namespace sublet::config
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wterminate"  // in its accessors, where a failed assertion is our bug
#endif
#include <toml++/toml.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace sublet::config {

namespace {

constexpr std::size_t largest_file = 1 << 20;  // more is not a configuration: /dev/zero, a wrong path

class Reader {
 public:
  explicit Reader(Loaded& into) : into_(into) {}

  void read(const toml::table& root) {
    for (const auto& [name, node] : root) read_section(std::string(name.str()), name.source(), node);
    check_together();
    std::stable_sort(into_.problems.begin(), into_.problems.end(),
                     [](const Problem& a, const Problem& b) { return a.line < b.line; });
  }

 private:
  void read_section(const std::string& section, const toml::source_region& where, const toml::node& node) {
    if (const toml::table* inner = node.as_table(); inner != nullptr && known_section(section)) {
      for (const auto& [name, value] : *inner) read_key(section + "." + std::string(name.str()), name.source(), value);
      return;
    }
    if (known_section(section)) {
      return add(Problem::Kind::bad_value, where, section, "is a table, not a value",
                 fmt::format("write [{}] and its keys below", section));
    }
    if (const std::string full = key_ending_in(section); !full.empty() && !node.is_table()) {
      return add(Problem::Kind::unknown_key, where, section, fmt::format("unknown key – did you mean '{}'?", full));
    }
    if (!node.is_table()) return unknown(where, section);
    add(Problem::Kind::unknown_key, where, section, "unknown table" + did_you_mean(section, sections()));
  }

  void read_key(const std::string& name, const toml::source_region& where, const toml::node& node) {
    const Key* key = find(name);
    if (key == nullptr) return unknown(where, name);
    const auto text = text_of(*key, node);
    if (!text) return add(Problem::Kind::bad_value, node.source(), name, text.error().detail, text.error().hint);
    if (const Status set = set_value(*key, *text, into_.config); !set) {
      return add(Problem::Kind::bad_value, node.source(), name, set.error().detail, set.error().hint);
    }
    into_.lines[name] = where.begin.line;
  }

  // The value as set_value reads it, if the file's type is the key's.
  static Result<std::string> text_of(const Key& key, const toml::node& node) {
    const std::string_view type = type_name(key);
    if (const auto* number = node.as_integer(); number != nullptr) {
      if (type == "integer" || type == "number") return fmt::format("{}", number->get());
      if (type == "duration" || type == "size") {
        return bad_request(fmt::format("{} is a bare number", number->get()),
                           type == "duration" ? fmt::format("write a duration with its unit: \"{}s\"", number->get())
                                              : fmt::format("write a size with its unit: \"{}MiB\"", number->get()));
      }
    }
    if (const auto* number = node.as_floating_point(); number != nullptr && type == "number") {
      return fmt::format("{}", number->get());
    }
    if (const auto* text = node.as_string(); text != nullptr && type != "integer" && type != "number") {
      return std::string(text->get());
    }
    return bad_request(fmt::format("is {}, not {} {}", kind_of(node), type == "integer" ? "an" : "a", type),
                       "the default is " + default_text(key));
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

  // What no single key can tell: a snapshot must not be too old before the next one is due.
  void check_together() {
    const Config::Gpu& gpu = into_.config.gpu;
    const auto conflict = [&](const char* key, const char* other, std::string text) {
      const auto line = [&](const char* name) { return into_.lines.contains(name) ? into_.lines[name] : 0; };
      const char* blamed = line(key) != 0 ? key : other;  // the one that the file sets
      if (line(blamed) == 0) return;
      into_.problems.push_back({Problem::Kind::bad_value, into_.file, line(blamed), 1, blamed, std::move(text), {}});
    };
    if (gpu.interval_busy > gpu.interval_idle) {
      conflict("gpu.interval_busy", "gpu.interval_idle",
               fmt::format("gpu.interval_busy ({}) is more than gpu.interval_idle ({})",
                           format_duration(gpu.interval_busy), format_duration(gpu.interval_idle)));
    }
    if (gpu.max_age <= gpu.interval_idle) {
      conflict("gpu.max_age", "gpu.interval_idle",
               fmt::format("gpu.max_age ({}) is not more than gpu.interval_idle ({}): between two looks at the GPUs "
                           "nothing would be known",
                           format_duration(gpu.max_age), format_duration(gpu.interval_idle)));
    }
  }

  void unknown(const toml::source_region& where, const std::string& name) {
    for (const LaterKey& later : later_keys()) {
      if (later.name == name) {
        return add(Problem::Kind::not_supported, where, name,
                   fmt::format("not supported by this version: {} comes later", later.feature), "remove the line");
      }
    }
    std::vector<std::string_view> names;
    for (const Key& key : keys()) names.push_back(key.name);
    std::string guess = did_you_mean(name, names);
    const std::string full = key_ending_in(name.substr(name.find('.') + 1));
    if (!full.empty()) guess = fmt::format(" – did you mean '{}'?", full);
    add(Problem::Kind::unknown_key, where, name, "unknown key" + guess,
        guess.empty() ? "all keys: sublet config show" : "");
  }

  static std::string key_ending_in(std::string_view last_part) {
    for (const Key& key : keys()) {
      if (key.name.substr(key.name.find('.') + 1) == last_part) return std::string(key.name);
    }
    return {};
  }

  static std::vector<std::string_view> sections() {
    std::vector<std::string_view> names;
    const auto take = [&](std::string_view key) { names.push_back(key.substr(0, key.find('.'))); };
    for (const Key& key : keys()) take(key.name);
    for (const LaterKey& key : later_keys()) take(key.name);
    return names;
  }
  static bool known_section(std::string_view name) {
    const auto names = sections();
    return std::find(names.begin(), names.end(), name) != names.end();
  }

  void add(Problem::Kind kind, const toml::source_region& where, const std::string& key, std::string text,
           std::string hint = {}) {
    into_.problems.push_back(
        {kind, into_.file, where.begin.line, where.begin.column, printable(key), std::move(text), std::move(hint)});
  }

  Loaded& into_;
};

Problem unreadable(const std::string& file, std::string why) {
  return {Problem::Kind::unreadable, file, 0, 0, {}, "cannot be read: " + std::move(why), {}};
}

std::string reason(int errnum) { return std::generic_category().message(errnum); }

// The whole file, or why not. Opened first and asked afterwards, so that a pipe or a directory cannot slip in.
Result<std::string> read_all(const std::string& file, bool& missing) {
  const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!fd) {
    const int error = errno;
    // A link that leads nowhere was meant to lead somewhere: not the same as no file.
    missing = error == ENOENT && ::lstat(file.c_str(), &info) != 0;
    return unavailable(reason(error));
  }
  if (::fstat(fd.get(), &info) != 0) return unavailable(reason(errno));
  if (!S_ISREG(info.st_mode)) return unavailable("it is not a file");
  std::string text;
  char buffer[4096];
  while (text.size() <= largest_file) {
    const ssize_t got = ::read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unavailable(reason(errno));
    if (got == 0) return text;
    text.append(buffer, static_cast<std::size_t>(got));
  }
  return unavailable("it is larger than 1 MiB");
}

}  // namespace

std::string to_string(const Problem& problem) {
  std::string out = printable(problem.file);
  if (problem.line != 0) out += fmt::format(":{}:{}", problem.line, problem.column);
  out += ": ";
  if (!problem.key.empty()) out += problem.key + ": ";
  out += problem.text;
  if (!problem.hint.empty()) out += fmt::format(" ({})", problem.hint);
  return out;
}

namespace {

// Whether a string may begin after what stands before it on its line.
bool may_begin_string(std::string_view before) {
  const auto last = before.find_last_not_of(" \t\r");
  if (last == std::string_view::npos) return true;
  if (before[last] != '.') return std::string_view("=[,{\n").find(before[last]) != std::string_view::npos;
  // A key in parts: a.'b'. A number with a dot ends in no string, and the parser would read on as if it did not end.
  const auto outside = before.find_last_of(" \t\r\n=[,{\"'", last);
  const char first = before[outside == std::string_view::npos ? 0 : outside + 1];
  return first != '+' && first != '-' && (first < '0' || first > '9');
}

// The place of the first character that TOML does not allow where it stands: outside of strings and comments only ASCII
// without controls, and quotes only where a value or key begins. npos if there is none. The parser's tables are
// undefined for some of them.
std::size_t first_stray(std::string_view text) {
  const std::size_t start = text.starts_with("\xef\xbb\xbf") ? 3 : 0;
  std::size_t at = start;
  while (at < text.size()) {
    const auto c = static_cast<signed char>(text[at]);  // negative: not ASCII
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
    } else if (c == '"' || c == '\'') {
      if (!may_begin_string(text.substr(start, at - start))) return at;
      const bool lines = text.substr(at, 3) == std::string(3, text[at]);
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
  const std::string_view rest = text.substr(at, 4);
  return {
      Problem::Kind::syntax,
      file,
      line,
      column,
      {},
      fmt::format("'{}' cannot stand here: put text into quotes", printable(rest.substr(0, rest.find_first_of(" \n")))),
      {}};
}

bool breaks(std::string_view text) try {
  (void)toml::parse(text);
  return false;
} catch (const Broken&) {
  return true;
}

// The line that breaks the parser: the first without which what stands before it does not.
unsigned broken_line(std::string_view text) {
  std::vector<std::size_t> ends;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', end + 1))
    ends.push_back(end);
  const auto line = std::partition_point(ends.begin(), ends.end(),
                                         [text](std::size_t end) { return !breaks(text.substr(0, end + 1)); });
  return static_cast<unsigned>(line - ends.begin()) + 1;
}

}  // namespace

Loaded parse(std::string_view text, const std::string& file_name) try {
  Loaded loaded;
  loaded.file = file_name;
  loaded.file_exists = true;
  if (const std::size_t stray = first_stray(text); stray != std::string_view::npos) {
    loaded.problems.push_back(stray_problem(text, stray, file_name));
    return loaded;
  }
  const toml::parse_result result = toml::parse(text);
  if (result) {
    Reader(loaded).read(result.table());
    return loaded;
  }
  const toml::parse_error& error = result.error();
  loaded.problems.push_back({Problem::Kind::syntax,
                             file_name,
                             error.source().begin.line,
                             error.source().begin.column,
                             {},
                             printable(error.description()),
                             {}});
  return loaded;
} catch (const Broken&) {
  Loaded loaded;
  loaded.file = file_name;
  loaded.file_exists = true;
  loaded.problems.push_back({Problem::Kind::syntax, file_name, broken_line(text), 1, {}, "this line is not TOML", {}});
  return loaded;
}

Loaded load(const std::filesystem::path& file) {
  bool missing = false;
  const auto text = read_all(file.string(), missing);
  if (text) return parse(*text, file.string());
  Loaded loaded;
  loaded.file = file.string();
  loaded.file_exists = !missing;
  if (!missing) loaded.problems.push_back(unreadable(loaded.file, text.error().detail));
  return loaded;
}

Error to_error(const std::vector<Problem>& problems) {
  std::string detail = problems.empty() ? "" : to_string(problems.front());
  if (problems.size() > 1) detail += fmt::format("; and {} more", problems.size() - 1);
  return bad_request(std::move(detail), "see all of it with: sublet config check");
}

}  // namespace sublet::config
