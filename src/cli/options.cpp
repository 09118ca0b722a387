// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"
#include "cli/verb.h"

#include <fmt/format.h>

namespace sublet::cli {

void add_json(Command command, Common& common, const char* text) { command.flag("--json", common.json, text).common(); }

void add_watch(Command command, Common& common) {
  const auto take = [&common](const std::string& text) -> Status {
    using namespace std::chrono_literals;
    const auto every = parse_duration(text);
    if (!every) return every.error();
    if (*every < 100ms || *every > 24h)
      return bad_request(fmt::format("{} is not between 100ms and 24h", printable(text)), "for example 2s");
    common.watch = *every;
    return {};
  };
  command.taken("--watch", take, "Refresh every 2 s, or every DURATION").maybe_value("2s").type("EVERY").common();
}

void add_table_flags(Command command, Common& common) {
  add_json(command, common);
  command.flag("--no-header", common.no_header, "Leave the line of column names out").common();
  const auto take = [&common](const std::string& list) -> Status {
    common.columns.clear();
    for (std::size_t at = 0; at <= list.size();) {
      const auto comma = std::min(list.find(',', at), list.size());
      common.columns.push_back(list.substr(at, comma - at));
      at = comma + 1;
    }
    return {};
  };
  command.taken("-o,--columns", take, "Columns to show, separated by commas")
      .type("COLS")
      .offers({Offer::Of::columns, {}, true})
      .common();
  add_watch(command, common);
}

void add_common(Command command, Common& common) {
  static const std::map<std::string, Color> colors{
      {"auto", Color::automatic}, {"always", Color::always}, {"never", Color::never}};
  command
      .option("-H,--host", common.host,
              "The daemon: a socket's path, unix://PATH or http://127.0.0.1:PORT (default: SUBLET_HOST)")
      .type("URL")
      .offers(Offer::Of::files)
      .common();
  command.flag("-q,--quiet", common.quiet, "Print only errors on stderr").common();
  command.flag("-v,--verbose", common.verbose, "Print more on stderr").common();
  const auto take = [&common](const std::string& word) -> Status {
    common.color = colors.at(word);
    return {};
  };
  command.taken("--color", take, "Colours: auto (on a terminal, unless NO_COLOR is set), always, never")
      .type("WHEN")
      .one_of({"auto", "always", "never"})
      .common();
}

}  // namespace sublet::cli
