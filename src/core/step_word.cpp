// SPDX-License-Identifier: Apache-2.0
// Room that is made on somebody's word: who may be asked on it, who is kept out meanwhile, and who keeps it afterwards.
#include "base/planted.h"
#include "core/explain.h"
#include "core/prospects.h"
#include "core/stepper.h"
#include "core/victims.h"
#include "core/words.h"

#include <algorithm>

namespace sublet::core {

Result<LeaseId> Stepper::on(const Preempt& fact) {
  const auto found = find_for(fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  if (!state_.queue_.contains(lease.id)) {
    if (lease.state == LeaseState::active || lease.state == LeaseState::offered) return lease.id;
    return Error{Code::Stale,
                 "room is made for who waits; " + name_of(lease) + " is " + std::string(to_string(lease.state)),
                 back_hint(state_, lease)};
  }
  Ordered by = fact.by;
  if (const auto before = state_.ordered(lease.id)) by.anybodys |= before->anybodys;  // its owner takes no more back
  const RoomPlan plan = plan_now_or_later(state_, rules_, Asking{lease, by}, now_);
  if (!plan.found) return cannot_make_room(lease, plan);
  order_room(lease, by);
  explain(lease, "queued",
          "room is made for it on the word of " + whose_word(by, lease) +
              (plan.wait_for.empty() ? "" : ", as soon as somebody may be asked: " + plan.wait_for),
          "ordered");
  return lease.id;
}

Error Stepper::cannot_make_room(const Lease& lease, const RoomPlan& plan) const {
  std::string text = "no room can be made for " + name_of(lease) + ", which " + need_text(lease) + ": " + plan.why_not;
  for (const Spared& spared : plan.spared) text += "; " + name_of(*state_.find(spared.lease)) + ": " + spared.why;
  return Error{Code::Undrainable, std::move(text), plan.hint};
}

void Stepper::order_room(Lease& lease, const Ordered& by) {
  lease.ordered = by;
  touch(lease);
  state_.ordered_.insert(lease.id);
  state_.room_stale_ = true;
}

// Up to which tier others are kept out. Those who yield on somebody's word, and stand above the asker, wait to come
// back as soon as they have yielded: not into the room that they have just made, until the last of them has made his.
Tier Stepper::keeps_out(const Asking& asking, const RoomPlan& plan) const {
  Tier tier = asking.lease.tier;
  const auto consider = [&](const Lease& lease) {
    if (asking.by_order(lease)) tier = std::max(tier, lease.tier);
  };
  const auto leaves_it = [&](const Lease& lease) {
    if (lease.state == LeaseState::paused) return lease.parking->returns && !planted(Bug::makers_of_room_come_back);
    return lease.state == LeaseState::pausing || is_leaving(state_, lease);
  };
  for (const Victim& victim : plan.victims) consider(*state_.find(victim.lease));
  for (const std::string& device : plan.devices)
    for (const LeaseId id : state_.devices_.at(device).leases)
      if (const Lease& lease = *state_.find(id); lease.parking && leaves_it(lease)) consider(lease);
  return tier;
}

// It has the room that was made for it, and keeps it: who yielded for it would otherwise take it back at once.
void Stepper::keep_word(Lease& lease) {
  for (const LeaseId id : state_.away_)
    if (LeaseId& whom = state_.sides_.at(id).yields_for; whom == lease.id) whom = {};
  if (lease.reserves() && !lease.parked() && !planted(Bug::words_do_not_last)) {
    lease.ordered->given_at = now_;
  } else {
    lease.ordered.reset();
  }
  note("word_kept");
  touch(lease);
}

// Somebody's word is about what its lease wanted when it was said.
void Stepper::drop_word(Lease& lease) {
  lease.ordered.reset();
  state_.ordered_.erase(lease.id);
}

}  // namespace sublet::core
