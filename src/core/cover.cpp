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

// What a set costs, and what decides between sets that cost the same.
struct Score {
  Duration cost{};
  std::size_t count = 0;
  bool operator<(const Score& other) const { return std::tie(cost, count) < std::tie(other.cost, other.count); }
};

double price(const Giver& giver, Bytes need) {
  return static_cast<double>(giver.cost.count()) / static_cast<double>(std::min(giver.gain, need).count);
}

void cheapest_first(std::span<const Giver> givers, Chosen& chosen) {
  std::sort(chosen.begin(), chosen.end(), [&](std::size_t a, std::size_t b) {
    return givers[a].cost != givers[b].cost ? givers[a].cost < givers[b].cost : a < b;
  });
}

// Whether there is place for each when its turn comes. A part of a set for which there is has place, too.
bool has_place(std::span<const Giver> givers, const Chosen& chosen, Bytes place) {
  Bytes taken;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const Giver& giver = givers[chosen[i]];
    Bytes of_user;
    for (std::size_t before = 0; before < i; ++before)
      if (givers[chosen[before]].user == giver.user) of_user += givers[chosen[before]].stays;
    const bool fits = taken + giver.enters <= place && of_user + giver.enters <= giver.for_user;
    if (giver.enters > Bytes{} && !fits) return false;
    taken += giver.stays;
  }
  return true;
}

// Depth first over the givers, those that give most for their cost first; a branch is left when what is still to come
// cannot give enough, or when it costs as much as the best that is known already: with what is lacking, too, at the
// price of the next of them, which is the least.
class Search {
 public:
  Search(std::span<const Giver> givers, Chosen order, Bytes need, std::optional<Bytes> place)
      : givers_(givers),
        order_(std::move(order)),
        need_(need),
        place_(place),
        rest_(order_.size() + 1),
        prices_(order_.size()) {
    for (std::size_t i = order_.size(); i-- > 0;) {
      rest_[i] = rest_[i + 1] + givers_[order_[i]].gain;
      prices_[i] = price(givers_[order_[i]], need_);
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
    cheapest_first(givers_, sorted_);
    return has_place(givers_, sorted_, *place_);
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
    const Giver& giver = givers_[order_[at]];
    taken_.push_back(order_[at]);
    if (fits()) descend(at + 1, gained + giver.gain, {score.cost + giver.cost, score.count + 1});
    taken_.pop_back();
    descend(at + 1, gained, score);
  }

  std::span<const Giver> givers_;
  Chosen order_;
  Bytes need_;
  std::optional<Bytes> place_;  // unset: it does not matter
  std::vector<Bytes> rest_;     // what the givers from here on give together
  std::vector<double> prices_;  // of the givers, ascending
  Chosen taken_, best_, sorted_;
  Score best_score_;
  bool found_ = false;
  int tried_ = 0;
};

// Those of them for whom there is place at once, in their order, whatever they leave of it again.
Chosen with_place(std::span<const Giver> givers, const Chosen& order, Bytes place) {
  Chosen chosen;
  Bytes taken;
  std::map<std::uint32_t, Bytes> of_user;
  for (const std::size_t i : order) {
    const Giver& giver = givers[i];
    if (giver.enters > Bytes{} && taken + giver.enters > place) continue;
    if (giver.enters > Bytes{} && of_user[giver.user] + giver.enters > giver.for_user) continue;
    chosen.push_back(i);
    taken += giver.enters;
    of_user[giver.user] += giver.enters;
  }
  return chosen;
}

// Takes them in order until it is enough, then leaves out, the dearest first, whoever is not needed.
Chosen greedy(std::span<const Giver> givers, const Chosen& order, Bytes need) {
  Chosen chosen;
  Bytes gained;
  for (const std::size_t i : order) {
    if (gained >= need) break;
    chosen.push_back(i);
    gained += givers[i].gain;
  }
  Chosen dearest = chosen;
  std::stable_sort(dearest.begin(), dearest.end(),
                   [&](std::size_t a, std::size_t b) { return givers[a].cost > givers[b].cost; });
  for (const std::size_t i : dearest) {
    if (gained - givers[i].gain < need) continue;
    gained -= givers[i].gain;
    std::erase(chosen, i);
  }
  return chosen;
}

Duration cost_of(std::span<const Giver> givers, const Chosen& chosen) {
  Duration cost{};
  for (const std::size_t i : chosen) cost += givers[i].cost;
  return cost;
}

Bytes gain_of(std::span<const Giver> givers, const Chosen& chosen) {
  Bytes gain;
  for (const std::size_t i : chosen) gain += givers[i].gain;
  return gain;
}

// The better of two ways to take them.
Chosen best_greedy(std::span<const Giver> givers, const Chosen& order, Bytes need) {
  const Chosen chosen = greedy(givers, order, need);
  Chosen largest = order;
  std::stable_sort(largest.begin(), largest.end(),
                   [&](std::size_t a, std::size_t b) { return givers[a].gain > givers[b].gain; });
  Chosen other = greedy(givers, largest, need);
  // One that is enough alone may be cheaper than any sum.
  for (const std::size_t i : order)
    if (givers[i].gain >= need && givers[i].cost < cost_of(givers, other)) other = {i};
  return cost_of(givers, other) < cost_of(givers, chosen) ? other : chosen;
}

std::optional<Chosen> cheapest(std::span<const Giver> givers, const Chosen& order, Bytes need,
                               std::optional<Bytes> place) {
  if (order.size() <= searched_whole)
    if (auto found = Search(givers, order, need, place).run(); found || !place) return found;
  const Chosen some = place ? with_place(givers, order, *place) : order;
  if (gain_of(givers, some) < need) return std::nullopt;
  return best_greedy(givers, some, need);
}

}  // namespace

std::optional<std::vector<std::size_t>> cheapest_cover(std::span<const Giver> givers, Bytes need,
                                                       std::optional<Bytes> place) {
  if (need <= Bytes{}) return Chosen{};
  Chosen order;
  for (std::size_t i = 0; i < givers.size(); ++i)
    if (givers[i].gain > Bytes{}) order.push_back(i);
  if (gain_of(givers, order) < need) return std::nullopt;
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return price(givers[a], need) < price(givers[b], need); });
  std::optional<Chosen> chosen = cheapest(givers, order, need, std::nullopt);
  if (chosen) cheapest_first(givers, *chosen);
  if (!chosen || !place || has_place(givers, *chosen, *place)) return chosen;
  chosen = cheapest(givers, order, need, place);
  if (chosen) cheapest_first(givers, *chosen);
  return chosen;
}

}  // namespace sublet::core
