// SPDX-License-Identifier: Apache-2.0
// `sublet simulate`: checks the flags, and has sublet-simulate, the program beside this one, carry out the order. It
// needs a daemon only for --from-history.
#include "cli/fetch.h"
#include "cli/simulate_history.h"
#include "cli/verb.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sys/mman.h>
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
  std::string trace, scenario, nodes, gpus, config, tenants, html, svg, compare, csv;
  std::optional<Duration> history;
  std::vector<std::string> sets, more_gpus, without_users;
  std::string fill = "1.3";
  std::optional<int> seed;
  std::optional<Bytes> link;
};

std::vector<std::string> parts_of(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    parts.emplace_back(list.substr(0, list.find(',')));
    list.remove_prefix(std::min(list.size(), parts.back().size() + 1));
  }
  return parts;
}

using Order = nlohmann::json;

// The flags that contradict each other, or the source of the jobs.
Status check_source(const SimulateFlags& flags, bool fills) {
  const int sources = !flags.trace.empty() + !flags.scenario.empty() + flags.history.has_value();
  if (sources != 1)
    return bad_request("give one of --trace, --from-history and --scenario",
                       "for example: sublet simulate --trace jobs.csv --gpus 4x24GiB");
  if (!flags.nodes.empty() && !fills)
    return bad_request("--nodes fills machines with a trace of openb only", "write --trace openb:FILE, or use --gpus");
  if (!flags.nodes.empty() && !flags.gpus.empty())
    return bad_request("--nodes and --gpus exclude each other", "the file of --nodes says which devices there are");
  if (flags.nodes.empty() && flags.fill != "1.3")
    return bad_request("--fill is for --nodes only", "a run with --gpus follows the times of the trace");
  if (flags.seed && flags.nodes.empty() && flags.scenario.empty())
    return bad_request("--seed is for --nodes and --scenario only", "leave --seed out: nothing is random in a trace");
  if (fills && flags.nodes.empty())
    return bad_request("a trace of openb needs --nodes FILE",
                       "its list of machines, with sn, cpu_milli, memory_mib and gpu");
  if (fills && (!flags.more_gpus.empty() || !flags.without_users.empty() || !flags.tenants.empty()))
    return bad_request("--add-gpu, --without-user and --tenants are not for --nodes", "use a trace with times");
  if (!flags.trace.empty() && flags.nodes.empty() && flags.gpus.empty())
    return bad_request("--gpus says which devices there are", "for example --gpus 4x24GiB");
  return {};
}

// A page that is written must not take the place of a file that is read.
Status check_files(const SimulateFlags& flags, const std::string& trace) {
  const auto is_same = [](const std::string& one, const std::string& other) {
    std::error_code none;
    return !one.empty() && !other.empty() && (one == other || std::filesystem::equivalent(one, other, none));
  };
  for (const auto& [name, written] : {std::pair("--html", &flags.html), std::pair("--svg", &flags.svg)})
    for (const std::string* read : {&trace, &flags.scenario, &flags.nodes, &flags.config, &flags.tenants})
      if (is_same(*written, *read))
        return bad_request(fmt::format("{} {} would overwrite a file that is read", name, *written),
                           "choose another file");
  if (is_same(flags.html, flags.svg) && flags.html != "/dev/null")
    return bad_request("--html and --svg name the same file", "choose two files");
  return {};
}

Result<double> read_fill(const SimulateFlags& flags) {
  char* end = nullptr;
  const double fill = std::strtod(flags.fill.c_str(), &end);
  if (end != flags.fill.c_str() && *end == '\0' && fill > 0 && fill <= 10) return fill;
  return bad_request("--fill " + flags.fill + ": is no number above 0 and up to 10",
                     "1.3 asks for 130 % of all devices");
}

Result<Order> order_of(const Common& common, const SimulateFlags& flags) {
  const auto colon = flags.trace.find(':');
  const std::string kind = flags.trace.substr(0, colon);
  const bool known = colon != std::string::npos && (kind == "openb" || kind == "philly" || kind == "csv");
  const auto fill = read_fill(flags);
  if (!fill) return fill.error();
  if (const Status source = check_source(flags, known && kind == "openb"); !source) return source.error();
  const std::string file = known ? flags.trace.substr(colon + 1) : flags.trace;
  if (const Status files = check_files(flags, file); !files) return files.error();
  Order order{{"fill", *fill},
              {"set", flags.sets},
              {"compare", parts_of(flags.compare)},
              {"config", flags.config},
              {"tenants", flags.tenants},
              {"add_devices", flags.more_gpus},
              {"without_users", flags.without_users},
              {"html", flags.html},
              {"svg", flags.svg},
              {"format", common.json         ? "json"
                         : flags.csv.empty() ? "table"
                                             : flags.csv},
              {"progress", ::isatty(STDERR_FILENO) != 0 && !common.quiet}};
  if (flags.seed) order["seed"] = *flags.seed;
  if (flags.link) order["link_bytes"] = flags.link->count;
  if (!flags.trace.empty()) order["trace"] = {{"kind", known ? kind : "csv"}, {"file", file}};
  if (!flags.scenario.empty()) order["scenario"] = flags.scenario;
  if (!flags.nodes.empty()) order["nodes"] = flags.nodes;
  if (!flags.gpus.empty()) order["devices"] = flags.gpus;
  return Result<Order>(boost::system::in_place_value, std::move(order));
}

// A file without a name that sublet-simulate inherits.
Result<std::string> file_with(const std::string& text) {
  const int fd = ::memfd_create("sublet-history", 0);
  if (fd < 0) return from_errno("cannot keep the history", errno);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t more = ::write(fd, text.data() + done, text.size() - done);
    if (more <= 0) return from_errno("cannot keep the history", errno);
    done += static_cast<std::size_t>(more);
  }
  return fmt::format("/proc/self/fd/{}", fd);
}

// Asks the daemon for its past. Returns the exit status of a failure, or 0.
int add_past(const Common& common, const SimulateFlags& flags, Order& order) {
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  auto past = ask_past(*client, *flags.history, client::names_daemon(common.host));
  if (!past) return fail(common, past.error());
  if (flags.config.empty()) {
    order["config"] = past->config;
    if (!past->problem.empty())
      say(common, fmt::format("sublet: {}: its keys count as the defaults", visible(past->problem)));
  }
  const auto file = file_with(client::to_text(past->document));
  if (!file) return fail(common, file.error());
  order["history"] = *file;
  return kOk;
}

int simulate(const Common& common, const SimulateFlags& flags) {
  auto order = order_of(common, flags);
  if (!order) return fail(common, order.error()), kUsage;
  if (flags.history)
    if (const int failed = add_past(common, flags, *order); failed != kOk) return failed;
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = (self.parent_path() / "sublet-simulate").string(), text = client::to_text(*order);
  ::execl(program.c_str(), program.c_str(), text.c_str(), nullptr);
  return fail(common, from_errno("cannot start " + program, errno));
}

}  // namespace

Action add_simulate(Command command, Common& common) {
  auto flags = std::make_shared<SimulateFlags>();
  command.option("--trace", flags->trace, "Jobs: a CSV file, openb:FILE or philly:FILE")
      .type("FILE")
      .offers(Offer::Of::files);
  command.ttl("--from-history", flags->history, "Jobs: the leases of the daemon in this time, on its devices");
  command.option("--scenario", flags->scenario, "Jobs: burst, which ships, or a scenario in a TOML file")
      .type("NAME|FILE")
      .offers(Offer::Of::files);
  command.option("--gpus", flags->gpus, "Devices of the machine, for example 4x24GiB or 2x80GiB,1x24GiB")
      .type("DEVICES");
  command.repeated("--add-gpu", flags->more_gpus, "One more device of this size").type("SIZE");
  command.repeated("--without-user", flags->without_users, "Leave out the jobs of this user").type("NAME");
  command.option("--nodes", flags->nodes, "Machines that a trace of openb fills").type("FILE").offers(Offer::Of::files);
  command.option("--fill", flags->fill, "With --nodes: fill until so many times all devices are asked for (1.3)")
      .type("TIMES");
  command.option("--seed", flags->seed, "Order of the jobs that fill machines, or spread of a scenario (42)")
      .type("NUMBER")
      .between(0, std::numeric_limits<int>::max());
  command.option("--config", flags->config, "Configuration file of a daemon (the defaults)")
      .type("FILE")
      .offers(Offer::Of::files);
  command.repeated("--set", flags->sets, "Change a key of the configuration: KEY=VALUE").type("KEY=VALUE");
  command.option("--tenants", flags->tenants, "Tree of tenants, as for sublet tenant apply")
      .type("FILE")
      .offers(Offer::Of::files);
  command
      .option("--compare", flags->compare, "Side by side: placement policies, files FILE.toml, sublet, point-in-time")
      .type("A,B,...");
  command.size("--link", flags->link, "Bytes that a device moves in a second for a pause or resume (10GiB)");
  const auto take_csv = [flags](const std::string& what) -> Status {
    flags->csv = what.empty() ? "samples" : what;
    if (flags->csv == "samples" || flags->csv == "tenants") return {};
    return bad_request("'" + what + "' is neither samples nor tenants", "--csv prints the samples");
  };
  command.taken("--csv", take_csv, "Print samples over time as CSV, or a row for each tenant (--csv=tenants)")
      .maybe_value("samples")
      .type("WHAT");
  command.option("--html", flags->html, "Write a page with drawings, too").type("FILE").offers(Offer::Of::files);
  command.option("--svg", flags->svg, "Write the drawings as a picture, too").type("FILE").offers(Offer::Of::files);
  add_json(command, common, "Print the figures as JSON");
  command.footer(
      "Runs the decisions of the daemon on jobs, in virtual time. Only --from-history\n"
      "asks a daemon, and changes nothing there. A CSV file needs the columns arrives,\n"
      "runs and vram, and may have devices, user, tenant, tier, priority, pausable and\n"
      "name. A scenario is compared with a point-in-time scheduler. Ctrl-C prints the\n"
      "result so far. See docs/placement.md.");
  return [&common, flags] { return simulate(common, *flags); };
}

}  // namespace sublet::cli
