// SPDX-License-Identifier: Apache-2.0
// The history of consumers.
#include "state/learned.h"

#include "placement/floor.h"
#include "state/state.h"

#include <algorithm>
#include <array>
#include <utility>

namespace sublet::core {
namespace {

// Consumers are named by users: what is remembered of them is bounded, the longest unused goes first.
constexpr std::size_t consumers_kept = 4096;

std::optional<Duration> median_of(const std::vector<Duration>& all) {
  if (all.empty()) return std::nullopt;
  std::array<Duration, runs_kept> runs{};
  const auto end = std::copy(all.end() - std::min(std::ssize(all), std::ssize(runs)), all.end(), runs.begin());
  const auto middle = runs.begin() + (end - runs.begin()) / 2;
  std::nth_element(runs.begin(), middle, end);
  return *middle;
}

}  // namespace

const ConsumerHistory* history_of(const State& state, const Consumer& consumer) {
  const auto found = state.learned.history.find(consumer);
  return found == state.learned.history.end() ? nullptr : &found->second.first;
}

void remember(State& state, const Consumer& consumer, Bytes peak, std::optional<Duration> run) {
  if (consumer.name.empty() || (!run && peak <= Bytes{})) return;
  auto& [history, sequence] = state.learned.history[consumer];
  auto place = state.learned.history_order.extract(std::exchange(sequence, ++state.learned.history_sequence));
  if (place) place.key() = sequence, state.learned.history_order.insert(std::move(place));
  else state.learned.history_order.emplace(sequence, consumer);
  history.peak_used = std::max(history.peak_used, peak);
  if (run) {
    if (history.runs.size() == runs_kept) history.runs.erase(history.runs.begin());
    history.runs.push_back(*run);
    history.median = median_of(history.runs);
  }
  while (state.learned.history.size() > consumers_kept) {
    state.learned.history.erase(state.learned.history_order.begin()->second);
    state.learned.history_order.erase(state.learned.history_order.begin());
  }
}

void load_histories(State& state, std::map<Consumer, ConsumerHistory> histories) {
  std::vector<std::pair<Time, Consumer>> by_use;
  by_use.reserve(histories.size());
  for (const auto& [consumer, history] : histories) by_use.emplace_back(history.last_used, consumer);
  std::sort(by_use.begin(), by_use.end());
  if (by_use.size() > consumers_kept)
    by_use.erase(by_use.begin(), by_use.end() - static_cast<std::ptrdiff_t>(consumers_kept));
  for (const auto& [last_used, consumer] : by_use) {
    const std::uint64_t sequence = ++state.learned.history_sequence;
    state.learned.history_order.emplace(sequence, consumer);
    ConsumerHistory& kept = histories.at(consumer);
    kept.median = median_of(kept.runs);
    state.learned.history.emplace(consumer, std::pair(std::move(kept), sequence));
  }
}

void RequestMix::note(int devices, Bytes each) {
  constexpr std::size_t kinds = 64;
  constexpr double fades = 0.99;  // with each request: about a hundred count
  constexpr std::int64_t step = 256 * MiB.count;
  constexpr double floor = 0.02;  // of the largest requests, and those for several devices
  for (auto& [kind, count] : counts_) count *= fades;
  ++counts_[{devices, Bytes{(each.count + step - 1) / step * step}}];
  if (counts_.size() > kinds)
    counts_.erase(std::ranges::min_element(counts_, {}, [](const auto& its) { return its.second; }));
  mix_.clear();
  Bytes largest;
  for (const auto& [kind, count] : counts_) {
    mix_.push_back({{kind.first, kind.second.count}, count});
    largest = std::max(largest, kind.second);
  }
  placement::keep_floor(mix_, largest.count, floor);
}

bool is_granted(const State& state, const Consumer& consumer) { return state.learned.grants.contains(consumer); }

const MethodRecord* record_of(const State& state, const Consumer& consumer, PauseMethod method) {
  const auto found = state.learned.records.find({consumer, method});
  return found == state.learned.records.end() ? nullptr : &found->second;
}

}  // namespace sublet::core
