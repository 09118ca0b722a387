// SPDX-License-Identifier: Apache-2.0
// The pages of docs/reference/ that are made from the program's own tables, so that they cannot be out of date.
#include "cli/reference.h"

#include "cli/exit_status.h"
#include "cli/output.h"
#include "config/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace sublet::cli {

namespace {

// '|' would end a cell, '<' would begin a tag.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '<') out += '\\';
    out += c;
  }
  return out;
}

std::string flag_rows(const CLI::App& app) {
  std::string rows;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    const std::string type = option_type(*option);
    rows += fmt::format("| `{}{}{}` | {} |\n", fmt::join(option_names(*option), ", "), type.empty() ? "" : " ", type,
                        cell(option->get_description()));
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

// All pages of the manual into a folder, which is made; what stands there under other names stays.
int write_manual(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  for (const Page& page : manual_pages()) {
    const auto path = std::filesystem::path(folder) / page.file;
    std::ofstream file(path, std::ios::trunc);
    file << page.text;
    file.close();
    if (file) continue;
    print_error(fmt::format("{} could not be written: {}", visible(path.string()), std::strerror(errno)));
    return kFailed;
  }
  return kOk;
}

constexpr ExitCode codes[] = {
    {kOk, "ok"},
    {kFailed, "failed"},
    {kUsage, "wrong usage"},
    {kDoesNotRun, "of `status NAME`: it has ended, or was stopped"},
    {kNotFound, "not found: no such lease, token or process"},
    {kHasFailed, "of `status NAME`: it has failed"},
    {kWaits, "of `status NAME`: it waits for memory, or for its next start"},
    {kNoDaemon, "no daemon answers"},
    {kWouldWait, "the lease would have to wait"},
    {kNotAllowed, "not allowed"},
    {kBadConfig, "wrong configuration"},
};

}  // namespace

std::span<const ExitCode> exit_codes() { return codes; }

std::vector<std::string> option_names(const CLI::Option& option) {
  std::vector<std::string> names;
  if (option.get_positional()) names.push_back(option.get_name(true));
  for (const auto& name : option.get_snames()) names.push_back("-" + name);
  for (const auto& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::string option_type(const CLI::Option& option) {
  if (option.get_type_size() == 0 || (option.get_lnames().empty() && option.get_snames().empty())) return {};
  const std::string type = option.get_type_name();
  const std::string shown = option.get_default_str();
  // Behind the colon stands what a validator calls itself.
  return type.substr(0, type.find(':')) + (shown.empty() ? "" : "=" + shown);
}

std::string reference_page() {
  const auto program = make_program();
  std::string out =
      "# The command line\n"
      "\n"
      "<!-- Made by `sublet __reference cli` from the verbs themselves; a test compares the two. -->\n"
      "\n"
      "`sublet VERB [flags]`. Data goes to stdout, messages go to stderr. Flags of the group \"Common\" may come "
      "before or\n"
      "after the verb. Sizes: `8G` and `8GiB` are 8·2^30 bytes, `8GB` is 8·10^9 bytes, a bare number is bytes (at "
      "least\n"
      "1024). Durations: `90s`, `5m`, `1h30m`, `2d`, `2w`; a bare number is seconds. LEASE is a lease's id or tag.\n"
      "\n"
      "| exit code | meaning |\n"
      "| --- | --- |\n";
  for (const ExitCode& code : exit_codes()) out += fmt::format("| {} | {} |\n", code.code, code.meaning);
  for (const char* group : {"Work", "Look", "Set up"}) {
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
  if (page == "manual" && words.size() == 2) return write_manual(words[1]);
  return usage_error("__reference needs the name of a page",
                     "sublet __reference cli, or config, or: sublet __reference manual FOLDER");
}

}  // namespace sublet::cli
