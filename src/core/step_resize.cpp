// SPDX-License-Identifier: Apache-2.0
// Sizes that change while a lease is active: less at once, more at once or when it is its turn.
#include "base/size_bounds.h"
#include "core/format.h"
#include "core/nominations.h"
#include "core/stepper.h"

namespace sublet::core {
namespace {

// The step that comes first. A waiting lease loses nothing by a new request; a lease with a program is never told to
// give it up.
std::string before_resize(const Lease& lease) {
  const std::string id = to_string(lease.id);
  switch (lease.state) {
    case LeaseState::queued: return "it has nothing yet: release it and ask for another size";
    case LeaseState::offered: return "claim the offer first: `sublet claim " + id + "`";
    case LeaseState::pausing:
    case LeaseState::paused: return "resume the lease first: `sublet resume " + id + "`";
    case LeaseState::resuming: return "retry after the resume; `sublet why " + id + "` shows its progress";
    case LeaseState::poisoned: return "the lease can never resume; `sublet why " + id + "` says why, and how to end it";
    default: return "ask for a new lease";
  }
}

}  // namespace

Result<LeaseId> Stepper::on(const Resize& fact) {
  const auto found = find_for(fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  if (const Status ok = check_resize(lease, fact.vram); !ok) return ok.error();
  if (fact.vram > lease.vram) return ask_more(lease, fact);
  if (fact.vram < lease.vram) return shrink(lease, fact.vram);
  if (lease.resize) withdraw_resize(lease, ReasonKind::resize_withdrawn_by_owner, args("asked", fact.vram));
  return lease.id;
}

Status Stepper::check_resize(const Lease& lease, Bytes vram) const {
  if (lease.state != LeaseState::active)
    return Error{
        Code::Stale,
        "resize needs a lease that is active; " + name_of(lease) + " is " + std::string(to_string(lease.state)),
        before_resize(lease)};
  if (vram < least_lease)
    return bad_request("a lease needs a size of " + format_size(least_lease) + " or more",
                       "to give all of it back, release it");
  for (const std::string& uuid : lease.devices) {
    const Device& device = state_.devices_.at(uuid);
    if (!device.read_at || vram <= State::capacity(device, rules_)) continue;
    const Bytes most = State::capacity(device, rules_);
    return Error{Code::TooLarge,
                 name_of(lease) + " cannot grow to " + format_size(vram) + "; at most " +
                     capacity_text(device, rules_) + " can be had",
                 "ask for " + format_size_down(most) + " or less", size_numbers(vram, most)};
  }
  return {};
}

// Memory in use is not given away, because no other lease could have it.
Result<LeaseId> Stepper::shrink(Lease& lease, Bytes vram) {
  if (state_.snapshot_began_ < state_.runtime_.at(lease.id).restored_at)
    return Error{Code::InUse, "the memory that the processes of " + name_of(lease) + " got back is not measured yet",
                 "retry in a moment"};
  for (const std::string& uuid : lease.devices) {
    const Charge& charge = state_.charge(lease.id, uuid);
    if (charge.used <= vram && !charge.untold) continue;
    return Error{Code::InUse,
                 "the processes of " + name_of(lease) + " use " +
                     (charge.untold ? "an amount of VRAM that the driver does not report" : format_size(charge.used)) +
                     " on " + name_of(state_.devices_.at(uuid)) + ", more than " + format_size(vram),
                 charge.untold
                     ? "end them first"
                     : "free what the program does not need, then ask for " + format_size_up(charge.used) + " or more",
                 charge.untold ? Numbers{{"asked_bytes", vram.count}}
                               : Numbers{{"asked_bytes", vram.count}, {"used_bytes", charge.used.count}}};
  }
  const Bytes before = lease.vram;
  if (lease.resize) withdraw_resize(lease, ReasonKind::resize_withdrawn_by_owner, args("asked", vram));
  lease.count_size(now_);
  state_.resize(lease, vram, now_);
  lease.asked_vram = vram;
  want_snapshot();  // what it gives back is promised once it is seen that its programs have not taken it since
  explain(lease, ReasonKind::shrunk,
          args("from", before, "vram", vram, "devices", device_names(state_, lease.devices)));
  touch(lease);
  return lease.id;
}

// Asked in the order of the queue, behind everybody who asked before; who asks for less than before keeps its place.
Result<LeaseId> Stepper::ask_more(Lease& lease, const Resize& fact) {
  if (lease.resize && lease.resize->vram == fact.vram && fact.may_queue) return lease.id;
  const std::optional<Upgrade> before = lease.resize;
  const Time last_queued_at = state_.last_queued_at_;
  const bool keeps_place = before && fact.vram <= before->vram;
  if (!keeps_place) state_.last_queued_at_ = std::max(now_, state_.last_queued_at_ + Duration(1));
  lease.resize = Upgrade{fact.vram, keeps_place ? before->queued_at : state_.last_queued_at_};
  state_.requeue_in_place(lease);
  state_.reindex(rules_, now_);
  const Nominations held(state_, rules_, now_);
  if (!fact.may_queue && !place(*state_.queue_.key(lease.id), &held)) {
    Error refusal{Code::Memory, name_of(lease) + " " + shortage_text(state_, rules_, lease, now_),
                  "let it queue, or ask for less", shortage_numbers(state_, rules_, lease, now_)};
    lease.resize = before;
    state_.requeue_in_place(lease);
    state_.last_queued_at_ = last_queued_at;
    return refusal;
  }
  if (!keeps_place) drop_request(lease);
  state_.room_stale_ = true;  // its place may be the same, and it needs less
  touch(lease);
  grant_waiting();
  if (lease.resize) explain(lease, ReasonKind::resizing, place_args(lease));
  return lease.id;
}

void Stepper::grow(Lease& lease) {
  const Upgrade upgrade = *lease.resize;
  const Bytes before = lease.vram;
  state_.queue_.erase(lease.id);
  lease.resize.reset();
  lease.count_size(now_);
  state_.resize(lease, upgrade.vram, now_);
  lease.asked_vram = upgrade.vram;
  explain(lease, ReasonKind::grown,
          args("from", before, "vram", upgrade.vram, "devices", device_names(state_, lease.devices), "waited",
               now_ - upgrade.queued_at));
  touch_given(lease);
}

void Stepper::withdraw_resize(Lease& lease, ReasonKind kind, ReasonArgs args) {
  args.add("wanted", lease.resize->vram);
  args.add("vram", lease.vram);
  explain(lease, kind, std::move(args));
  drop_request(lease);
  lease.resize.reset();
  state_.requeue_in_place(lease);
  touch(lease);
}

}  // namespace sublet::core
