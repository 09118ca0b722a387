// SPDX-License-Identifier: Apache-2.0
// What every verb of `sublet` is made of. A verb is one file with one function, `Action add_NAME(Command, Common&)`,
// named in the table of verbs.cpp. It declares the verb's flags and returns what is to be done once they are parsed.
// Data goes to stdout, talk goes to stderr. One thread.
#pragma once

#include "base/error.h"
#include "base/units.h"
#include "cli/command.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::cli {

// Exit codes of `sublet`. `run` and `wait` return the program's own status instead, see there.
inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kNoDaemon = 69;
inline constexpr int kWouldWait = 75;
inline constexpr int kNotAllowed = 77;
inline constexpr int kBadConfig = 78;
inline constexpr int kGaveUp = 124;  // the time that it was given to wait is over

enum class Color { automatic, always, never };

// The flags that all verbs understand, given before or after the verb. Lives as long as the program.
struct Common {
  std::string verb;  // what was typed to reach it, once it is parsed: "ps", "token create"
  std::string host;  // --host; "" means: SUBLET_HOST, else the user's own socket if it is there, else the system's
  bool json = false;
  bool no_header = false;
  std::vector<std::string> columns;  // -o; empty: the verb's usual ones
  bool quiet = false;
  bool verbose = false;
  Color color = Color::automatic;
  std::optional<Duration> watch;                    // --watch: look again so often
  std::optional<std::vector<std::string>> command;  // what stands behind "--", untouched; only `run` takes it
};

using Action = std::function<int()>;  // does the verb, returns the exit code

struct Verb {
  std::string_view name;
  std::string_view group;    // heading in --help: "Work", "Look" or "Govern"
  std::string_view summary;  // one line, no full stop
  Action (*add)(Command command, Common& common);
};

std::span<const Verb> verbs();                      // what this version can do, in the order of --help
std::span<const std::string_view> verbs_not_yet();  // what the product will do and this version refuses

// Which common flags a verb takes besides --host, -q, -v and --color, which all take.
void add_common(Command command, Common& common);  // called for every verb
// --json
void add_json(Command command, Common& common, const char* text = "Print the API's reply unchanged, also a refusal");
void add_watch(Command command, Common& common);        // --watch [EVERY]
void add_table_flags(Command command, Common& common);  // --json, --watch, --no-header, -o COLS

// "sublet: DETAIL\n  hint: HINT" on stderr, others' control characters made visible.
void print_error(std::string_view detail, std::string_view hint = {});
// Prints the error and returns the exit code that belongs to it.
int fail(const Error& error);
int exit_code(Code code);
// For an error found after the parse that is still the caller's: prints it and returns kUsage.
int usage_error(std::string_view detail, std::string_view hint = {});
// One line of talk on stderr, unless -q.
void say(const Common& common, std::string_view line);

}  // namespace sublet::cli
