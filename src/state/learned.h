// SPDX-License-Identifier: Apache-2.0
// The history of each consumer: how long its programs ran, how their pauses went, and how long moves take.
#pragma once

#include "lease/cost.h"
#include "lease/lease.h"
#include "placement/placement.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace sublet::core {

struct State;

// The history of a consumer, the basis of estimates.
inline constexpr std::size_t runs_kept = 16;
struct ConsumerHistory {
  std::vector<Duration> runs;  // durations of its last runs, the newest last
  Bytes peak_used;
  Time last_used = {};                  // for load(): the history with the oldest use is dropped first
  std::optional<Duration> median = {};  // of `runs`; kept up to date by the state
};

// The sizes that were asked for, the newest weighing most: what a placement expects to come.
class RequestMix {
 public:
  void note(int devices, Bytes each);
  const placement::Mix& mix() const { return mix_; }

 private:
  std::map<std::pair<int, Bytes>, double> counts_;
  placement::Mix mix_;
};

struct Learned {
  std::map<Consumer, std::pair<ConsumerHistory, std::uint64_t>> history;  // with the sequence of its last use
  std::map<std::uint64_t, Consumer> history_order;
  std::uint64_t history_sequence = 0;
  std::map<std::pair<Consumer, PauseMethod>, MethodRecord> records;  // results of pauses by consumer and method
  std::set<Consumer> grants;  // consumers whose programs may be parked although Sublet did not start them
  CostModel costs;
  RequestMix requests;
};

const ConsumerHistory* history_of(const State& state, const Consumer& consumer);  // null: there is none
// The results of its pauses by that method; null: there were none.
const MethodRecord* record_of(const State& state, const Consumer& consumer, PauseMethod method);
bool is_granted(const State& state, const Consumer& consumer);  // one of Learned::grants

void remember(State& state, const Consumer& consumer, Bytes peak, std::optional<Duration> run);
void load_histories(State& state, std::map<Consumer, ConsumerHistory> histories);

}  // namespace sublet::core
