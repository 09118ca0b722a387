// SPDX-License-Identifier: Apache-2.0
// The history of consumers, and the times when leases got their memory.
#include "core/state.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

namespace sublet::core {
namespace {

// Consumers are named by users: what is remembered of them is bounded, the longest unused goes first.
constexpr std::size_t consumers_kept = 4096;
constexpr std::size_t growths_kept = 64;  // of a lease that was given more again and again

std::optional<Duration> median_of(const std::vector<Duration>& all) {
  if (all.empty()) return std::nullopt;
  std::array<Duration, runs_kept> runs{};
  const auto end = std::copy(all.end() - std::min(std::ssize(all), std::ssize(runs)), all.end(), runs.begin());
  const auto middle = runs.begin() + (end - runs.begin()) / 2;
  std::nth_element(runs.begin(), middle, end);
  return *middle;
}

}  // namespace

void State::remember(const Consumer& consumer, Bytes peak, std::optional<Duration> run) {
  if (consumer.name.empty() || (!run && peak <= Bytes{})) return;
  auto& [history, sequence] = history_[consumer];
  auto place = history_order_.extract(std::exchange(sequence, ++history_sequence_));
  if (place) place.key() = sequence, history_order_.insert(std::move(place));
  else history_order_.emplace(sequence, consumer);
  history.peak_used = std::max(history.peak_used, peak);
  if (run) {
    if (history.runs.size() == runs_kept) history.runs.erase(history.runs.begin());
    history.runs.push_back(*run);
    history.median = median_of(history.runs);
  }
  while (history_.size() > consumers_kept) {
    history_.erase(history_order_.begin()->second);
    history_order_.erase(history_order_.begin());
  }
}

void State::load_histories(std::map<Consumer, ConsumerHistory> histories) {
  std::vector<std::pair<Time, Consumer>> by_use;
  by_use.reserve(histories.size());
  for (const auto& [consumer, history] : histories) by_use.emplace_back(history.last_used, consumer);
  std::sort(by_use.begin(), by_use.end());
  if (by_use.size() > consumers_kept)
    by_use.erase(by_use.begin(), by_use.end() - static_cast<std::ptrdiff_t>(consumers_kept));
  for (const auto& [last_used, consumer] : by_use) {
    const std::uint64_t sequence = ++history_sequence_;
    history_order_.emplace(sequence, consumer);
    ConsumerHistory& kept = histories.at(consumer);
    kept.median = median_of(kept.runs);
    history_.emplace(consumer, std::pair(std::move(kept), sequence));
  }
}

// -------------------------------------------------------------------------------- what was given

Bytes State::given_since(const Lease& lease, std::string_view device, Time since) const {
  if (lease.ended()) return {};
  const LeaseRuntime& runtime = runtime_.at(lease.id);
  const Time whole_at = std::max(lease.granted_at.value_or(Time{}), runtime.back_at);
  if (whole_at > since) return charged(lease, device);
  Bytes grown;
  for (const auto& [at, bytes] : runtime.grown)
    if (at > since) grown += bytes;
  return std::min(grown, charged(lease, device));
}

void State::resize(Lease& lease, Bytes vram, Time now) {
  LeaseRuntime& runtime = runtime_.at(lease.id);
  auto& grown = runtime.grown;
  if (vram > lease.vram) grown.emplace_back(now, vram - lease.vram);
  if (grown.size() > growths_kept) {  // the oldest counts as given later than it was: never as less than it is
    grown[1].second += grown[0].second;
    grown.erase(grown.begin());
  }
  for (Bytes less = lease.vram - vram; less > Bytes{} && !grown.empty();) {
    const Bytes taken = std::min(less, grown.back().second);
    less -= taken;
    if ((grown.back().second -= taken) <= Bytes{}) grown.pop_back();
  }
  const Bytes before = lease.vram;
  rebook(lease, [&] {
    lease.vram = vram;
    if (vram >= before) return;
    runtime.shrunk_at = now;
    for (Charge& charge : runtime.charges) charge.shrunk_from = std::max(charge.shrunk_from, before);
  });
}

const MethodRecord* State::record(const Consumer& consumer, PauseMethod method) const {
  const auto found = records_.find({consumer, method});
  return found == records_.end() ? nullptr : &found->second;
}

// The daemon has yet to hear, and to read, what programs did while it stood still.
void State::stand_still(const Lease& lease, Duration stood_still) {
  LeaseRuntime& runtime = runtime_.at(lease.id);
  const Time granted = lease.granted_at.value_or(Time{});
  runtime.used_until = after(std::max({runtime.used_until, granted, runtime.restored_at}), stood_still);
  runtime.silent_since = after(std::max(runtime.silent_since, granted), stood_still);
  runtime.told_since = after(runtime.told_since, stood_still);
}

// Whatever runs out goes on where it stood when the machine fell asleep. When it was asked for, granted, or queued
// remains what it was. True if the lease itself changed by that.
bool State::sleep_through(Lease& lease, Duration asleep) {
  const auto move = [asleep](auto& time) {
    if (time) time = after(*time, asleep);
    return time.has_value();
  };
  LeaseRuntime& runtime = runtime_.at(lease.id);
  runtime.settled_in = after(standing(lease.id).came_back, asleep);
  runtime.grace_until = after(runtime.grace_until, asleep);
  runtime.look_at = after(runtime.look_at, asleep);
  runtime.overdue_at = after(runtime.overdue_at, asleep);
  runtime.acting_since = after(runtime.acting_since, asleep);
  stand_still(lease, asleep);
  runtime.restored_at = after(runtime.restored_at, asleep);
  runtime.proven_at = after(runtime.proven_at, asleep);
  runtime.moving_since = after(runtime.moving_since, asleep);
  move(runtime.late_since);
  move(runtime.held_at);
  move(runtime.yielded_at);
  move(lease.unheld_since);
  bool changed = move(lease.stop_at);
  if (lease.ended()) return changed;
  changed |= move(lease.offer_ends_at);
  changed |= move(lease.expires_at);
  if (lease.parking) changed |= move(lease.parking->orphaned_since);
  return changed;
}

}  // namespace sublet::core
