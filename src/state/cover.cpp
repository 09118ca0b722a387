// SPDX-License-Identifier: Apache-2.0
#include "state/cover.h"

#include <algorithm>
#include <tuple>

namespace sublet::core {
namespace {

using Chosen = std::vector<std::size_t>;

constexpr double rounding = 1000;  // nanoseconds, by which a bound may be off that is worked out in floating point

// The cost of a set, and the order of sets with the same cost.
struct Score {
  Duration cost{};
  std::size_t count = 0;
  bool operator<(const Score& other) const { return std::tie(cost, count) < std::tie(other.cost, other.count); }
};

double price(const Candidate& candidate, Bytes need) {
  return static_cast<double>(candidate.cost.count()) / static_cast<double>(std::min(candidate.frees, need).count);
}

// Searches depth first, the candidates that free most for their cost first. A branch is left when the rest cannot free
// enough, or when it costs as much as the best set. The missing bytes count at the price of the next candidate, which
// is the least.
class Search {
 public:
  Search(std::span<const Candidate> candidates, const Chosen& order, Bytes need)
      : candidates_(candidates), order_(order), need_(need), rest_(order_.size() + 1), prices_(order_.size()) {
    for (std::size_t i = order_.size(); i-- > 0;) {
      rest_[i] = rest_[i + 1] + candidates_[order_[i]].frees;
      prices_[i] = price(candidates_[order_[i]], need_);
    }
  }

  Chosen run() {
    descend(0, {}, {});
    return best_;
  }

 private:
  void descend(std::size_t at, Bytes gained, Score score) {
    if (found_ && !(score < best_score_)) return;
    if (gained >= need_) {
      best_ = taken_;
      best_score_ = score;
      found_ = true;
      return;
    }
    if (at == order_.size() || gained + rest_[at] < need_) return;
    const double lacking = static_cast<double>((need_ - gained).count) * prices_[at];
    if (found_ && static_cast<double>((best_score_.cost - score.cost).count()) + rounding < lacking) return;
    const Candidate& candidate = candidates_[order_[at]];
    taken_.push_back(order_[at]);
    descend(at + 1, gained + candidate.frees, {score.cost + candidate.cost, score.count + 1});
    taken_.pop_back();
    descend(at + 1, gained, score);
  }

  std::span<const Candidate> candidates_;
  const Chosen& order_;
  Bytes need_;
  std::vector<Bytes> rest_;     // what the candidates from here on give together
  std::vector<double> prices_;  // of the candidates, ascending
  Chosen taken_, best_;
  Score best_score_;
  bool found_ = false;
};

// Takes candidates in order until they free enough, then leaves out needless ones, the dearest first.
Chosen greedy(std::span<const Candidate> candidates, const Chosen& order, Bytes need) {
  Chosen chosen;
  Bytes gained;
  for (const std::size_t i : order) {
    if (gained >= need) break;
    chosen.push_back(i);
    gained += candidates[i].frees;
  }
  Chosen dearest = chosen;
  std::stable_sort(dearest.begin(), dearest.end(),
                   [&](std::size_t a, std::size_t b) { return candidates[a].cost > candidates[b].cost; });
  for (const std::size_t i : dearest) {
    if (gained - candidates[i].frees < need) continue;
    gained -= candidates[i].frees;
    std::erase(chosen, i);
  }
  return chosen;
}

Duration cost_of(std::span<const Candidate> candidates, const Chosen& chosen) {
  Duration cost{};
  for (const std::size_t i : chosen) cost += candidates[i].cost;
  return cost;
}

Bytes gain_of(std::span<const Candidate> candidates, const Chosen& chosen) {
  Bytes gain;
  for (const std::size_t i : chosen) gain += candidates[i].frees;
  return gain;
}

// The better of two greedy orders.
Chosen best_greedy(std::span<const Candidate> candidates, const Chosen& order, Bytes need) {
  const Chosen chosen = greedy(candidates, order, need);
  Chosen largest = order;
  std::stable_sort(largest.begin(), largest.end(),
                   [&](std::size_t a, std::size_t b) { return candidates[a].frees > candidates[b].frees; });
  Chosen other = greedy(candidates, largest, need);
  // One candidate that is enough alone may be cheaper than any sum.
  for (const std::size_t i : order)
    if (candidates[i].frees >= need && candidates[i].cost < cost_of(candidates, other)) other = {i};
  return cost_of(candidates, other) < cost_of(candidates, chosen) ? other : chosen;
}

}  // namespace

std::optional<std::vector<std::size_t>> cheapest_cover(std::span<const Candidate> candidates, Bytes need) {
  if (need <= Bytes{}) return Chosen{};
  Chosen order;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].frees > Bytes{}) order.push_back(i);
  if (gain_of(candidates, order) < need) return std::nullopt;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return price(candidates[a], need) < price(candidates[b], need);
  });
  Chosen chosen =
      order.size() <= searched_whole ? Search(candidates, order, need).run() : best_greedy(candidates, order, need);
  std::ranges::sort(chosen, [&](std::size_t a, std::size_t b) {
    return candidates[a].cost != candidates[b].cost ? candidates[a].cost < candidates[b].cost : a < b;
  });
  return chosen;
}

}  // namespace sublet::core
