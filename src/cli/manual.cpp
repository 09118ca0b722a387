// SPDX-License-Identifier: Apache-2.0
// The manual, from the same tree as --help.
#include "base/roff.h"
#include "cli/reference.h"
#include "config/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace sublet::cli {

namespace {

constexpr const char* common_group = "Common";

std::string tag_of(const CLI::Option& option) {
  std::string tag;
  for (const std::string& name : option_names(option)) tag += fmt::format("{}`{}`", tag.empty() ? "" : ", ", name);
  const std::string type = option_type(option);
  return type.empty() ? tag : tag + " " + type;
}

// The options of one heading of --help; false if there are none.
void options(ManPage& page, const CLI::App& app, bool common, const std::string& title) {
  bool any = false;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty() || (option->get_group() == common_group) != common) continue;
    if (!std::exchange(any, true)) page.heading(title);
    page.item(tag_of(*option), option->get_description() + ".");
  }
}

bool has_own_options(const CLI::App& app) {
  return std::ranges::any_of(app.get_options(), [](const CLI::Option* option) {
    return !option->get_group().empty() && option->get_group() != common_group;
  });
}

// The common options of a verb and its subordinate verbs, each once.
void common_options(ManPage& page, const std::vector<const CLI::App*>& apps) {
  page.heading("COMMON OPTIONS");
  std::set<std::string> told;
  for (const CLI::App* app : apps) {
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_group() == common_group && told.insert(tag_of(*option)).second)
        page.item(tag_of(*option), option->get_description() + ".");
    }
  }
}

std::string dashed(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

void usage(ManPage& page, const CLI::App& app) {
  const std::string line = usage_line(app);
  page.line(line.substr(line.find(' ') + 1));
}

Page verb_page(const CLI::App& verb) {
  const std::string name = dashed("sublet " + verb.get_name());
  ManPage page(name, 1, verb.get_description());
  page.heading("SYNOPSIS");
  std::vector<const CLI::App*> subs;
  for (const CLI::App* sub : verb.get_subcommands({})) {
    if (!sub->get_group().empty()) subs.push_back(sub);
  }
  const bool alone = subs.empty() || has_own_options(verb);  // it can be called without a subordinate verb
  if (alone) usage(page, verb);
  for (const CLI::App* sub : subs) usage(page, *sub);
  page.heading("DESCRIPTION");
  page.paragraph(verb.get_description() + ".");
  if (const std::string footer = verb.get_footer(); !footer.empty()) page.verbatim(footer);
  options(page, verb, false, "OPTIONS");
  for (const CLI::App* sub : subs) {
    page.heading("sublet " + verb.get_name() + " " + sub->get_name());
    page.paragraph(sub->get_description() + ".");
    for (const CLI::Option* option : sub->get_options()) {
      if (option->get_group().empty() || option->get_group() == common_group) continue;
      page.item(tag_of(*option), option->get_description() + ".");
    }
  }
  std::vector<const CLI::App*> apps = subs;
  if (alone) apps.push_back(&verb);
  common_options(page, apps);
  page.heading("EXIT STATUS");
  page.paragraph("`sublet`(1) lists the exit codes that all verbs share.");
  page.heading("SEE ALSO");
  page.paragraph("`sublet`(1), `subletd`(8)");
  return {name + ".1", page.text()};
}

void verbs_section(ManPage& page, const CLI::App& app) {
  for (const char* group : {"Work", "Look", "Set up"}) {
    page.heading(fmt::format("VERBS: {}", group));
    for (const CLI::App* verb : app.get_subcommands({})) {
      if (verb->get_group() != group) continue;
      const std::string page_name = verb->get_name() == "help" ? "" : fmt::format(": `sublet-{}`(1)", verb->get_name());
      page.item(fmt::format("`{}`{}", verb->get_name(), page_name), verb->get_description() + ".");
    }
  }
}

void environment_section(ManPage& page) {
  page.heading("ENVIRONMENT");
  page.item("`SUBLET_HOST`", "The daemon, as --host takes it.");
  page.item("`XDG_RUNTIME_DIR`",
            "Without --host and SUBLET_HOST, the user's own daemon is looked for at `sublet/sublet.sock` below this "
            "directory, then below `XDG_STATE_HOME` (`~/.local/state`). Then the system's daemon is tried, at "
            "`/run/sublet/sublet.sock`.");
  page.item("`SUBLET_LEASE_TOKEN_FILE`", "File with the token of a lease that is owned by a token.");
  page.item("`CUDA_VISIBLE_DEVICES`",
            "The devices that `sublet run` asks for without --gpu: indices of `sublet gpus`, or UUIDs or their starts. "
            "The lease gets --gpus of them. A list of all devices means any device.");
  page.item("`SUBLET_GPU_NAMES`",
            "How `sublet run` names the devices to its program: `uuid` or `index`, as --indices. It comes before "
            "`gpu.names` of the daemon.");
  page.item("`NO_COLOR`", "If this is not empty, output has no colours, unless --color asks for them.");
  page.paragraph("`sublet run` sets these for its program:");
  page.item("`CUDA_VISIBLE_DEVICES`",
            "The uuids of the lease's devices, or their indices with --indices. `CUDA_DEVICE_ORDER` is PCI_BUS_ID.");
  page.item("`SUBLET_LEASE`, `SUBLET_LEASE_BYTES`", "The lease's id, and the bytes that the program may use.");
}

void files_section(ManPage& page) {
  page.heading("FILES");
  page.item("`/etc/sublet/sublet.toml`", "The system daemon's configuration: `sublet.toml`(5).");
  page.item("`/run/sublet/sublet.sock`", "The system daemon's socket.");
  page.item("`/var/lib/sublet`", "The system daemon's store, and exit records of programs.");
}

Page main_page(const Program& program) {
  ManPage page("sublet", 1, "lease the memory of GPUs");
  page.heading("SYNOPSIS");
  page.line("`sublet` VERB [flags]");
  page.line("`sublet run` [flags] `--` PROGRAM [ARGUMENT...]");
  page.heading("DESCRIPTION");
  page.paragraph(program.app.get_description());
  page.paragraph(
      "A program asks for VRAM. It gets a lease, or waits in a queue that shows its place, the missing bytes, the "
      "holders of the memory and an estimated start. The daemon `subletd`(8) measures free memory: GPU processes "
      "without a lease are listed and subtracted. A lease belongs to a program, to a connection or to a token, and "
      "ends with it.");
  page.paragraph(
      "Data goes to standard output, messages go to standard error. LEASE is a lease's id or tag. Sizes: `8G` and "
      "`8GiB` are 8 times 2 to the 30th, `8GB` is 8 times 10 to the 9th. A bare number is bytes; a number below 1024 "
      "is refused, since the unit is missing. Durations: `90s`, `5m`, `1h30m`, `2d`, `2w`; a bare number is seconds.");
  verbs_section(page, program.app);
  options(page, program.app, true, "COMMON OPTIONS");
  page.heading("EXIT STATUS");
  for (const ExitCode& code : exit_codes()) page.item(fmt::format("`{}`", code.code), fmt::format("{}.", code.meaning));
  page.paragraph("`sublet run` and `sublet wait` exit with the program's own status; see their pages.");
  environment_section(page);
  files_section(page);
  page.heading("EXAMPLES");
  page.verbatim(
      "sublet run --vram 8GiB -- python3 train.py    # waits for memory, runs, exits with the program's status\n"
      "sublet status                                 # GPUs, leases, unleased processes, warnings\n"
      "sublet queue                                  # waiting leases, what holds their memory, estimated starts\n"
      "sublet why lease-3                            # every decision about the lease, with its numbers");
  page.heading("SEE ALSO");
  page.paragraph("`subletd`(8), `sublet.toml`(5), `sublet-gpu`(8)");
  return {"sublet.1", page.text()};
}

}  // namespace

std::vector<Page> manual_pages() {
  const auto program = make_program();
  std::vector<Page> pages{main_page(*program), {"sublet.toml.5", config::manual_page()}};
  for (const Verb& verb : verbs()) pages.push_back(verb_page(*program->app.get_subcommand(std::string(verb.name))));
  return pages;
}

}  // namespace sublet::cli
