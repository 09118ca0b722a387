// SPDX-License-Identifier: Apache-2.0
// Things beside programs that do their work: processes that the driver does not list, unleased processes, the swap
// device.
#include "world.h"

#include <algorithm>

namespace sublet::sim {

using namespace std::chrono_literals;

// ------------------------------------------------------------------------------------------------ what is not said

void World::hide(LeaseId lease, Random& random) {
  constexpr Bytes worth_hiding = 256 * MiB;
  if (agenda_.now_ns() < hide_again_ns_) return;
  std::vector<Process*> some;
  for (auto& [ref, process] : processes_) {
    const auto most = *std::max_element(process.held.begin(), process.held.end());
    bool grew = process.seen.empty();
    for (std::size_t card = 0; card < process.seen.size(); ++card) grew |= process.held[card] > process.seen[card];
    if (most >= worth_hiding && !grew && (!lease || process.lease == lease)) some.push_back(&process);
  }
  if (some.empty()) return;
  Process& process = *random.pick(some);
  process.unlisted = true;
  const Duration until = random.time(1s, 40s);
  hide_again_ns_ = agenda_.now_ns() + (until + 60s).count();
  agenda_.in(until, [this, ref = process.ref] {
    if (const auto found = processes_.find(ref); found != processes_.end()) found->second.unlisted = false;
  });
}

void World::list_all() {
  for (auto& [ref, process] : processes_) process.unlisted = false;
}

Bytes World::unseen(LeaseId lease, std::size_t card) const {
  const auto found = unseen_.find({lease, card});
  return found == unseen_.end() ? Bytes{} : found->second;
}

// ------------------------------------------------------------------------------------------------ unleased processes

void World::disturb(Random& random) {
  std::vector<Process*> unleased_processes;
  for (auto& [ref, process] : processes_) {
    if (!process.lease) unleased_processes.push_back(&process);
  }
  if (!unleased_processes.empty() && random.chance(40)) return end_process(random.pick(unleased_processes)->ref);
  Process& process =
      unleased_processes.empty() || random.chance(50) ? add_process({}) : *random.pick(unleased_processes);
  const std::size_t card = random.below(cards_.size());
  process.held[card] += std::clamp(random.between(1, 16) * 512 * MiB, Bytes{}, std::max(room(card), Bytes{}));
}

void World::end_unleased() {
  std::vector<ProcessRef> all;
  for (const auto& [ref, process] : processes_) {
    if (!process.lease) all.push_back(ref);
  }
  for (const ProcessRef ref : all) end_process(ref);
}

const Process* World::process(std::int32_t pid) const {
  const auto found = processes_.find({pid, static_cast<std::uint64_t>(pid) * 10});
  return found == processes_.end() ? nullptr : &found->second;
}

// ------------------------------------------------------------------------------------------------ host memory

bool World::may_swap(LeaseId lease, bool by_somebody, Time born_until) const {
  return std::ranges::any_of(processes_, [&](const auto& entry) {
    return entry.second.lease == lease && entry.second.born < born_until &&
           ram_.may_swap(entry.second.group, by_somebody);
  });
}

Bytes World::swapped_of(LeaseId lease) const {
  Bytes sum;
  for (const auto& [ref, process] : processes_)
    if (process.lease == lease) sum += process.swapped;
  return sum;
}

// Writes idle memory to the swap device, where nothing keeps it in memory.
void World::swap_out() {
  for (auto& [ref, process] : processes_) {
    Bytes rests;
    for (std::size_t card = 0; card < cards_.size(); ++card) rests += process.parked[card] + process.put_away[card];
    if (rests <= Bytes{}) process.swapped = {};
    else if (ram_.may_swap(process.group, false) && fate_.chance(50)) process.swapped = Bytes{rests.count / 2};
  }
  agenda_.in(fate_.time(2s, 20s), [this] { swap_out(); });
}

}  // namespace sublet::sim
