// SPDX-License-Identifier: Apache-2.0
// A new lease: what can be refused at once, its place in the queue, and what is said to one who must wait.
#include "base/size_bounds.h"
#include "core/explain.h"
#include "core/format.h"
#include "core/stepper.h"

#include <algorithm>

namespace sublet::core {
namespace {

// No device is larger; keeps sums of sizes far from overflow even while no device was read.
constexpr Bytes largest_request{std::int64_t{1} << 50};
constexpr int most_devices = 1024;

// Which refusal fits best when the lease would have to wait.
Code waiting_code(const State& state, const Rules& rules, const Lease& lease, Time now) {
  if (!hopeless_text(state, rules, lease, now).empty()) return Code::GpuLost;
  int known = 0, settling = 0, leased = 0;
  for (const auto& [uuid, device] : state.devices()) {
    if (!may_use(lease, device) || !state.known(device, rules, now)) continue;
    ++known;
    if (device.settling > Bytes{} && state.effective_free(device, rules, now) + device.settling >= lease.least())
      ++settling;
    if (State::capacity(device, rules) - device.other >= lease.least()) ++leased;
  }
  if (known < lease.device_count) return Code::Unverified;
  if (settling >= lease.device_count) return Code::Settling;
  return leased >= lease.device_count ? Code::Memory : Code::External;
}

std::string waiting_hint(Code code) {
  switch (code) {
    case Code::Unverified: return "`sublet status` says what is wrong with the device; nothing is granted on a guess";
    case Code::GpuLost:
      return "`sublet doctor` says what the driver reports of it; ask for less, or for another device";
    case Code::Settling: return "try again in a moment: what ended holds these bytes until they are measured gone";
    case Code::External:
      return "unleased processes hold the memory: end one (`sublet proclist`), lease it, or ask for less";
    default: return "let it queue, or ask for less";
  }
}

}  // namespace

Status Stepper::check_form(const Lease& asked) const {
  if (asked.vram < least_lease)
    return bad_request("a lease needs a size of " + format_size(least_lease) + " or more", "for example 8GiB");
  if (asked.ttl && asked.ttl->count() <= 0)
    return bad_request("a time limit must be above zero", "for example 10m; or none");
  if (asked.owner.kind == OwnerKind::process && !asked.owner.process)
    return bad_request("the owner names no process", "name a process that runs");
  if (asked.device_count < 1 || asked.device_count > most_devices)
    return bad_request(
        "a lease is on 1 to " + std::to_string(most_devices) + " devices, not on " + std::to_string(asked.device_count),
        "`sublet gpus` lists those that are there");
  if (asked.device_count > 1 && !asked.wanted_device.empty()) {
    const Device* device = state_.find_device(asked.wanted_device);
    return bad_request("a lease on " + std::to_string(asked.device_count) + " devices cannot be on " +
                           (device == nullptr ? asked.wanted_device : name_of(*device)) + " alone",
                       "leave the device out, or ask for one");
  }
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
Status Stepper::check_size(const Lease& asked) const {
  if (!asked.wanted_device.empty()) return check_size_on(asked, state_.find_device(asked.wanted_device));
  const auto read = state_.devices_.size() - state_.unread();
  if (read == 0 || state_.unread() > 0) return {};
  const Device* tightest = state_.capacity_for(asked.device_count);
  if (tightest == nullptr)
    return Error{Code::TooLarge,
                 "the lease needs " + std::to_string(asked.device_count) + " devices at once; there " +
                     (read == 1 ? "is 1: " : "are " + std::to_string(read) + ": ") + list_devices(state_),
                 "ask for " + std::to_string(read) + (read == 1 ? "" : " or fewer"),
                 {{"asked_devices", asked.device_count}, {"most_devices", static_cast<std::int64_t>(read)}}};
  const Bytes most = State::capacity(*tightest, rules_);
  if (asked.least() <= most) return {};
  const std::string which = asked.device_count == 1 ? "no device can ever hold that: the most is "
                                                    : "no " + std::to_string(asked.device_count) +
                                                          " devices can ever hold that: the last of them has ";
  return Error{Code::TooLarge, "the lease " + need_text(asked) + "; " + which + capacity_text(*tightest, rules_),
               "ask for " + format_size_down(most) + " or less, or for `--vram all`",
               size_numbers(asked.least(), most)};
}

Status Stepper::check_size_on(const Lease& asked, const Device* device) const {
  if (device == nullptr && state_.devices_.size() > state_.unread())
    return not_found("there is no device '" + asked.wanted_device + "'", "the devices are: " + list_devices(state_));
  if (device == nullptr || !device->read_at || asked.least() <= State::capacity(*device, rules_)) return {};
  const Bytes most = State::capacity(*device, rules_);
  return Error{Code::TooLarge, "the lease " + need_text(asked) + "; at most " + capacity_text(*device, rules_),
               "ask for " + format_size_down(most) + " or less, or for `--vram all`",
               size_numbers(asked.least(), most)};
}

Status Stepper::check_tag(const Lease& asked) const {
  const Lease* holder = asked.tag.empty() ? nullptr : state_.find_tag(asked.uid, asked.tag);
  if (holder == nullptr) return {};
  return Error{Code::InUse,
               "the tag '" + asked.tag + "' belongs to " + to_string(holder->id) + ", which is " +
                   std::string(to_string(holder->state)),
               "release that lease first, or choose another tag"};
}

// Makes the lease and puts it into the queue.
LeaseId Stepper::admit(const Submit& fact) {
  Lease lease = fact.lease;
  lease.id = {++state_.last_id_};
  lease.generation = 1;
  lease.state = LeaseState::queued;
  lease.end_reason = EndReason::none;
  lease.devices.clear();
  lease.asked_vram = lease.vram;
  lease.created_at = now_;
  lease.lapsed_offers = 0;
  lease.exit_status.reset();
  lease.granted_at.reset();
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
  lease.had_process = lease.owner.kind == OwnerKind::process;
  if (lease.owner.kind == OwnerKind::connection && !fact.held) lease.unheld_since = now_;
  Lease& kept = state_.add(std::move(lease));
  state_.runtime_.at(kept.id).held = fact.held;
  state_.runtime_.at(kept.id).waiter = fact.waiter;
  if (fact.preemption_request) request_preemption(kept, *fact.preemption_request);
  enqueue(kept);
  return kept.id;
}

// No two leases are queued at the same time: who comes later in one instant stands a nanosecond behind, so
// that the stored time alone is the order, also after a restart and for an offer that lapsed.
void Stepper::enqueue(Lease& lease) {
  lease.state = LeaseState::queued;
  lease.queued_at = std::max(now_, state_.last_queued_at_ + Duration(1));
  state_.last_queued_at_ = lease.queued_at;
  state_.queue_.insert(lease);
  if (!lease.wanted_device.empty()) state_.opened_.push_back(lease.wanted_device);
  state_.schedule(lease, rules_);
  touch(lease);
}

// Its place in the queue and what it lacks.
ReasonArgs Stepper::place_args(const Lease& lease) const {
  ReasonArgs all = args("place", state_.queue_.place(lease.id), "waiting", state_.queue_.size());
  all.add(shortage_args(state_, rules_, lease, now_));
  return all;
}

void Stepper::announce_wait(Lease& lease) {
  if (lease.wanted_device.empty()) {
    if (state_.rooms_.size() < static_cast<std::size_t>(lease.device_count)) want_snapshot();
  } else if (!state_.known(state_.device_entry(lease.wanted_device), rules_, now_)) {
    want_snapshot();
  }
  explain(lease, ReasonKind::queued, place_args(lease));
}

Result<LeaseId> Stepper::on(const Submit& fact) {
  if (const Status ok = check_form(fact.lease); !ok) return ok.error();
  Submit asked = fact;
  if (const Device* device = state_.find_device(asked.lease.wanted_device); device != nullptr)
    asked.lease.wanted_device = device->reading.uuid;
  if (const Status ok = check_size(asked.lease); !ok) return ok.error();
  if (const Status ok = check_tag(asked.lease); !ok) return ok.error();
  // Waiters that may start by time alone are granted first: the refusal does not take their grants back.
  if (!asked.may_queue) grant_waiting();
  const Time last_queued_at = state_.last_queued_at_;
  const std::vector<Nomination> nominations = state_.nominations_;
  const auto reasons = static_cast<std::ptrdiff_t>(plan_.reasons.size());
  const auto transitions = static_cast<std::ptrdiff_t>(plan_.transitions.size());
  const LeaseId id = admit(asked);
  submitted_ = id;
  if (asked.successor_of) take_over(asked.successor_of, *find(id));
  grant_waiting();
  Lease& lease = *find(id);
  if (lease.state != LeaseState::queued) return id;
  if (!asked.may_queue) {
    const Code code = waiting_code(state_, rules_, lease, now_);
    Error refusal{code, "the lease " + shortage_text(state_, rules_, lease, now_), waiting_hint(code),
                  shortage_numbers(state_, rules_, lease, now_)};
    touched_.erase(std::find(touched_.begin(), touched_.end(), id));
    state_.drop(id);
    --state_.last_id_;
    state_.last_queued_at_ = last_queued_at;
    state_.nominations_ = nominations;
    plan_.reasons.erase(plan_.reasons.begin() + reasons, plan_.reasons.end());
    plan_.transitions.erase(plan_.transitions.begin() + transitions, plan_.transitions.end());
    return refusal;
  }
  announce_wait(lease);
  return id;
}

}  // namespace sublet::core
