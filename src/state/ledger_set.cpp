// SPDX-License-Identifier: Apache-2.0
#include "state/ledger_set.h"

#include "base/size_bounds.h"
#include "state/format.h"

#include <algorithm>
#include <map>

namespace sublet::core {

std::string beyond_ledger(const State& state, const Rules& rules, std::uint32_t preemptor,
                          const std::vector<Victim>& victims, const std::optional<HostMemory>& host) {
  std::map<std::uint32_t, Bytes> held_of, stays_of;
  Bytes held, stays;
  const Bytes place = host ? ledger_free(state, rules, *host) : ledger_left(state, rules, {});
  for (const Victim& victim : victims) {
    if (victim.enters <= Bytes{}) continue;
    const std::uint32_t uid = find(state, victim.lease)->uid;
    const Bytes left = ledger_left_for(state, rules, uid, preemptor);
    const Bytes for_user = host ? std::min(left, ledger_free(state, rules, *host, uid)) : left;
    held += victim.enters;
    held_of[uid] += victim.enters;
    if (stays + victim.enters > place || stays_of[uid] + victim.enters > for_user) {
      const auto [holds, takes] = format_sizes_apart(held, std::min(place, for_user + held - held_of[uid]));
      return "host memory takes no more than " + takes + " of parked bytes now, and " +
             (victims.size() == 1 ? "it holds " : "they hold ") + holds;
    }
    stays += victim.stays;
    stays_of[uid] += victim.stays;
  }
  return {};
}

std::string too_many_text(const State& state, const Rules& rules, std::uint32_t preemptor,
                          const std::vector<Victim>& victims, const std::optional<HostMemory>& host) {
  std::string names;
  for (const Victim& victim : victims) names += (names.empty() ? "" : ", ") + name_of(*find(state, victim.lease));
  return names + " would have to be paused, but " + beyond_ledger(state, rules, preemptor, victims, host);
}

}  // namespace sublet::core
