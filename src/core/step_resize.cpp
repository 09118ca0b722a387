// SPDX-License-Identifier: Apache-2.0
// Sizes that change while a lease is active: less at once, more at once or after a wait.
#include "core/step_resize.h"
#include "base/size_bounds.h"
#include "core/current_step.h"
#include "core/step_grant.h"
#include "core/step_request.h"
#include "core/step_submit.h"
#include "core/step_tenants.h"
#include "state/format.h"
#include "state/nominations.h"

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

static Status check_resize(const Step& step, const Lease& lease, Bytes vram);
static Result<LeaseId> shrink(Step& step, Lease& lease, Bytes vram);
static Result<LeaseId> ask_more(Step& step, Lease& lease, const Resize& fact);

Result<LeaseId> on(Step& step, const Resize& fact) {
  const auto found = find_for(step, fact.lease, fact.generation);
  if (!found) return found.error();
  Lease& lease = **found;
  if (const Status ok = check_resize(step, lease, fact.vram); !ok) return ok.error();
  if (fact.vram > lease.vram) return ask_more(step, lease, fact);
  if (fact.vram < lease.vram) return shrink(step, lease, fact.vram);
  if (lease.resize) withdraw_resize(step, lease, ReasonKind::resize_withdrawn_by_owner, args("asked", fact.vram));
  return lease.id;
}

static Status check_resize(const Step& step, const Lease& lease, Bytes vram) {
  if (lease.state != LeaseState::active)
    return Error{
        Code::Stale,
        "resize needs a lease that is active; " + name_of(lease) + " is " + std::string(to_string(lease.state)),
        before_resize(lease)};
  if (vram < least_lease)
    return bad_request("a lease needs a size of " + format_size(least_lease) + " or more",
                       "to give all of it back, release it");
  for (const std::string& uuid : lease.devices) {
    const Device& device = step.state.devices.by_uuid.at(uuid);
    if (!device.read_at || vram <= capacity_of(device, step.rules)) continue;
    const Bytes most = capacity_of(device, step.rules);
    return Error{Code::TooLarge,
                 name_of(lease) + " cannot grow to " + format_size(vram) + "; at most " +
                     capacity_text(device, step.rules) + " can be had",
                 "ask for " + format_size_down(most) + " or less", size_numbers(vram, most)};
  }
  return {};
}

// Memory in use is not given away, because no other lease could have it.
static Result<LeaseId> shrink(Step& step, Lease& lease, Bytes vram) {
  if (step.state.devices.snapshot_began < step.state.leases.runtime.at(lease.id).restored_at)
    return Error{Code::InUse, "the memory that the processes of " + name_of(lease) + " got back is not measured yet",
                 "retry in a moment"};
  for (const std::string& uuid : lease.devices) {
    const Charge& charge = charge_on(step.state, lease.id, uuid);
    if (charge.used <= vram && !charge.untold) continue;
    return Error{Code::InUse,
                 "the processes of " + name_of(lease) + " use " +
                     (charge.untold ? "an amount of VRAM that the driver does not report" : format_size(charge.used)) +
                     " on " + name_of(step.state.devices.by_uuid.at(uuid)) + ", more than " + format_size(vram),
                 charge.untold
                     ? "end them first"
                     : "free what the program does not need, then ask for " + format_size_up(charge.used) + " or more",
                 charge.untold ? Numbers{{"asked_bytes", vram.count}}
                               : Numbers{{"asked_bytes", vram.count}, {"used_bytes", charge.used.count}}};
  }
  const Bytes before = lease.vram;
  if (lease.resize) withdraw_resize(step, lease, ReasonKind::resize_withdrawn_by_owner, args("asked", vram));
  lease.count_size(step.now);
  resize(step.state, lease, vram, step.now);
  lease.asked_vram = vram;
  step.snapshot_wanted =
      true;  // what it gives back is promised once it is seen that its programs have not taken it since
  explain(step, lease, ReasonKind::shrunk,
          args("from", before, "vram", vram, "devices", device_names(step.state, lease.devices)));
  touch(step, lease);
  return lease.id;
}

// Asked in the order of the queue, behind everybody who asked before; who asks for less than before keeps its place.
static Result<LeaseId> ask_more(Step& step, Lease& lease, const Resize& fact) {
  if (lease.resize && lease.resize->vram == fact.vram && fact.may_queue) return lease.id;
  const std::optional<Upgrade> before = lease.resize;
  const Time last_queued_at = step.state.last_queued_at;
  const bool keeps_place = before && fact.vram <= before->vram;
  if (!keeps_place) step.state.last_queued_at = std::max(step.now, step.state.last_queued_at + Duration(1));
  lease.resize = Upgrade{fact.vram, keeps_place ? before->queued_at : step.state.last_queued_at};
  requeue_in_place(step.state, lease);
  reindex(step.state, step.rules, step.now);
  const Nominations held(step.state, step.rules, step.now);
  Status may = check_growth(step, lease);
  if (may && !fact.may_queue && !place(step, *step.state.queue.key(lease.id), &held)) {
    may = Error{Code::Memory, name_of(lease) + " " + shortage_text(step.state, step.rules, lease, step.now),
                "let it queue, or ask for less", shortage_numbers(step.state, step.rules, lease, step.now)};
  }
  if (!may) {
    lease.resize = before;
    requeue_in_place(step.state, lease);
    step.state.last_queued_at = last_queued_at;
    return may.error();
  }
  if (!keeps_place) drop_request(step, lease);
  step.state.preemption.stale = true;  // its place may be the same, and it needs less
  touch(step, lease);
  grant_waiting(step);
  if (lease.resize) explain(step, lease, ReasonKind::resizing, place_args(step, lease));
  return lease.id;
}

void grow(Step& step, Lease& lease) {
  const Upgrade upgrade = *lease.resize;
  const Bytes before = lease.vram;
  step.state.queue.erase(lease.id);
  lease.resize.reset();
  lease.count_size(step.now);
  resize(step.state, lease, upgrade.vram, step.now);
  lease.asked_vram = upgrade.vram;
  explain(step, lease, ReasonKind::grown,
          args("from", before, "vram", upgrade.vram, "devices", device_names(step.state, lease.devices), "waited",
               step.now - upgrade.queued_at));
  touch(step, lease);
}

void withdraw_resize(Step& step, Lease& lease, ReasonKind kind, ReasonArgs args) {
  args.add("wanted", lease.resize->vram);
  args.add("vram", lease.vram);
  explain(step, lease, kind, std::move(args));
  drop_request(step, lease);
  lease.resize.reset();
  requeue_in_place(step.state, lease);
  touch(step, lease);
}

}  // namespace sublet::core
