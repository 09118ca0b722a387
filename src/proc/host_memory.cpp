// SPDX-License-Identifier: Apache-2.0
#include "proc/host_memory.h"

#include "proc/cgroup.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

namespace sublet::proc {
namespace {

// Returns the bytes of a line such as "MemAvailable:   1234 kB".
Bytes kibibytes(std::string_view text, std::string_view name) {
  const auto at = text.find(name);
  if (at == std::string_view::npos || (at != 0 && text[at - 1] != '\n')) return {};
  text.remove_prefix(at + name.size());
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return Bytes{number * 1024};
}

// Returns the number in a cgroup file. Unset for "max", for a missing file, and for the number with which v1 means "no
// limit".
std::optional<Bytes> number_in(const std::string& path) {
  constexpr std::int64_t no_limit = std::int64_t{1} << 60;
  std::ifstream file(path);
  std::int64_t number = 0;
  if (!(file >> number) || number < 0 || number >= no_limit) return std::nullopt;
  return Bytes{number};
}

struct Names {
  const char *limit, *usage, *cache;  // `cache`: the line of memory.stat
};

// Returns the part of the file cache that the kernel drops before it refuses memory: pages that were read only once.
Bytes droppable(const std::string& directory, const Names& names) {
  std::ifstream file(directory + "memory.stat");
  std::string name;
  for (std::int64_t number = 0; file >> name >> number;)
    if (name == names.cache) return Bytes{std::max<std::int64_t>(number, 0)};
  return {};
}

// Returns the path of the group below the mount point. If only a part of the hierarchy is mounted, the groups above it
// are not visible.
std::string below_mount(const CgroupMount& mount, std::string group) {
  if (mount.root != "/" && group.starts_with(mount.root)) group.erase(0, mount.root.size());
  return group;
}

// Returns the least memory that a group and the groups above it leave. A limit holds for all groups below it.
std::optional<Bytes> least_left(const CgroupMount& mount, const std::string& group, const Names& names) {
  std::optional<Bytes> least;
  std::string inside = below_mount(mount, group);
  for (;;) {
    const std::string directory = mount.path + (inside == "/" ? "" : inside) + "/";
    const auto limit = number_in(directory + names.limit);
    const auto usage = number_in(directory + names.usage);
    if (limit && usage) {
      const Bytes taken = std::max(*usage - droppable(directory, names), Bytes{});
      const Bytes left = std::max(*limit - taken, Bytes{});
      least = least ? std::min(*least, left) : left;
    }
    const auto slash = inside.rfind('/');
    if (inside.empty() || inside == "/" || slash == std::string::npos) return least;
    inside.resize(slash);
  }
}

std::optional<Bytes> headroom_of(const Hierarchies& hierarchies, const ProcessCgroups& groups) {
  if (const CgroupMount* v1 = hierarchies.v1("memory"); v1 != nullptr && groups.v1.contains("memory"))
    return least_left(*v1, groups.v1.at("memory"),
                      {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"});
  if (const CgroupMount* v2 = hierarchies.v2(); v2 != nullptr && !groups.v2.empty())
    return least_left(*v2, groups.v2, {"memory.max", "memory.current", "inactive_file"});
  return std::nullopt;
}

std::optional<double> pressure_of(const Hierarchies& hierarchies, const ProcessCgroups& groups) {
  const CgroupMount* mount = hierarchies.v2();
  if (mount == nullptr || groups.v2.empty()) return std::nullopt;
  std::ifstream file(mount->path + below_mount(*mount, groups.v2) + "/memory.pressure");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return parse_pressure(text);
}

void take_most(std::optional<double>& most, std::optional<double> figure) {
  if (figure) most = std::max(most.value_or(0), *figure);
}

bool kept_from_swap(const ProcRoot& root, const Hierarchies& hierarchies, const ProcessCgroups& groups,
                    const std::optional<SwapStopper>& by) {
  const auto group = swap_group(hierarchies, groups);
  return group && (group->stopped || (by && may_stop_swap(root, *group, *by)));
}

}  // namespace

Meminfo parse_meminfo(std::string_view text) {
  return {kibibytes(text, "MemAvailable:"), kibibytes(text, "SwapTotal:")};
}

std::optional<double> parse_pressure(std::string_view text) {
  constexpr std::string_view name = "full avg10=";
  const auto at = text.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  text.remove_prefix(at + name.size());
  double percent = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), percent).ec != std::errc{}) return std::nullopt;
  return percent >= 0 && percent <= 100 ? std::optional(percent / 100) : std::nullopt;
}

std::optional<ProcessMemory> process_memory(const ProcRoot& root, ProcessRef process) {
  const auto text = root.read_with(process.pid, "status");
  if (!text || text->info.ref != process) return std::nullopt;
  return ProcessMemory{kibibytes(text->text, "VmRSS:"), kibibytes(text->text, "VmSwap:")};
}

std::optional<Bytes> resident_bytes(const ProcRoot& root, ProcessRef process) {
  const auto memory = process_memory(root, process);
  return memory ? std::optional(memory->resident) : std::nullopt;
}

HostFigures host_figures(const ProcRoot& root, std::span<const std::int32_t> pids,
                         const std::optional<SwapStopper>& by) {
  HostFigures figures;
  bool swap = false;
  if (const auto text = root.read_file("meminfo")) {
    const Meminfo meminfo = parse_meminfo(*text);
    figures.available = meminfo.available;
    swap = meminfo.swap > Bytes{};
  }
  if (const auto text = root.read_file("pressure/memory")) figures.pressure = parse_pressure(*text);
  const auto hierarchies = find_hierarchies(root);
  std::set<std::string> seen;
  bool kept = !pids.empty();
  for (const std::int32_t pid : pids) {
    const auto groups = hierarchies ? cgroups_of(root, pid) : Result<ProcessCgroups>(hierarchies.error());
    if (!groups) {
      kept = kept && hierarchies.has_value();  // a process that has ended takes no memory
      continue;
    }
    const auto v1 = groups->v1.find("memory");
    if (!seen.insert((v1 == groups->v1.end() ? std::string() : v1->second) + '\n' + groups->v2).second) continue;
    const auto left = headroom_of(*hierarchies, *groups);
    if (left) figures.headroom = std::min(figures.headroom.value_or(*left), *left);
    take_most(figures.pressure, pressure_of(*hierarchies, *groups));
    kept = kept && (!swap || kept_from_swap(root, *hierarchies, *groups, by));
  }
  figures.may_swap = swap && !kept;
  return figures;
}

}  // namespace sublet::proc
