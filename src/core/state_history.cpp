// SPDX-License-Identifier: Apache-2.0
// What is remembered of consumers, and when leases were given the room that they have.
#include "base/planted.h"
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
  const Side& side = sides_.at(lease.id);
  const bool forgotten = planted(Bug::returns_take_nothing);
  const Time whole_at = std::max(lease.granted_at.value_or(Time{}), forgotten ? Time{} : side.back_at);
  if (whole_at > since) return charged(lease, device);
  if (forgotten) return {};
  Bytes grown;
  for (const auto& [at, bytes] : side.grown)
    if (at > since) grown += bytes;
  return std::min(grown, charged(lease, device));
}

void State::resize(Lease& lease, Bytes vram, Time now) {
  Side& side = sides_.at(lease.id);
  auto& grown = side.grown;
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
  if (planted(Bug::sums_come_later)) lease.vram = vram;
  rebook(lease, [&] {
    lease.vram = vram;
    if (vram >= before) return;
    side.shrunk_at = now;
    for (Charge& charge : side.charges) charge.shrunk_from = std::max(charge.shrunk_from, before);
  });
}

const MethodRecord* State::record(const Consumer& consumer, PauseMethod method) const {
  const auto found = records_.find({consumer, method});
  return found == records_.end() ? nullptr : &found->second;
}

// What programs did while the daemon stood still it is still to hear of, and to read.
void State::stand_still(const Lease& lease, Duration stood_still) {
  Side& side = sides_.at(lease.id);
  const Time granted = lease.granted_at.value_or(Time{});
  side.used_until = after(std::max({side.used_until, granted, side.restored_at}), stood_still);
  side.silent_since = after(std::max(side.silent_since, granted), stood_still);
  side.told_since = after(side.told_since, stood_still);
}

// Whatever runs out goes on where it stood when the machine fell asleep. When it was asked for, granted, or queued
// remains what it was. True if the lease itself changed by that.
bool State::sleep_through(Lease& lease, Duration asleep) {
  const auto move = [asleep](auto& time) {
    if (time) time = after(*time, asleep);
    return time.has_value();
  };
  Side& side = sides_.at(lease.id);
  side.settled_in = after(standing(lease.id).came_back, asleep);
  side.grace_until = after(side.grace_until, asleep);
  side.look_at = after(side.look_at, asleep);
  side.overdue_at = after(side.overdue_at, asleep);
  side.acting_since = after(side.acting_since, asleep);
  stand_still(lease, asleep);
  side.restored_at = after(side.restored_at, asleep);
  side.proven_at = after(side.proven_at, asleep);
  side.moving_since = after(side.moving_since, asleep);
  move(side.late_since);
  move(side.held_at);
  move(side.yielded_at);
  move(lease.unheld_since);
  bool changed = move(lease.stop_at);
  if (lease.ended()) return changed;
  changed |= move(lease.offer_ends_at);
  changed |= move(lease.expires_at);
  if (lease.parking) changed |= move(lease.parking->deserted_since);
  return changed;
}

}  // namespace sublet::core
