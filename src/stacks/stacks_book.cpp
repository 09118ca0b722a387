// SPDX-License-Identifier: Apache-2.0
// The processes of containers: which lease they are booked to.
#include "stacks/stacks.h"

#include "base/log.h"
#include "proc/cgroup.h"
#include "proc/container.h"

#include <algorithm>

namespace sublet::stacks {
namespace {

using core::LeaseState;

// The directory of the control group of a process; "" if its name does not have the id of the container.
std::string group_of(const proc::ProcRoot& root, std::int32_t pid, const std::string& id) {
  const auto groups = proc::cgroups_of(root, pid);
  const auto hierarchies = proc::find_hierarchies(root);
  if (!groups || !hierarchies || id.empty()) return "";
  const auto names_it = [&](const std::string& path) { return path.find(id) != std::string::npos; };
  if (const auto* mount = hierarchies->v2(); mount != nullptr && names_it(groups->v2))
    if (std::string directory = proc::directory_of(*mount, groups->v2); !directory.empty()) return directory;
  for (const auto& [controller, path] : groups->v1) {
    const auto* mount = names_it(path) ? hierarchies->v1(controller) : nullptr;
    if (mount == nullptr) continue;
    if (std::string directory = proc::directory_of(*mount, path); !directory.empty()) return directory;
  }
  return "";
}

}  // namespace

bool Stacks::awaits(std::int32_t pid) const {
  const auto may_begin = [](const auto& each) {
    const Entry& entry = each.second;
    return entry.stack.is_up() && entry.stack.phase != Phase::stopping && !interposed_services(entry).empty();
  };
  if (std::ranges::none_of(entries_, may_begin)) return false;
  const auto groups = proc::cgroups_of(engine_.programs().root(), pid);
  return groups && !proc::container_of(*groups).empty();
}

void Stacks::book(Entry& entry) {
  if (!entry.seen) return;
  for (const compose::Container& container : entry.seen->containers) {
    if (container.pid <= 0 || container.pid > INT32_MAX) continue;
    const auto known = entry.booked.find(container.id);
    if (known != entry.booked.end() && known->second == container.pid) continue;
    if (book(entry, container)) entry.booked[container.id] = container.pid;
  }
}

bool Stacks::book(Entry& entry, const compose::Container& container) {
  const core::Lease* lease = engine_.find(entry.stack.use.lease);
  if (lease == nullptr || lease->state != LeaseState::active) return false;
  const auto pid = static_cast<std::int32_t>(container.pid);
  const std::string directory = group_of(engine_.programs().root(), pid, container.id);
  if (directory.empty()) return false;
  const auto group = engine_.programs().check_cgroup(directory);
  if (!group) return false;
  core::Attach attach{.lease = lease->id, .owner = lease->owner, .as_owner = false, .booked = {{}, group->path}};
  // A container that was started again has the name of its old group: its new process makes the engine look again.
  if (std::ranges::count(lease->booked, attach.booked) > 0) {
    const auto process = engine_.programs().identify(pid, std::nullopt);
    if (!process) return false;
    attach.booked = {process->process, {}};
  }
  const auto done = engine_.decide(attach);
  if (!done) log::warn({.lease = lease->id, .program = {}}, "a container is not booked: {}", done.error().detail);
  return done.has_value();
}

}  // namespace sublet::stacks
