// SPDX-License-Identifier: Apache-2.0
// Counts of the processes of leases: the daemon reads their use pages at each reading of the cards.
#include "engine/counters.h"
#include "limit/limits.h"

#include <algorithm>
#include <utility>

namespace sublet::limit {
namespace {

constexpr std::size_t most_ended = 1000;  // leases whose counts are kept after their end

}  // namespace

const credit::Counts* Limits::counts_of(LeaseId lease) const {
  const auto known = counts_.find(lease);
  return known == counts_.end() ? nullptr : &known->second;
}

// The page of an ended process stays mapped here, so that nothing of it is lost.
void Limits::count(const LeaseLimit& limit, ProcessRef ref) {
  Process& process = processes_.at(ref);
  const credit::Counts now = limit.desk.counts(ref);
  const credit::Counts grown = now.since(process.counted);
  process.counted = now;
  if (grown == credit::Counts{}) return;
  counts_[limit.lease].add(grown);
  if (!std::exchange(process.is_earlier, false) && told_) told_(limit.lease, grown);
  Who who = limit.who;
  if (counts_by_who_.size() >= engine::Counters::who_limit && !counts_by_who_.contains(who)) who = {"other", "other"};
  counts_by_who_[who].add(grown);
}

// The pages of the processes get the gain that follows from it.
void Limits::tell_use(LeaseLimit& limit) {
  if (shares_ == nullptr || limit.desk.devices().front().share == 0) return;
  const credit::Counts& counts = counts_[limit.lease];
  for (std::size_t at = 0; at < limit.devices.size(); ++at) {
    const credit::ComputeUse use{.busy = counts.busy[at], .waited = counts.waited[at]};
    limit.desk.set_gain(at, shares_->take_use(limit.lease, limit.devices[at], use, limit.members));
  }
}

void Limits::count_all() {
  for (const auto& [id, limit] : limits_)
    for (const ProcessRef process : limit.members) count(limit, process);
  for (auto& [id, limit] : limits_) tell_use(limit);
  const auto has_ended = [&](const auto& entry) { return core::find(engine_.state(), entry.first) == nullptr; };
  const auto ended = static_cast<std::size_t>(std::ranges::count_if(counts_, has_ended));
  std::size_t too_many = ended - std::min(ended, most_ended);  // the oldest are forgotten
  std::erase_if(counts_, [&](const auto& entry) { return too_many > 0 && has_ended(entry) && too_many-- > 0; });
}

}  // namespace sublet::limit
