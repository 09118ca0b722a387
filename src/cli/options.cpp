// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"
#include "cli/verb.h"

#include <fmt/format.h>

namespace sublet::cli {

namespace {

// CLI11 prints the message as it is; ours names the flag, so its own prefix is not wanted.
[[noreturn]] void refuse(const std::string& message) {
  throw CLI::ValidationError(message, CLI::ExitCodes::ValidationError);
}

// An error of base as one message: refuse_parse() in app.cpp tells the hint from the rest by the line's end.
[[noreturn]] void refuse(const std::string& flag, const Error& error) {
  refuse(fmt::format("{}: {}{}{}", flag, error.detail, error.hint.empty() ? "" : "\n", error.hint));
}

// The longest name of "-m,--vram": what the message calls the flag.
std::string long_name(const std::string& names) {
  auto dash = names.find("--");
  if (dash == std::string::npos) return names;
  return names.substr(dash, names.find(',', dash) - dash);
}

}  // namespace

CLI::Option* add_size(CLI::App& app, const std::string& names, std::optional<Bytes>& into, const std::string& text) {
  auto take = [&into, flag = long_name(names)](const std::string& value) {
    auto size = parse_size(value);
    if (!size) refuse(flag, size.error());
    into = *size;
  };
  return app.add_option_function<std::string>(names, take, text)->type_name("SIZE");
}

CLI::Option* add_duration(CLI::App& app, const std::string& names, std::optional<Duration>& into,
                          const std::string& text) {
  auto take = [&into, flag = long_name(names)](const std::string& value) {
    auto duration = parse_duration(value);
    if (!duration) refuse(flag, duration.error());
    into = *duration;
  };
  return app.add_option_function<std::string>(names, take, text)->type_name("DURATION");
}

void add_not_yet(CLI::App& app, std::initializer_list<const char*> flags, const std::string& feature) {
  for (const char* flag : flags) {
    auto refuse_it = [name = std::string(flag), feature](const std::vector<std::string>&) {
      refuse(fmt::format("{} is not in this version ({})", name, feature));
    };
    // An empty group hides it; the optional value keeps what follows from being taken for something else.
    app.add_option_function<std::vector<std::string>>(flag, refuse_it, "")->expected(0, 1)->group("");
  }
}

void add_json(CLI::App& app, Common& common) {
  app.add_flag("--json", common.json, "Print the API's reply unchanged")->group("Common");
}

void add_watch(CLI::App& app, Common& common) {
  const auto take = [&common](const std::string& text) {
    using namespace std::chrono_literals;
    const auto every = parse_duration(text);
    if (!every) refuse("--watch", every.error());
    if (*every < 100ms || *every > 24h)
      refuse(fmt::format("--watch: {} is not between 100ms and 24h", printable(text)));
    common.watch = *every;
  };
  app.add_option_function<std::string>("--watch", take, "Look again and again, every 2 s or as given")
      ->expected(0, 1)
      ->default_str("2s")
      ->type_name("EVERY")
      ->group("Common");
}

void add_table_flags(CLI::App& app, Common& common) {
  add_json(app, common);
  app.add_flag("--no-header", common.no_header, "No line of column names")->group("Common");
  const auto take = [&common](const std::string& list) {
    common.columns.clear();
    for (std::size_t at = 0; at <= list.size();) {
      const auto comma = std::min(list.find(',', at), list.size());
      common.columns.push_back(list.substr(at, comma - at));
      at = comma + 1;
    }
  };
  app.add_option_function<std::string>("-o,--columns", take, "Columns to show, separated by commas")
      ->type_name("COLS")
      ->group("Common");
  add_watch(app, common);
}

void add_common(CLI::App& app, Common& common) {
  static const std::map<std::string, Color> colors{
      {"auto", Color::automatic}, {"always", Color::always}, {"never", Color::never}};
  app.add_option("-H,--host", common.host, "The daemon: a socket's path or unix://PATH (else SUBLET_HOST)")
      ->type_name("URL")
      ->group("Common");
  app.add_flag("-q,--quiet", common.quiet, "No talk on stderr but errors")->group("Common");
  app.add_flag("-v,--verbose", common.verbose, "Say more on stderr")->group("Common");
  app.add_option_function<std::string>(
         "--color",
         [&common](const std::string& word) {
           auto found = colors.find(word);
           if (found == colors.end())
             refuse(fmt::format("--color: '{}' is none of auto, always, never", printable(word)));
           common.color = found->second;
         },
         "Colours: auto (on a terminal, unless NO_COLOR is set), always, never")
      ->type_name("WHEN")
      ->group("Common");
}

}  // namespace sublet::cli
