// SPDX-License-Identifier: Apache-2.0
#include "proc/process_record.h"

#include "base/text.h"
#include "proc/cgroup.h"
#include "proc/container.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_set>

namespace sublet::proc {
namespace {

constexpr std::size_t most_ancestors = 128;  // a process can make a chain of any length above itself
constexpr std::size_t longest_unit_name = 255;

bool has_ends(std::string_view text, std::string_view before, std::string_view after) {
  return text.size() > before.size() + after.size() && text.starts_with(before) && text.ends_with(after);
}

bool is_slice(std::string_view group) { return has_ends(group, "", ".slice"); }
bool is_user_manager(std::string_view group) { return has_ends(group, "user@", ".service"); }

// Whether the service manager could have made a unit with this name that has a control group. Slices only group units.
bool is_unit(std::string_view group) {
  constexpr std::array<std::string_view, 5> kinds{".service", ".scope", ".socket", ".mount", ".swap"};
  const bool kind = std::any_of(kinds.begin(), kinds.end(), [&](auto end) { return has_ends(group, "", end); });
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view(":-_.\\@").find(c) != std::string_view::npos;
  };
  return kind && group.size() <= longest_unit_name && std::all_of(group.begin(), group.end(), allowed);
}

// Takes the next group of a path off its front; "" at the end.
std::string_view take_group(std::string_view& path) {
  while (path.starts_with('/')) path.remove_prefix(1);
  const std::string_view group = path.substr(0, path.find('/'));
  path.remove_prefix(group.size());
  return group;
}

std::string path_of(const ProcessCgroups& groups) {
  const auto managed = groups.v1.find("name=systemd");
  const bool told = !groups.v2.empty() && groups.v2 != "/";
  return told || managed == groups.v1.end() ? groups.v2 : managed->second;
}

// A parent younger than its child took over the pid of the true parent between the two reads.
std::vector<Ancestor> ancestry_of(const ProcRoot& root, const ProcessInfo& process) {
  std::vector<Ancestor> found;
  std::unordered_set<std::int32_t> seen{process.ref.pid};
  std::int32_t next = process.ppid;
  std::uint64_t youngest = process.ref.start_ticks;
  while (next > 0 && found.size() < most_ancestors && seen.insert(next).second) {
    auto above = root.read(next);
    if (!above || above->ref.start_ticks > youngest) break;
    found.push_back({.process = above->ref, .uid = above->uid, .name = std::move(above->comm)});
    next = above->ppid;
    youngest = above->ref.start_ticks;
  }
  return found;
}

}  // namespace

std::string_view to_string(ParentSource source) {
  switch (source) {
    case ParentSource::proc: return "proc";
    case ParentSource::connector: return "connector";
    case ParentSource::accounting: return "accounting";
    case ParentSource::leader: return "leader";
  }
  return "proc";
}

std::string unit_of_path(std::string_view path) {
  std::string found;
  while (true) {
    const std::string_view group = take_group(path);
    if (group.empty() || (!is_slice(group) && !is_unit(group))) return found;
    if (is_slice(group)) continue;
    found = group;
    // The manager of a user has units of its own below. All other units choose the names below them freely.
    if (!is_user_manager(group)) return found;
  }
}

bool is_system_path(std::string_view path) {
  if (!path.starts_with('/')) return false;
  for (std::string_view group = take_group(path); !group.empty(); group = take_group(path)) {
    // "..": a group outside of our namespace.
    if (group == ".." || group == "user.slice" || has_ends(group, "user-", ".slice") || is_user_manager(group)) {
      return false;
    }
  }
  return true;
}

Result<ProcessRecord> describe_process(const ProcRoot& root, ProcessRef process, bool with_command) {
  const auto another = [&] {
    return not_found(fmt::format("process {}, started at tick {}, has ended", process.pid, process.start_ticks));
  };
  auto now = root.read_with(process.pid, "status");
  if (!now) return now.error();
  if (now->info.ref != process) return another();
  const auto uids = parse_uids(now->text);
  ProcessRecord record;
  record.process = process;
  record.uid = uids ? uids->real : now->info.uid;
  if (with_command) record.command = root.command_line(process.pid);
  if (const auto groups = cgroups_of(root, process.pid)) {
    const std::string path = path_of(*groups);
    record.cgroup = visible(path);
    record.unit = visible(unit_of_path(path));
    record.system_unit = !record.unit.empty() && is_system_path(path);
    record.container = container_of(*groups);
  }
  record.ancestry = ancestry_of(root, now->info);
  record.name = std::move(now->info.comm);
  // All texts are of this process if it has not ended meanwhile.
  const auto after = root.read(process.pid);
  if (!after || after->ref != process) return another();
  return record;
}

}  // namespace sublet::proc
