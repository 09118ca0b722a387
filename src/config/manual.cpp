// SPDX-License-Identifier: Apache-2.0
// Writes sublet.toml(5) from the table of keys.
#include "base/roff.h"
#include "config/schema.h"

#include <fmt/format.h>

namespace sublet::config {

std::string manual_page(const Schema& schema) {
  ManPage page("sublet.toml", 5, "configuration of subletd");
  page.heading("DESCRIPTION");
  page.paragraph(
      "`subletd`(8) reads one file when it starts. Every key has a default that suits one shared card, so the file may "
      "be missing. A wrong key or value is an error with file, line and the nearest valid key; the daemon then does "
      "not start. `sublet config check` checks the file without a daemon. `sublet config show --origin` prints every "
      "value and where it comes from.");
  page.paragraph(
      "The file is TOML: a table's name in brackets, then one key per line. Durations are text such as `\"10s\"`, "
      "`\"5m\"`, `\"1h30m\"`; sizes are text such as `\"256MiB\"`.");
  page.heading("KEYS");
  for (const Key& key : schema.keys) {
    const std::string range = key.minimum.empty() ? std::string() : ", " + range_text(key);
    page.item(fmt::format("`{}` ({}{}; default {})", key.name, type_name(key), range, default_text(key)), key.summary);
  }
  for (const List& list : schema.lists) {
    page.heading(fmt::format("TABLES [[{}]]", list.name));
    page.paragraph(fmt::format("{} The file may hold any number of these tables.", list.summary));
    for (const Field& field : list.fields) {
      const std::string range = field.minimum.empty() ? std::string() : ", " + range_text(field);
      const std::string fallback = field.required ? "required" : "default " + default_text(list, field);
      page.item(fmt::format("`{}` ({}{}; {})", field.name, type_name(field), range, fallback), field.summary);
    }
  }
  page.heading("FILES");
  page.item("`/etc/sublet/sublet.toml`", "The file of the system's daemon.");
  page.item("`$XDG_CONFIG_HOME/sublet/sublet.toml`",
            "The file of a user's own daemon; `~/.config` if the variable is not set.");
  page.item("`DIR/sublet.toml`", "The file of a daemon started with --dir DIR; --config FILE names another file.");
  page.heading("EXAMPLES");
  page.verbatim("[device]\nheadroom = \"512MiB\"\n\n[queue]\nclaim_window = \"30s\"");
  page.heading("SEE ALSO");
  page.paragraph("`subletd`(8), `sublet-config`(1)");
  return page.text();
}

}  // namespace sublet::config
