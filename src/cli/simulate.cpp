// SPDX-License-Identifier: Apache-2.0
// `sublet simulate`: checks the flags, and has sublet-simulate, the program beside this one, carry out the order. It
// needs no daemon.
#include "cli/fetch.h"
#include "cli/verb.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>

namespace sublet::cli {
namespace {

struct SimulateFlags {
  std::string trace, nodes, gpus, config, html, compare;
  std::vector<std::string> sets;
  std::string fill = "1.3";
  int seed = 42;
  std::optional<Bytes> link;
  bool csv = false;
};

std::vector<std::string> parts_of(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    parts.emplace_back(list.substr(0, list.find(',')));
    list.remove_prefix(std::min(list.size(), parts.back().size() + 1));
  }
  return parts;
}

Result<std::string> order_of(const Common& common, const SimulateFlags& flags) {
  const auto colon = flags.trace.find(':');
  const std::string kind = flags.trace.substr(0, colon);
  const bool known = colon != std::string::npos && (kind == "openb" || kind == "philly" || kind == "csv");
  nlohmann::json order{
      {"trace", {{"kind", known ? kind : "csv"}, {"file", known ? flags.trace.substr(colon + 1) : flags.trace}}},
      {"seed", flags.seed},
      {"set", flags.sets},
      {"compare", parts_of(flags.compare)},
      {"config", flags.config},
      {"html", flags.html},
      {"format", common.json ? "json"
                 : flags.csv ? "csv"
                             : "table"},
      {"progress", ::isatty(STDERR_FILENO) != 0 && !common.quiet}};
  if (flags.link) order["link_bytes"] = flags.link->count;
  char* end = nullptr;
  const double fill = std::strtod(flags.fill.c_str(), &end);
  if (end == flags.fill.c_str() || *end != '\0' || !(fill > 0) || fill > 10)
    return bad_request("--fill " + flags.fill + ": is no number above 0 and up to 10",
                       "1.3 asks for 130 % of all devices");
  order["fill"] = fill;
  if (kind == "openb" && known && flags.nodes.empty())
    return bad_request("a trace of openb needs --nodes FILE",
                       "its list of machines, with sn, cpu_milli, memory_mib and gpu");
  if (!flags.nodes.empty() && !(kind == "openb" && known))
    return bad_request("--nodes fills machines with a trace of openb only", "write --trace openb:FILE, or use --gpus");
  if (!flags.nodes.empty() && !flags.gpus.empty())
    return bad_request("--nodes and --gpus exclude each other", "the file of --nodes says which devices there are");
  if (flags.nodes.empty() && (flags.fill != "1.3" || flags.seed != 42))
    return bad_request("--fill and --seed are for --nodes only", "a run with --gpus follows the times of the trace");
  if (!flags.nodes.empty()) order["nodes"] = flags.nodes;
  else if (flags.gpus.empty()) return bad_request("--gpus says which devices there are", "for example --gpus 4x24GiB");
  else order["devices"] = flags.gpus;
  return order.dump();
}

int simulate(const Common& common, const SimulateFlags& flags) {
  const auto order = order_of(common, flags);
  if (!order) return fail(common, order.error()), kUsage;
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = (self.parent_path() / "sublet-simulate").string(), text = *order;
  ::execl(program.c_str(), program.c_str(), text.c_str(), nullptr);
  return fail(common, from_errno("cannot start " + program, errno));
}

}  // namespace

Action add_simulate(Command command, Common& common) {
  auto flags = std::make_shared<SimulateFlags>();
  command.option("--trace", flags->trace, "Jobs: a CSV file, openb:FILE or philly:FILE")
      .type("FILE")
      .required()
      .offers(Offer::Of::files);
  command.option("--gpus", flags->gpus, "Devices of the machine, for example 4x24GiB or 2x80GiB,1x24GiB")
      .type("DEVICES");
  command.option("--nodes", flags->nodes, "Machines that a trace of openb fills").type("FILE").offers(Offer::Of::files);
  command.option("--fill", flags->fill, "With --nodes: fill until so many times all devices are asked for (1.3)")
      .type("TIMES");
  command.option("--seed", flags->seed, "Order of the jobs that fill machines (42)")
      .type("NUMBER")
      .between(0, std::numeric_limits<int>::max());
  command.option("--config", flags->config, "Configuration file of a daemon (the defaults)")
      .type("FILE")
      .offers(Offer::Of::files);
  command.repeated("--set", flags->sets, "Change a key of the configuration: KEY=VALUE").type("KEY=VALUE");
  command.option("--compare", flags->compare, "Side by side: placement policies, or configuration files FILE.toml")
      .type("A,B,...");
  command.size("--link", flags->link, "Bytes that a device moves in a second for a pause or resume (10GiB)");
  command.flag("--csv", flags->csv, "Print samples over time as CSV");
  command.option("--html", flags->html, "Write a page with drawings, too").type("FILE").offers(Offer::Of::files);
  add_json(command, common, "Print the figures as JSON");
  command.footer(
      "Runs the decisions of the daemon on jobs of a trace, in virtual time and without\n"
      "a daemon. A CSV file needs the columns arrives, runs and vram, and may have\n"
      "devices, user, tenant, tier, priority, pausable and name. Ctrl-C prints the\n"
      "result so far. See docs/placement.md.");
  return [&common, flags] { return simulate(common, *flags); };
}

}  // namespace sublet::cli
