// SPDX-License-Identifier: Apache-2.0
#include "core/cover.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace sublet::core {
namespace {

using Chosen = std::vector<std::size_t>;

constexpr double rounding = 1000;   // nanoseconds, by which a bound may be off that is worked out in floating point
constexpr int most_tried = 20'000;  // sets, where there is not place for all: it is to be decided in a moment

// The cost of a set, and the order of sets with the same cost.
struct Score {
  Duration cost{};
  std::size_t count = 0;
  bool operator<(const Score& other) const { return std::tie(cost, count) < std::tie(other.cost, other.count); }
};

double price(const Candidate& candidate, Bytes need) {
  return static_cast<double>(candidate.cost.count()) / static_cast<double>(std::min(candidate.frees, need).count);
}

void cheapest_first(std::span<const Candidate> candidates, Chosen& chosen) {
  std::sort(chosen.begin(), chosen.end(), [&](std::size_t a, std::size_t b) {
    return candidates[a].cost != candidates[b].cost ? candidates[a].cost < candidates[b].cost : a < b;
  });
}

// True if each candidate fits the budget when its time comes. Then each part of the set fits, too.
bool has_place(std::span<const Candidate> candidates, const Chosen& chosen, Bytes place) {
  Bytes taken;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const Candidate& candidate = candidates[chosen[i]];
    Bytes of_user;
    for (std::size_t before = 0; before < i; ++before)
      if (candidates[chosen[before]].user == candidate.user) of_user += candidates[chosen[before]].budget_later;
    const bool fits = taken + candidate.budget_now <= place && of_user + candidate.budget_now <= candidate.for_user;
    if (candidate.budget_now > Bytes{} && !fits) return false;
    taken += candidate.budget_later;
  }
  return true;
}

// Searches depth first, the candidates that free most for their cost first. A branch is left when the rest cannot free
// enough, or when it costs as much as the best set. The missing bytes count at the price of the next candidate, which
// is the least.
class Search {
 public:
  Search(std::span<const Candidate> candidates, Chosen order, Bytes need, std::optional<Bytes> place)
      : candidates_(candidates),
        order_(std::move(order)),
        need_(need),
        place_(place),
        rest_(order_.size() + 1),
        prices_(order_.size()) {
    for (std::size_t i = order_.size(); i-- > 0;) {
      rest_[i] = rest_[i + 1] + candidates_[order_[i]].frees;
      prices_[i] = price(candidates_[order_[i]], need_);
    }
  }

  std::optional<Chosen> run() {
    if (rest_.front() < need_) return std::nullopt;
    descend(0, {}, {});
    return found_ ? std::optional(best_) : std::nullopt;
  }

 private:
  bool fits() {
    if (!place_) return true;
    sorted_ = taken_;
    cheapest_first(candidates_, sorted_);
    return has_place(candidates_, sorted_, *place_);
  }

  void descend(std::size_t at, Bytes gained, Score score) {
    if (place_ && ++tried_ > most_tried) return;
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
    if (fits()) descend(at + 1, gained + candidate.frees, {score.cost + candidate.cost, score.count + 1});
    taken_.pop_back();
    descend(at + 1, gained, score);
  }

  std::span<const Candidate> candidates_;
  Chosen order_;
  Bytes need_;
  std::optional<Bytes> place_;  // unset: it does not matter
  std::vector<Bytes> rest_;     // what the candidates from here on give together
  std::vector<double> prices_;  // of the candidates, ascending
  Chosen taken_, best_, sorted_;
  Score best_score_;
  bool found_ = false;
  int tried_ = 0;
};

// The candidates that fit the budget at once, in their order, whatever they give back later.
Chosen with_place(std::span<const Candidate> candidates, const Chosen& order, Bytes place) {
  Chosen chosen;
  Bytes taken;
  std::map<std::uint32_t, Bytes> of_user;
  for (const std::size_t i : order) {
    const Candidate& candidate = candidates[i];
    if (candidate.budget_now > Bytes{} && taken + candidate.budget_now > place) continue;
    if (candidate.budget_now > Bytes{} && of_user[candidate.user] + candidate.budget_now > candidate.for_user) continue;
    chosen.push_back(i);
    taken += candidate.budget_now;
    of_user[candidate.user] += candidate.budget_now;
  }
  return chosen;
}

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

std::optional<Chosen> cheapest(std::span<const Candidate> candidates, const Chosen& order, Bytes need,
                               std::optional<Bytes> place) {
  if (order.size() <= searched_whole)
    if (auto found = Search(candidates, order, need, place).run(); found || !place) return found;
  const Chosen some = place ? with_place(candidates, order, *place) : order;
  if (gain_of(candidates, some) < need) return std::nullopt;
  return best_greedy(candidates, some, need);
}

}  // namespace

std::optional<std::vector<std::size_t>> cheapest_cover(std::span<const Candidate> candidates, Bytes need,
                                                       std::optional<Bytes> place) {
  if (need <= Bytes{}) return Chosen{};
  Chosen order;
  for (std::size_t i = 0; i < candidates.size(); ++i)
    if (candidates[i].frees > Bytes{}) order.push_back(i);
  if (gain_of(candidates, order) < need) return std::nullopt;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return price(candidates[a], need) < price(candidates[b], need);
  });
  std::optional<Chosen> chosen = cheapest(candidates, order, need, std::nullopt);
  if (chosen) cheapest_first(candidates, *chosen);
  if (!chosen || !place || has_place(candidates, *chosen, *place)) return chosen;
  chosen = cheapest(candidates, order, need, place);
  if (chosen) cheapest_first(candidates, *chosen);
  return chosen;
}

}  // namespace sublet::core
