// SPDX-License-Identifier: Apache-2.0
#include "state/host_check.h"

#include "base/mutants.h"
#include "base/size_bounds.h"
#include "state/format.h"
#include "state/methods.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace sublet::core {
namespace {

// Advice for a full ledger: free other parked bytes or, if there are none, give back the unused part of the size.
std::string ledger_hint(const State& state, const Lease& lease, Bytes free, Bytes entered, const std::string& parked,
                        const std::string& keys) {
  if (entered > Bytes{}) return "resume or end " + parked + ", or raise " + keys;
  const std::string raise = "an admin can raise " + keys + " in sublet.toml";
  Bytes used = least_lease;
  for (const std::string& device : lease.devices) used = std::max(used, charge_on(state, lease.id, device).used);
  const bool helps = static_cast<std::int64_t>(lease.devices.size()) * used <= free;
  if (use_of(state, lease.id).untold || !helps) return raise;
  std::string size = format_size_up(used);
  std::erase(size, ' ');
  return "it uses less than it leased: `sublet resize " + to_string(lease.id) + " " + size +
         "` gives back the rest; or " + raise;
}

std::string percent(double part) { return std::to_string(std::lround(part * 100)) + " %"; }

Status check_swap(const Rules& rules, const Lease& lease, const HostMemory& host) {
  if (host.may_swap && !rules.allow_swap)
    return Error{Code::PauseUnsafe,
                 name_of(lease) +
                     " cannot be paused: the kernel may swap its parked memory out, and the resume would "
                     "then take minutes",
                 "turn swap off for it (memory.swap.max = 0 in its cgroup), or set ledger.allow_swap = true"};
  return {};
}

}  // namespace

Status check_host(const State& state, const Rules& rules, const Lease& lease, const HostMemory& host) {
  if (const Status may = check_swap(rules, lease, host); !may) return may;
  if (host.pressure.value_or(0) > rules.ledger_max_pressure)
    return Error{Code::HostMemory,
                 name_of(lease) + " cannot be parked: the machine waited for memory for " + percent(*host.pressure) +
                     " of the last 10 s (limit " + percent(rules.ledger_max_pressure) + ", `ledger.max_pressure`)",
                 "retry later, end a program that uses much host memory, or raise `ledger.max_pressure`"};
  const Bytes bytes = enters_host(state, lease);
  const Bytes free = ledger_free(state, rules, host, lease.uid, &lease);
  if (bytes <= free || mutant(Mutant::ledger_has_no_limit)) return {};
  const Bytes own = lease.parking ? lease.parking->host_bytes : Bytes{};
  const Bytes entered = state.host.entries - own, of_user = ledger_of(state, lease.uid) - own;
  const Bytes limit_left = rules.ledger_limit - entered, share_left = ledger_share(rules) - of_user;
  const auto [holds, takes] = format_sizes_apart(bytes, free);
  std::string text = name_of(lease) + " holds " + holds + ", but only " + takes +
                     " more may be parked: " + format_size(entered) + " of " + format_size(rules.ledger_limit) +
                     " of `ledger.limit` are in use";
  const bool shares = !is_alone(state, lease.uid);
  if (shares)
    text += ", " + format_size(of_user) + " of the " + format_size(ledger_share(rules)) + " that one user may take (" +
            lease.user + ")";
  text += "; " + format_size(host.available) + " of host memory is available, and " +
          format_size(rules.ledger_reserve) + " of it stays free (`ledger.reserve`)";
  if (host.headroom) text += "; the control group of its program may take " + format_size(*host.headroom) + " more";
  // The limit that leaves least is the obstacle, and the hint is about that limit.
  std::string hint = "end a program that uses much host memory, or lower ledger.reserve";
  if (free >= limit_left) hint = ledger_hint(state, lease, free, entered, "parked programs", "ledger.limit");
  else if (shares && free >= share_left)
    hint =
        ledger_hint(state, lease, free, of_user, "parked programs of this user", "ledger.user_share or ledger.limit");
  else if (host.headroom && free >= *host.headroom - state.host.unsettled)
    hint = "raise memory.max of the control group that its program is in";
  return Error{
      Code::HostMemory, std::move(text), std::move(hint), {{"held_bytes", bytes.count}, {"free_bytes", free.count}}};
}

}  // namespace sublet::core
