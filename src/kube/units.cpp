// SPDX-License-Identifier: Apache-2.0
#include "kube/units.h"

#include "base/number.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace sublet::kube {
namespace {

constexpr std::string_view separator = "::";
// The kubelet refuses messages of more than 4 MiB (4,194,304 bytes).
constexpr std::int64_t most_list_bytes = 4'000'000;
// Tags and lengths around an id, and the word "Unhealthy".
constexpr std::int64_t bytes_around_id = 15;

std::int64_t list_bytes(const std::vector<Card>& cards, const UnitRules& rules) {
  std::int64_t sum = 0;
  for (const Card& card : cards) {
    const std::int64_t count = units_of(card, rules);
    const auto longest = static_cast<std::int64_t>(unit_id(card.uuid, count).size());
    sum += count * (longest + bytes_around_id);
  }
  return sum;
}

}  // namespace

std::string resource_name(Bytes unit) { return fmt::format("sublet.dev/vram-{}mi", unit.count / MiB.count); }

std::int64_t units_of(const Card& card, const UnitRules& rules) {
  const auto declared = static_cast<double>(card.capacity.count) * rules.overcommit;
  return static_cast<std::int64_t>(declared / static_cast<double>(rules.unit.count));
}

std::string unit_id(const std::string& uuid, std::int64_t number) {
  return fmt::format("{}{}{}", uuid, separator, number);
}

std::optional<std::string> card_of_unit(std::string_view id) {
  const auto at = id.rfind(separator);
  if (at == std::string_view::npos || at == 0 || !parse_number<std::int64_t>(id.substr(at + separator.size())))
    return std::nullopt;
  return std::string(id.substr(0, at));
}

Status check_list_size(const std::vector<Card>& cards, const UnitRules& rules) {
  const std::int64_t bytes = list_bytes(cards, rules);
  if (bytes <= most_list_bytes) return {};
  Bytes unit = rules.unit;
  UnitRules larger = rules;
  while (list_bytes(cards, larger) > most_list_bytes) larger.unit = unit = 2 * unit;
  std::int64_t units = 0;
  for (const Card& card : cards) units += units_of(card, rules);
  return bad_request(fmt::format("a unit of {} makes {} units, and their list of {} bytes is larger than a message of "
                                 "the kubelet may be, {} bytes",
                                 format_size(rules.unit), units, bytes, most_list_bytes),
                     fmt::format("choose --unit {}Mi or larger", unit.count / MiB.count));
}

std::map<std::string, std::int64_t> count_by_card(const std::vector<std::string>& ids) {
  std::map<std::string, std::int64_t> counts;
  for (const std::string& id : ids)
    if (const auto card = card_of_unit(id)) ++counts[*card];
  return counts;
}

std::string main_card(const std::vector<std::string>& ids) {
  std::string card;
  std::int64_t most = 0;
  for (const auto& [uuid, count] : count_by_card(ids))
    if (count > most) most = count, card = uuid;
  return card;
}

UnitNeed need_of_units(const std::vector<std::vector<std::string>>& containers,
                       const std::vector<std::string>& starting, std::int64_t init) {
  std::map<std::string, std::int64_t> on;
  for (const auto& container : containers) on[main_card(container)] += std::ssize(container);
  // Init containers have ended before the others start, and the others get their units.
  std::int64_t& here = on[main_card(starting)];
  here = std::max({here, std::ssize(starting), init});
  on.erase("");
  UnitNeed need;
  for (const auto& [card, count] : on) {
    need.cards.push_back(card);
    need.count = std::max(need.count, count);
  }
  return need;
}

std::vector<std::string> choose_units(const std::vector<Card>& cards, const UnitRules& rules,
                                      const std::vector<std::string>& available, const std::vector<std::string>& needed,
                                      std::int64_t count) {
  std::vector<std::string> chosen = needed;
  const std::set<std::string> given(needed.begin(), needed.end());
  std::map<std::string, std::vector<std::string>> left;  // by card
  for (const std::string& id : available)
    if (const auto card = card_of_unit(id); card && !given.contains(id)) left[*card].push_back(id);
  const auto used = count_by_card(needed);
  const std::int64_t missing = count - std::ssize(needed);
  // Units that the card's memory still has, without over-commitment. Negative: it is over-committed by so many.
  const auto room = [&](const std::string& uuid) {
    const auto card = std::ranges::find(cards, uuid, &Card::uuid);
    if (card == cards.end()) return std::int64_t{0};
    const std::int64_t taken = units_of(*card, rules) - std::ssize(left[uuid]);
    return units_of(*card, {rules.unit, 1}) - taken;
  };
  std::vector<std::tuple<bool, bool, bool, std::int64_t, std::string>> order;
  for (const auto& [uuid, ids] : left) {
    const std::int64_t has = room(uuid);
    const bool enough = std::ssize(ids) >= missing, fits = enough && has >= missing;
    order.emplace_back(!used.contains(uuid), !enough, !fits, fits ? has : -has, uuid);
  }
  std::ranges::sort(order);
  for (const auto& card : order)
    for (const std::string& id : left[std::get<std::string>(card)]) {
      if (std::ssize(chosen) >= count) return chosen;
      chosen.push_back(id);
    }
  return chosen;
}

}  // namespace sublet::kube
