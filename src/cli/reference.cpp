// SPDX-License-Identifier: Apache-2.0
// The pages of docs/reference/ that are made from the program's own tables, so that they cannot be out of date.
#include "cli/app.h"
#include "config/schema.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::cli {

namespace {

// '|' would end a cell, '<' would begin a tag.
std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find_first_of("|<", at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

std::string flag_rows(const CLI::App& app) {
  std::string rows;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    std::string names = option->get_positional() ? option->get_name(true) : option->get_name(false, true);
    for (std::size_t at = 0; (at = names.find(',', at)) != std::string::npos; at += 2) names.insert(at + 1, " ");
    const std::string type = option->get_type_size() == 0 || option->get_positional() ? "" : option->get_type_name();
    rows += fmt::format("| `{}{}{}` | {} |\n", names, type.empty() ? "" : " ", type, cell(option->get_description()));
  }
  return rows;
}

std::string section(const CLI::App& verb, const std::string& name) {
  std::string out = fmt::format("\n### `{}`\n\n{}.\n\n", name, verb.get_description());
  out += fmt::format("`{}`\n\n", usage_line(verb).substr(usage_line(verb).find(' ') + 1));
  out += "| argument | meaning |\n| --- | --- |\n" + flag_rows(verb);
  if (const std::string footer = verb.get_footer(); !footer.empty()) out += "\n```\n" + footer + "\n```\n";
  for (const CLI::App* sub : verb.get_subcommands({})) {
    if (!sub->get_group().empty()) out += section(*sub, name + " " + sub->get_name());
  }
  return out;
}

}  // namespace

std::string reference_page() {
  const auto program = make_program();
  std::string out =
      "# The command line\n\n"
      "<!-- Made by `sublet __reference cli` from the verbs themselves; a test compares the two. -->\n\n"
      "`sublet VERB [flags]`. Data goes to stdout, talk to stderr. Flags of the group \"Common\" may stand before or\n"
      "after the verb. Sizes: `8G` and `8GiB` are 8·2^30 bytes, `8GB` is 8·10^9, a bare number is bytes. Durations:\n"
      "`90s`, `5m`, `1h30m`, `2d`; a bare number is seconds. LEASE is a lease's id or tag.\n\n"
      "| exit code | meaning |\n| --- | --- |\n| 0 | ok |\n| 1 | failed |\n| 2 | wrong usage |\n"
      "| 69 | no daemon answers |\n| 75 | it would have to wait |\n| 77 | not allowed |\n| 78 | wrong configuration "
      "|\n";
  for (const char* group : {"Work", "Look", "Govern"}) {
    out += fmt::format("\n## {}\n", group);
    for (const CLI::App* verb : program->app.get_subcommands({})) {
      if (verb->get_group() == group) out += section(*verb, "sublet " + verb->get_name());
    }
  }
  out += "\n## Not in this version\n\nRefused with exit code 2: ";
  auto later = std::vector<std::string_view>(verbs_not_yet().begin(), verbs_not_yet().end());
  std::sort(later.begin(), later.end());
  for (std::size_t i = 0; i < later.size(); ++i) out += fmt::format("{}`{}`", i == 0 ? "" : ", ", later[i]);
  return out + ".\n";
}

int run_reference(const std::vector<std::string>& words) {
  const std::string page = words.empty() ? "" : words.front();
  if (page == "cli") return fmt::print("{}", reference_page()), kOk;
  if (page == "config") return fmt::print("{}", config::reference_page()), kOk;
  return usage_error("which page?", "sublet __reference cli, or: sublet __reference config");
}

}  // namespace sublet::cli
