// SPDX-License-Identifier: Apache-2.0
#include "engine/swap_keeping.h"

#include "base/log.h"
#include "base/mutants.h"
#include "engine/engine.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

namespace sublet::engine {

SwapKeeping::SwapKeeping(const Engine& engine, const Machine& machine)
    : engine_(engine),
      state_(engine.state()),
      host_(*machine.host),
      actor_(*machine.actor),
      programs_(*machine.programs) {}

// Gives one order for each group of the processes, also for a group that is kept already. It may be kept for another
// lease, which ends that when it resumes. A new actor does not know of it. If the actor refuses, the owner of the group
// may have stopped its swap.
void SwapKeeping::keep(LeaseId lease, const std::vector<ProcessRef>& processes, std::function<void(std::string)> done) {
  if (engine_.rules().allow_swap || mutant(Mutant::swap_is_not_prevented) || processes.empty() ||
      !host_.memory({}, {}).may_swap)
    return done({});
  const std::vector<std::string> groups = host_.swap_groups(processes);
  std::vector<MaySwap> all;
  for (std::size_t i = 0; i < processes.size(); ++i) all.push_back({processes[i], groups[i]});
  keep_next(lease, std::move(all), std::move(done));
}

void SwapKeeping::keep_next(LeaseId lease, std::vector<MaySwap> left, std::function<void(std::string)> done) {
  if (left.empty()) return done({});
  const MaySwap next = std::move(left.back());
  left.pop_back();
  programs_.keep_from_swap(
      lease, next.process, true,
      [this, lease, next, left = std::move(left), done = std::move(done)](const std::string& why_not) mutable {
        // The lease has resumed meanwhile and its groups were released. Another order would keep them for ever.
        const core::Lease* known = core::find(state_, lease);
        if (known == nullptr || !known->parking) return done("the pause was withdrawn");
        if (why_not.empty()) {
          std::erase_if(left, [&](const MaySwap& other) { return other.group == next.group && !next.group.empty(); });
        } else if (programs_.lives(next.process) && host_.memory({&next.process, 1}, {}).may_swap) {
          return done(why_not);
        }
        keep_next(lease, std::move(left), std::move(done));
      });
}

// Names a process that came while the others were kept, or left its group. "": there is none.
std::string SwapKeeping::who_may_swap(const std::vector<ProcessRef>& processes) const {
  if (engine_.rules().allow_swap || mutant(Mutant::swap_is_not_prevented) || processes.empty()) return {};
  if (!host_.memory(processes, {}).may_swap) return {};
  for (const ProcessRef& process : processes)
    if (host_.memory({&process, 1}, {}).may_swap)
      return fmt::format("process {} is in a control group whose memory.swap.max cannot be set", process.pid);
  return {};
}

// Ends the keeping from swap for a lease that is durably not paused. Most leases have no kept groups.
void SwapKeeping::end(LeaseId lease) {
  if (const core::Lease* known = core::find(state_, lease); known != nullptr && known->parking) return;
  programs_.keep_from_swap(lease, {}, false, [lease](const std::string& why_not) {
    if (!why_not.empty()) log::warn({.lease = lease}, "its control group is still kept out of swap: {}", why_not);
  });
}

// A new actor finds groups that are kept from swap, and does not know for which leases. It is told all paused leases,
// and then that these are all. This is not done while the paused leases are not known. If the actor refuses a lease,
// nothing was kept for that lease: the actor takes over kept groups without a check.
void SwapKeeping::keep_all() {
  const std::uint64_t number = ++naming_;
  // Called once for each lease, and once at the end.
  if (!actor_.ready()) return;
  const auto named = std::make_shared<std::size_t>(state_.pauses.away.size() + 1);
  const auto one_named = [this, number, named] {
    if (--*named != 0 || number != naming_ || !engine_.store_problem().empty()) return;
    programs_.all_are_kept();
  };
  if (!state_.pauses.away.empty()) programs_.scan();
  for (const LeaseId id : state_.pauses.away) {
    keep(id, programs_.tree(id), [this, id, one_named](const std::string& why_not) {
      const core::Lease* known = core::find(state_, id);
      const bool away = known != nullptr && known->parking;  // false: there is nothing to keep any more
      if (!why_not.empty() && away) log::warn({.lease = id}, "parked memory may be swapped out: {}", why_not);
      one_named();
    });
  }
  one_named();
}

}  // namespace sublet::engine
