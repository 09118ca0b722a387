// SPDX-License-Identifier: Apache-2.0
// A new lease: what can be refused at once, its place in the queue, and what is said to one who must wait.
#include "core/step_submit.h"
#include "base/size_bounds.h"
#include "core/current_step.h"
#include "core/step_capability.h"
#include "core/step_grant.h"
#include "core/step_named.h"
#include "core/step_request.h"
#include "core/step_tenants.h"
#include "state/format.h"
#include "state/reconfigured.h"

#include <algorithm>

namespace sublet::core {
namespace {

// No device is larger; keeps sums of sizes far from overflow even while no device was read.
constexpr Bytes largest_request{std::int64_t{1} << 50};
constexpr int most_devices = 1024;

// `device`: the one that decides; `which` introduces what it can hold.
Error too_large(const State& state, const Rules& rules, const Lease& asked, const std::string& which,
                const Device& device) {
  const Bytes most = capacity_of(device, rules);
  return {Code::TooLarge, "the lease " + need_text(state, asked) + "; " + which + capacity_text(device, rules),
          "ask for " + format_size_down(most) + " or less, or for `--vram all`", size_numbers(asked.least(), most)};
}

}  // namespace

static Status check_size_on_named(const Step& step, const Lease& asked);

static Status check_form(const Step& step, const Lease& asked) {
  if (asked.vram < least_lease)
    return bad_request("a lease needs a size of " + format_size(least_lease) + " or more", "for example 8GiB");
  if (asked.ttl && asked.ttl->count() <= 0)
    return bad_request("a time limit must be above zero", "for example 10m; or none");
  if (asked.owner.kind == OwnerKind::process && !asked.owner.process)
    return bad_request("the owner names no process", "name a process that runs");
  if (asked.owner.kind == OwnerKind::group && asked.owner.cgroup.empty())
    return bad_request("the owner names no control group", "name a directory below /sys/fs/cgroup");
  if (asked.device_count < 1 || asked.device_count > most_devices)
    return bad_request(
        "a lease is on 1 to " + std::to_string(most_devices) + " devices, not on " + std::to_string(asked.device_count),
        "`sublet gpus` lists those that are there");
  const std::ptrdiff_t named = std::ssize(asked.wanted_devices);
  if (named > most_devices)
    return bad_request(
        "a lease names at most " + std::to_string(most_devices) + " devices, not " + std::to_string(named),
        "`sublet gpus` lists those that are there");
  if (named > 0 && named < asked.device_count)
    return bad_request(
        "a lease on " + std::to_string(asked.device_count) + " devices cannot be on " +
            names_of_devices(step.state, sort_by_index(step.state, asked.wanted_devices)) + " alone",
        "name " + std::to_string(asked.device_count) + " devices or more, or ask for " + std::to_string(named));
  if (asked.min_vram < Bytes{} || asked.min_vram > asked.vram)
    return bad_request("the least size, " + format_size(asked.min_vram) + ", is not between nothing and the " +
                           format_size(asked.vram) + " that are asked for",
                       "ask for " + format_size_up(asked.min_vram) + " or more, or leave the least size out");
  if (asked.vram > largest_request)
    return Error{Code::TooLarge,
                 "the lease asks for " + format_size(asked.vram) + "; no device has that much",
                 "`sublet gpus` says how much each has",
                 {{"asked_bytes", asked.vram.count}}};
  return {};
}

// TooLarge is final, so it is said only when every device that could serve has been read at least once.
static Status check_size(const Step& step, const Lease& asked) {
  if (!asked.wanted_devices.empty()) return check_size_on_named(step, asked);
  const auto read = step.state.devices.by_uuid.size() - count_unread(step.state);
  if (read == 0 || count_unread(step.state) > 0) return {};
  const Device* tightest = capacity_for(step.state, asked.device_count);
  if (tightest == nullptr && std::ssize(step.state.devices.capacities) >= asked.device_count)
    return Error{Code::TooLarge,
                 "a lease of " + std::to_string(asked.device_count) + " devices needs whole devices; there are " +
                     std::to_string(count_whole(step.state)) + ", and the others are MIG slices",
                 "a CUDA program sees only one slice: ask for one device",
                 {{"asked_devices", asked.device_count}, {"most_devices", count_whole(step.state)}}};
  if (tightest == nullptr)
    return Error{Code::TooLarge,
                 "the lease needs " + std::to_string(asked.device_count) + " devices at once; there " +
                     (read == 1 ? "is 1: " : "are " + std::to_string(read) + ": ") + list_devices(step.state),
                 "ask for " + std::to_string(read) + (read == 1 ? "" : " or fewer"),
                 {{"asked_devices", asked.device_count}, {"most_devices", static_cast<std::int64_t>(read)}}};
  if (asked.least() <= capacity_of(*tightest, step.rules)) return {};
  const std::string which = asked.device_count == 1 ? "no device can ever hold that: the most is "
                                                    : "no " + std::to_string(asked.device_count) +
                                                          " devices can ever hold that: the last of them has ";
  return too_large(step.state, step.rules, asked, which, *tightest);
}

static Status check_size_on_named(const Step& step, const Lease& asked) {
  for (const std::string& uuid : asked.wanted_devices)
    if (!step.state.devices.by_uuid.contains(uuid) && step.state.devices.by_uuid.size() > count_unread(step.state))
      return not_found("there is no device '" + uuid + "'", "the devices are: " + list_devices(step.state));
  if (!are_read(step, asked.wanted_devices)) return {};
  const Device* device = capacity_for(step.state, asked.device_count, asked.wanted_devices);
  if (device == nullptr)
    return bad_request("a lease of " + std::to_string(asked.device_count) + " devices cannot have a MIG slice",
                       "a CUDA program sees only one slice: ask for one device, or name whole devices");
  if (asked.least() <= capacity_of(*device, step.rules)) return {};
  return too_large(step.state, step.rules, asked, "at most ", *device);
}

static Status check_tag(const Step& step, const Lease& asked) {
  const Lease* holder = asked.tag.empty() ? nullptr : find_tag(step.state, asked.uid, asked.tag);
  if (holder == nullptr) return {};
  return Error{Code::InUse,
               "the tag '" + asked.tag + "' belongs to " + to_string(holder->id) + ", which is " +
                   std::string(to_string(holder->state)),
               "release that lease first, or choose another tag"};
}

// Makes the lease and puts it into the queue.
static LeaseId admit(Step& step, const Submit& fact) {
  Lease lease = fact.lease;
  lease.id = {++step.state.leases.last_id};
  lease.generation = 1;
  lease.state = LeaseState::queued;
  lease.end_reason = EndReason::none;
  lease.devices.clear();
  lease.asked_vram = lease.vram;
  lease.created_at = step.now;
  lease.lapsed_offers = 0;
  lease.exit_status.reset();
  lease.granted_at.reset();
  lease.held_back_at.reset();
  lease.offer_ends_at.reset();
  lease.expires_at.reset();
  lease.sized.reset();
  lease.stop_at.reset();
  lease.ended_at.reset();
  lease.unheld_since.reset();
  lease.stop_requested = false;
  lease.peak_used = {};
  lease.kept_until.reset();
  // A process that owns a lease may use it the moment it is granted.
  lease.had_process =
      lease.owner.kind == OwnerKind::process || (lease.owner.kind == OwnerKind::group && lease.owner.inode != 0);
  if (lease.owner.kind == OwnerKind::connection && !fact.held) lease.unheld_since = step.now;
  Lease& kept = add_lease(step.state, std::move(lease));
  step.state.leases.runtime.at(kept.id).held = fact.held;
  step.state.leases.runtime.at(kept.id).waiter = fact.waiter;
  if (fact.preemption_request) request_preemption(step, kept, *fact.preemption_request);
  step.state.learned.requests.note(kept.device_count, kept.vram);
  enqueue(step, kept);
  return kept.id;
}

// No two leases are queued at the same time: who comes later in one instant stands a nanosecond behind, so
// that the stored time alone is the order, also after a restart and for an offer that lapsed.
void enqueue(Step& step, Lease& lease) {
  lease.state = LeaseState::queued;
  lease.queued_at = std::max(step.now, step.state.last_queued_at + Duration(1));
  step.state.last_queued_at = lease.queued_at;
  insert_waiter(step, lease);
  schedule(step.state, lease, step.rules);
  touch(step, lease);
}

// Its place in the queue and what it lacks.
ReasonArgs place_args(const Step& step, const Lease& lease) {
  ReasonArgs all = args("place", step.state.queue.place(lease.id), "waiting", step.state.queue.size());
  all.add(shortage_args(step.state, step.rules, lease, step.now));
  return all;
}

void announce_wait(Step& step, Lease& lease) {
  std::ptrdiff_t known = lease.wanted_devices.empty() ? std::ssize(step.state.devices.by_free) : 0;
  for (const std::string& uuid : lease.wanted_devices)
    known += may_grant_on(step.state, device_entry(step.state, uuid), step.rules, step.now);
  if (known < lease.device_count) step.snapshot_wanted = true;
  explain(step, lease, ReasonKind::queued, place_args(step, lease));
}

Result<LeaseId> on(Step& step, const Submit& fact) {
  Submit asked = fact;
  asked.lease.wanted_devices = uuids_of(step.state, fact.lease.wanted_devices);
  if (const Status ok = check_form(step, asked.lease); !ok) return ok.error();
  if (const Status ok = check_size(step, asked.lease); !ok) return ok.error();
  if (const Status ok = check_tag(step, asked.lease); !ok) return ok.error();
  if (const Status ok = check_tenant(step, asked.lease, asked.successor_of); !ok) return ok.error();
  const LeaseId id = admit(step, asked);
  step.submitted = id;
  if (asked.successor_of) take_over(step, asked.successor_of, *find(step, id));
  grant_waiting(step);
  Lease& lease = *find(step, id);
  if (lease.state == LeaseState::queued) announce_wait(step, lease);
  return id;
}

}  // namespace sublet::core
