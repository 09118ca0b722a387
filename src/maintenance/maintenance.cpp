// SPDX-License-Identifier: Apache-2.0
#include "maintenance/maintenance.h"

#include "base/json_text.h"
#include "base/log.h"
#include "state/format.h"
#include "state/reconfigured.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sublet::maintenance {
namespace {

using core::LeaseState;

// The key of a row of known errors.
constexpr std::string_view errors_key = "errors ";

// The leases on the device, and on the slices of a card.
std::set<LeaseId> leases_on(const core::State& state, const std::string& device) {
  std::set<LeaseId> all;
  for (const auto& [uuid, there] : state.devices.by_uuid)
    if (uuid == device || there.reading.parent == device) all.insert(there.leases.begin(), there.leases.end());
  return all;
}

// The driver tells the errors of cards, not of slices.
const std::string& card_of(const core::Device& device) {
  return device.reading.parent.empty() ? device.reading.uuid : device.reading.parent;
}

std::optional<std::string> some(const std::string& text) { return text.empty() ? std::nullopt : std::optional(text); }

}  // namespace

std::string Maintenance::name_of_device(const std::string& device) const {
  for (const gpu::GpuDevice& card : engine_.observer().divided())
    if (card.uuid == device) return fmt::format("gpu{}", card.index);
  const auto found = engine_.state().devices.by_uuid.find(device);
  return found == engine_.state().devices.by_uuid.end() ? device : core::name_of(found->second);
}

core::ReasonArgs Maintenance::args_of(const OutOfService& out) const {
  return core::args("device", name_of_device(out.device), "by", out.by, "why", out.reason);
}

// -------------------------------------------------------------------------------- requests and rows

Maintenance::Maintenance(engine::Engine& engine, Causes cordon_on)
    : engine_(engine),
      rows_(engine, "service_changed",
            [this](const std::string& key) {
              if (key.starts_with(errors_key)) {
                const std::string device = key.substr(errors_key.size());
                return to_row(device, known_[device]);
              }
              const OutOfService* out = find(key);
              return out == nullptr ? removed_row(key) : to_row(*out);
            }),
      cordon_on_(std::move(cordon_on)) {}

void Maintenance::take_out(OutOfService out) {
  const std::string device = out.device;
  log::info("{} is {}", name_of_device(device), why_text(out));
  (void)engine_.decide(core::Serve{device, why_text(out)});
  rows_.store(device);
  states_.erase(device);
  told_.clear(), tried_.clear();  // a new deadline is told, and pauses are tried at once
  out_.insert_or_assign(device, std::move(out));
  tell_changes(engine_.now());
}

void Maintenance::take_back(const std::string& device) {
  if (out_.erase(device) == 0) return;
  log::info("{} is in service again", name_of_device(device));
  (void)engine_.decide(core::Serve{device});
  rows_.store(device);
  // The admin knows its errors: the next error is a new one.
  const auto there = engine_.state().devices.by_uuid.find(device);
  const std::string card = there == engine_.state().devices.by_uuid.end() ? device : card_of(there->second);
  if (const gpu::Facts* facts = engine_.observer().condition(card)) know(card, learn(known_[card], errors_of(*facts)));
  tell_changes(engine_.now());
}

const OutOfService* Maintenance::find(const std::string& device) const {
  const auto found = out_.find(device);
  return found == out_.end() ? nullptr : &found->second;
}

void Maintenance::loaded(const store::Loaded& rows, Time now) {
  out_.clear(), known_.clear(), rows_.clear(), tried_.clear(), told_.clear(), states_.clear();
  for (const store::CapabilityRow& row : rows.rows) {
    if (row.kind == errors_row_kind) {
      if (const auto known = errors_from_row(row)) known_[row.key] = *known;
      else log::error("{}", known.error().detail);  // errors that are there count as new
    }
    if (row.kind != row_kind) continue;
    auto out = from_row(row);
    if (!out) {
      // A device may be broken: it stays out of service until an admin has looked.
      log::error("{}", out.error().detail);
      out = OutOfService{.device = row.key, .by = "Sublet", .reason = "its record cannot be read", .since = now};
    }
    out_.insert_or_assign(row.key, std::move(*out));
  }
  for (const auto& [device, out] : out_) states_[device] = state_of(out, now);
}

std::vector<core::Fact> Maintenance::first_facts() const {
  std::vector<core::Fact> facts;
  for (const auto& [device, out] : out_) facts.emplace_back(core::Serve{device, why_text(out)});
  return facts;
}

void Maintenance::happened(const core::Plan& plan, Time) {
  for (const core::Lease& lease : plan.changed) {
    if (!lease.ended()) continue;
    tried_.erase(lease.id);
    told_.erase(lease.id);
  }
}

// -------------------------------------------------------------------------------- drains

Time Maintenance::due(Time now) {
  if (std::exchange(look_at_errors_, false)) cordon_failed(now);
  if (out_.empty()) return Time::never();
  Time next = Time::never();
  for (const auto& [device, out] : out_) {
    if (out.mode != Mode::drain) continue;
    if (!engine_.rules().safe_mode) next = std::min(next, carry_on(out, now));
    if (!out.deadline) continue;
    for (const Time at : {*out.deadline, after(*out.deadline, engine_.rules().grace)})
      if (at > now) next = std::min(next, at);
  }
  for (const auto& [lease, tried] : tried_)
    if (const Time at = tried.at + try_again_after; !tried.problem.empty() && at > now) next = std::min(next, at);
  tell_changes(now);
  return next;
}

// Returns when to be called next, at the latest.
Time Maintenance::carry_on(const OutOfService& out, Time now) {
  Time next = Time::never();
  for (const LeaseId id : leases_on(engine_.state(), out.device)) {
    const core::Lease* lease = core::find(engine_.state(), id);  // each decision may change the others
    if (lease == nullptr) continue;
    const auto tried = tried_.find(id);
    const Act act = next_act(out, *lease, tried == tried_.end() ? std::nullopt : std::optional(tried->second), now);
    if (act == Act::pause) pause(out, *lease, now);
    else if (act == Act::end) end(out, *lease);
    else if (lease->state == LeaseState::active) {
      tell_unpausable(out, *lease, now);
      next = std::min(next, save(out, *lease, now));
    }
  }
  return next;
}

// A session that the deadline would end begins its end earlier: its checkpoint command has its time before.
Time Maintenance::save(const OutOfService& out, const core::Lease& lease, Time now) {
  if (!out.deadline || !sessions_.checkpoint_time || problem_of(lease).empty()) return Time::never();
  const auto takes = sessions_.checkpoint_time(lease.id);
  if (!takes) return Time::never();
  const Time at = *out.deadline - *takes;
  if (at > now) return at;
  sessions_.end(lease.id, name_of_device(out.device) + " is " + why_text(out));
  return Time::never();
}

// -------------------------------------------------------------------------------- errors of devices

void Maintenance::know(const std::string& device, const Errors& errors) {
  if (known_[device] == errors) return;
  known_[device] = errors;
  rows_.store(std::string(errors_key) + device);
}

// A device that is out of service stays as it is: its admin learns of its errors by its condition.
void Maintenance::cordon_failed(Time now) {
  if (engine_.rules().safe_mode) look_at_errors_ = true;  // afterwards
  if (engine_.rules().safe_mode || cordon_on_.empty()) return;
  std::vector<OutOfService> failed;
  std::set<std::string> cards;
  for (const auto& [uuid, device] : engine_.state().devices.by_uuid) cards.insert(card_of(device));
  for (const std::string& uuid : cards) {
    const gpu::Facts* facts = engine_.observer().condition(uuid);
    if (facts == nullptr || out_.contains(uuid)) continue;
    const Errors errors = errors_of(*facts);
    const std::string text = new_errors(known_[uuid], errors, cordon_on_);
    if (text.empty()) {
      know(uuid, forget_gone(known_[uuid], errors));
      continue;
    }
    know(uuid, learn(known_[uuid], errors));
    failed.push_back({.device = uuid, .by = "Sublet", .reason = text, .since = now, .automatic = true});
  }
  for (OutOfService& out : failed) take_out(std::move(out));
}

void Maintenance::pause(const OutOfService& out, const core::Lease& lease, Time now) {
  const LeaseId id = lease.id;
  core::ReasonArgs args = core::args("device", name_of_device(out.device), "why", out.reason);
  const core::PauseCause cause{core::PauseCauseKind::drain, {}, std::move(args)};
  const auto done = engine_.decide(core::Pause{id, 0, cause, engine_.observer().host_memory(&lease)});
  tried_[id] = {now, done ? std::string() : done.error().detail};
  if (done) return;
  log::warn({.lease = id}, "{} is drained, and the lease cannot be paused: {}", name_of_device(out.device),
            done.error().detail);
  if (const core::Lease* still = core::find(engine_.state(), id)) tell_unpausable(out, *still, now);
}

std::string Maintenance::problem_of(const core::Lease& lease) const {
  if (lease.pausable == core::Pausable::no) return "it is never paused (--pausable no)";
  const auto tried = tried_.find(lease.id);
  if (tried == tried_.end()) return {};
  return tried->second.problem.empty() ? "its last pause failed" : tried->second.problem;
}

void Maintenance::tell_unpausable(const OutOfService& out, const core::Lease& lease, Time now) {
  const std::string problem = problem_of(lease);
  if (problem.empty() || !told_.insert(lease.id).second) return;
  core::ReasonArgs args = args_of(out);
  args.add("problem", problem);
  if (out.deadline) args.add("within", std::max(*out.deadline - now, Duration{}));
  (void)engine_.decide(core::Remark{lease.id, core::ReasonKind::draining, std::move(args)});
}

void Maintenance::end(const OutOfService& out, const core::Lease& lease) {
  const LeaseId id = lease.id;
  log::warn({.lease = id}, "{} is ended: {} is {}, and the deadline has passed", core::name_of(lease),
            name_of_device(out.device), why_text(out));
  core::End end{.lease = id, .why = core::EndReason::revoked, .kind = core::ReasonKind::drain_ended};
  end.args = args_of(out);
  end.args.add("problem", problem_of(lease));
  if (const auto done = engine_.decide(end); !done) log::error("{}", done.error().detail);
}

// -------------------------------------------------------------------------------- told

std::vector<Maintenance::Resident> Maintenance::residents(const OutOfService& out) const {
  std::vector<Resident> all;
  for (const LeaseId id : leases_on(engine_.state(), out.device)) {
    const core::Lease& lease = *core::find(engine_.state(), id);
    Resident its{id, std::string(core::to_string(lease.state)), {}, lease.state != LeaseState::paused};
    if (out.mode == Mode::drain && lease.state == LeaseState::active) its.problem = problem_of(lease);
    if (lease.state == LeaseState::poisoned) its.problem = "it is poisoned, and Sublet does not end its program";
    all.push_back(std::move(its));
  }
  return all;
}

std::string Maintenance::state_of(const OutOfService& out, Time now) const {
  if (out.mode == Mode::cordon) return "cordoned";
  const auto all = residents(out);
  if (std::ranges::none_of(all, &Resident::stays)) return "drained";
  const bool late = out.deadline && after(*out.deadline, engine_.rules().grace) <= now;
  return late ? "late" : "draining";
}

void Maintenance::tell_changes(Time now) {
  std::map<std::string, std::string> states;
  for (const auto& [device, out] : out_) states[device] = state_of(out, now);
  const auto tell = [&](const std::string& device, std::string_view state, const OutOfService* out) {
    JsonText text;
    text.begin_object().field("type", "service").field("at", format_rfc3339(now));
    text.field("device", name_of_device(device)).field("uuid", device).field("state", state);
    text.field("by", out == nullptr ? std::nullopt : std::optional(out->by));
    text.field("reason", out == nullptr ? std::nullopt : some(out->reason));
    text.field("deadline",
               out == nullptr || !out->deadline ? std::nullopt : std::optional(format_rfc3339(*out->deadline)));
    engine_.tell({"service", text.end_object().take()});
    if (state == "late") log::warn("the drain of {} is late", name_of_device(device));
    if (state == "drained") log::info("{} is drained", name_of_device(device));
  };
  for (const auto& [device, state] : states)
    if (const auto before = states_.find(device); before == states_.end() || before->second != state)
      tell(device, state, &out_.at(device));
  for (const auto& [device, state] : states_)
    if (!states.contains(device)) tell(device, "in_service", nullptr);
  states_ = std::move(states);
}

std::vector<engine::Warning> Maintenance::warnings(Time now) const {
  std::vector<engine::Warning> all;
  for (const auto& [device, out] : out_) {
    if (out.automatic)
      all.push_back(
          {"device-cordoned",
           fmt::format("Sublet cordoned {} at {}: {}", name_of_device(device), format_rfc3339(out.since), out.reason),
           fmt::format("repair or reset the device; `sublet gpu uncordon {}` takes it back into service",
                       name_of_device(device)),
           out.since});
    if (state_of(out, now) != "late") continue;
    std::string leases;
    for (const Resident& its : residents(out)) {
      if (!its.stays) continue;
      leases += (leases.empty() ? "" : "; ") + to_string(its.lease) + " (" + its.state + ")";
    }
    all.push_back({"drain-late",
                   fmt::format("{} should be drained since {}, and is not: {}", name_of_device(device),
                               format_rfc3339(*out.deadline), leases),
                   "`sublet why LEASE` tells why it is still there; `sublet gpu uncordon` takes the device back", now});
  }
  return all;
}

std::string Maintenance::device_field(std::string_view name, const std::string& device) const {
  if (name != "service") return {};
  const std::string* closed = core::closed_by(engine_.state(), device);
  const OutOfService* out = find(closed == nullptr ? device : *closed);
  if (out == nullptr) return "null";
  JsonText text;
  text.begin_object().field("state", state_of(*out, engine_.now())).field("since", format_rfc3339(out->since));
  text.field("by", out->by).field("reason", some(out->reason));
  text.field("deadline", out->deadline ? std::optional(format_rfc3339(*out->deadline)) : std::nullopt);
  text.key("leases").begin_array();
  for (const Resident& its : residents(*out)) {
    text.begin_object().field("lease", to_string(its.lease)).field("state", its.state);
    text.field("problem", some(its.problem)).end_object();
  }
  return text.end_array().end_object().take();
}

}  // namespace sublet::maintenance
