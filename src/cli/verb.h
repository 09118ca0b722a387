// SPDX-License-Identifier: Apache-2.0
// The parts of a verb of `sublet`. A verb is one file with one function, `Action add_NAME(Command, Common&)`, named in
// the table of verbs.cpp. The function declares the verb's flags and returns the action to run after the parse. Data
// goes to stdout, messages go to stderr. One thread.
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

// Exit codes of `sublet`. `run` and `wait` return the program's own status instead.
inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kNotFound = 4;
inline constexpr int kNoDaemon = 69;
inline constexpr int kWouldWait = 75;
inline constexpr int kNotAllowed = 77;
inline constexpr int kBadConfig = 78;
inline constexpr int kGaveUp = 124;  // the time of --wait is over
inline constexpr int kOurs = 125;    // of run and wait: a failure of their own, and no exit status of a program

enum class Color { automatic, always, never };

// The flags that all verbs take, before or after the verb. Lives as long as the program.
struct Common {
  std::string verb;  // the typed verb, after the parse: "ps", "token create"
  std::string host;  // --host; "": SUBLET_HOST, else the user's own socket if it exists, else the system's
  bool json = false;
  bool no_header = false;
  std::vector<std::string> columns;  // -o; empty: the verb's usual columns
  bool quiet = false;
  bool verbose = false;
  Color color = Color::automatic;
  std::optional<Duration> watch;                    // --watch: time between two refreshes
  std::optional<std::vector<std::string>> command;  // the words after "--", unchanged; only `run` takes them
};

using Action = std::function<int()>;  // runs the verb and returns the exit code

struct Verb {
  std::string_view name;
  std::string_view group;    // heading in --help: "Work", "Look" or "Set up"
  std::string_view summary;  // one line, no full stop
  Action (*add)(Command command, Common& common);
};

std::span<const Verb> verbs();                      // the verbs of this version, in the order of --help
std::span<const std::string_view> verbs_not_yet();  // planned verbs, which this version refuses

// The common flags besides --host, -q, -v and --color, which every verb takes.
void add_common(Command command, Common& common);  // called for every verb
// --json
void add_json(Command command, Common& common, const char* text = "Print the daemon's answer or error as JSON");
void add_watch(Command command, Common& common);        // --watch [EVERY]
void add_table_flags(Command command, Common& common);  // --json, --watch, --no-header, -o COLS

// Prints "sublet: DETAIL\n  hint: HINT" on stderr, with control characters made visible.
void print_error(std::string_view detail, std::string_view hint = {});
// Prints the error and returns its exit code.
int fail(const Error& error);
int exit_code(Code code);
// The same for a verb that passes on the exit status of a program: its own failures have other codes than programs.
inline int our_code(int code) { return code == kFailed || code == kNotFound ? kOurs : code; }
// Prints a usage error found after the parse and returns kUsage.
int usage_error(std::string_view detail, std::string_view hint = {});
// Prints one message on stderr, unless -q.
void say(const Common& common, std::string_view line);

}  // namespace sublet::cli
