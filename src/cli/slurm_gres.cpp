// SPDX-License-Identifier: Apache-2.0
// The lines of gres.conf: one card and its shards, one GiB each.
#include "base/number.h"
#include "base/size_bounds.h"
#include "cli/fetch.h"
#include "cli/slurm.h"
#include "cli/wait_line.h"

#include <fmt/format.h>

#include <unistd.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>

namespace sublet::cli {
namespace {

using nlohmann::json;

constexpr double least_factor = 0.1, most_factor = 16;

// The number in the name of the device file, which may differ from the card's index.
std::int64_t minor_of(const json& device) {
  std::string bus = device.value("pci_bus_id", "");
  std::transform(bus.begin(), bus.end(), bus.begin(), [](unsigned char c) { return std::tolower(c); });
  if (bus.size() > 12) bus = bus.substr(bus.size() - 12);  // NVML writes the domain with eight digits
  std::ifstream file("/proc/driver/nvidia/gpus/" + bus + "/information");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("Device Minor:")) continue;
    const auto digits = line.find_first_of("0123456789");
    const auto number = digits == std::string::npos ? std::nullopt : parse_number<std::int64_t>(line.substr(digits));
    if (number) return *number;
  }
  return device.value("index", std::int64_t{0});
}

std::string file_of(const json& device, const std::string& pattern) {
  const auto at = pattern.find("%d");
  if (at == std::string::npos) return pattern;
  return pattern.substr(0, at) + fmt::format("{}", minor_of(device)) + pattern.substr(at + 2);
}

std::string own_name() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0) return "localhost";
  return std::string(name, std::string_view(name).find_first_of('.') == std::string_view::npos
                               ? std::string_view(name).size()
                               : std::string_view(name).find_first_of('.'));
}

// A job that runs would be above the shards of its card.
Status check_leased(const json& devices, const json& leases, double factor) {
  for (const json& device : list_at(devices, "devices")) {
    const std::string uuid = text_at(device, "uuid");
    if (!text_at(device, "parent").empty()) continue;  // Slurm makes shards of whole cards
    Bytes leased;
    for (const json& lease : list_at(leases, "leases")) {
      if (text_at(member(lease, "owner"), "kind") != "group") continue;
      for (const json& each : list_at(lease, "devices"))
        if (each == uuid) leased += Bytes{lease.value("vram_bytes", std::int64_t{0})};
    }
    const std::int64_t shards = shards_of({device.value("capacity_bytes", std::int64_t{0})}, factor);
    if (leased <= shards * GiB) continue;
    return Error{Code::InUse,
                 fmt::format("gpu{} has {} leased to jobs, and the factor {} declares {} GiB only",
                             device.value("index", 0), format_size(leased), factor, shards),
                 "wait until jobs have ended, choose a larger factor, or use --force"};
  }
  return {};
}

Status write_file(const std::string& path, const std::string& text) {
  const std::string next = path + ".new";
  {
    std::ofstream file(next, std::ios::trunc);
    file << text << std::flush;
    if (!file) return from_errno(fmt::format("cannot write {}", printable(next)), errno);
  }
  if (::rename(next.c_str(), path.c_str()) != 0)
    return from_errno(fmt::format("cannot write {}", printable(path)), errno);
  return {};
}

}  // namespace

std::int64_t shards_of(Bytes capacity, double factor) {
  const double declared = static_cast<double>(capacity.count) * factor;
  return static_cast<std::int64_t>(std::floor(declared / static_cast<double>(GiB.count)));
}

std::string gres_text(const json& devices, const std::string& node, double factor,
                      const std::vector<std::string>& card_files) {
  std::ostringstream cards;
  std::int64_t count = 0, shards = 0;
  for (const json& device : list_at(devices, "devices")) {
    if (!text_at(device, "parent").empty()) continue;
    const Bytes capacity{device.value("capacity_bytes", std::int64_t{0})};
    const std::int64_t own = shards_of(capacity, factor);
    const std::string& file = card_files.at(static_cast<std::size_t>(count++));
    shards += own;
    cards << fmt::format("# gpu{}: {} can be leased\n", device.value("index", 0), format_size_down(capacity));
    cards << fmt::format("NodeName={} Name=gpu File={}\nNodeName={} Name=shard Count={} File={}\n", node, file, node,
                         own, file);
  }
  return fmt::format(
      "# Made by `sublet slurm gres --factor {}`. One shard is one GiB.\n"
      "# slurm.conf needs: GresTypes=gpu,shard, and for this node: Gres=gpu:{},shard:{}\n{}",
      factor, count, shards, cards.str());
}

int write_gres(const Common& common, const GresFlags& flags) {
  double factor = 0;
  const char* end = flags.factor.data() + flags.factor.size();
  const auto read = std::from_chars(flags.factor.data(), end, factor);
  if (read.ec != std::errc() || read.ptr != end || !(factor >= least_factor && factor <= most_factor))
    return usage_error(
        fmt::format("--factor: '{}' is not a number from {} to {}", printable(flags.factor), least_factor, most_factor),
        "for example --factor 2: twice the memory of each card is declared");
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  const auto reply = meet(common, *client);
  if (!reply) return fail(common, reply.error());
  auto devices = client->get("/v1/devices");
  if (!devices) return fail(common, devices.error());
  const auto known = client::parse(*devices);
  if (!known) return fail(common, known.error());
  if (list_at(*known, "devices").empty())
    return fail(common, unavailable("the daemon has read no card yet", "sublet status shows why"));
  const auto leases = ask_pages(*client, "/v1/leases", "leases");
  if (!leases) return fail(common, leases.error());
  const Status fits = flags.force ? Status() : check_leased(*known, leases->body, factor);
  if (!fits) return fail(common, fits.error());
  std::vector<std::string> files;
  for (const json& device : list_at(*known, "devices")) files.push_back(file_of(device, flags.device_file));
  const std::string text = gres_text(*known, flags.node.empty() ? own_name() : flags.node, factor, files);
  if (flags.out.empty()) return write_all(STDOUT_FILENO, text) ? kOk : kFailed;
  if (const Status written = write_file(flags.out, text); !written) return fail(common, written.error());
  say(common, fmt::format("{} is written; slurmctld and slurmd read it after a restart", flags.out));
  return kOk;
}

}  // namespace sublet::cli
