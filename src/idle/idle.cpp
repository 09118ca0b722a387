// SPDX-License-Identifier: Apache-2.0
#include "idle/idle.h"

#include "base/json_text.h"
#include "base/log.h"
#include "base/number.h"
#include "explain/explain.h"
#include "state/format.h"

#include <algorithm>
#include <array>

namespace sublet::idle {
namespace {

using Activity = engine::LeaseActivity::State;

// A lease whose pause was refused or undone is not tried again before this time.
constexpr Duration try_again_after = std::chrono::minutes(1);
// A rule that is due needs a new reading. Without one, it is asked for again after this time.
constexpr Duration ask_again_after = std::chrono::seconds(1);
// An idle lease stays paused while one of so many leases at the head of the queue may want its memory.
constexpr std::size_t most_waiters = 100;

core::ReasonArgs limits(const InForce& rule, bool always, std::string rule_text) {
  const auto set = [](const Part& part) { return part.after > Duration{} ? std::optional(part.after) : std::nullopt; };
  core::ReasonArgs args = core::args("pause", set(rule.pause));
  args.add("waiting", !always);
  args.add("end", set(rule.end));
  args.add("rule", std::move(rule_text));
  return args;
}

}  // namespace

// -------------------------------------------------------------------------------- rules of leases

Idle::Idle(engine::Engine& engine, Options options)
    : engine_(engine),
      options_(std::move(options)),
      rows_(engine, "",
            [this](LeaseId id) {
              const auto own = own_.find(id);
              return to_row(id, own == own_.end() ? OwnRule() : own->second);
            }),
      reclaimable_(engine, core::PauseCauseKind::idle) {}

void Idle::submitted(const core::Lease& lease, const Rule& own, bool session) {
  const OwnRule rule{own, session};
  if (rule == OwnRule{}) return;
  own_[lease.id] = rule;
  rows_.store(lease.id);
}

InForce Idle::rule_of(const core::Lease& lease) const {
  const auto own = own_.find(lease.id);
  return resolve(options_.rules, lease, own == own_.end() ? OwnRule() : own->second);
}

bool Idle::has_paused(const core::Lease& lease) {
  return lease.parking && lease.parking->cause.kind == core::PauseCauseKind::idle &&
         (lease.state == core::LeaseState::paused || lease.state == core::LeaseState::pausing);
}

void Idle::loaded(const store::Loaded& rows, Time) {
  own_.clear();
  rows_.clear();
  reclaimable_.loaded();
  for (auto* known : {&warned_, &ending_, &tried_}) known->clear();  // the orders may be lost with the store
  why_not_.clear();
  for (const store::CapabilityRow& row : rows.rows) {
    if (row.kind != row_kind) continue;
    const auto id = parse_number<std::uint64_t>(row.key);
    const auto own = own_rule_from_row(row);
    if (id && own) own_[LeaseId{*id}] = *own;
    else log::error("{}", own ? "an idle rule is stored for no lease" : own.error().detail);
  }
}

void Idle::happened(const core::Plan& plan, Time) {
  reclaimable_.happened(plan);
  for (const core::Lease& lease : plan.changed) {
    if (lease.state == core::LeaseState::paused) tried_.erase(lease.id);
    if (!lease.ended()) continue;
    if (own_.erase(lease.id) > 0) rows_.store(lease.id);
    for (auto* known : {&warned_, &ending_, &tried_}) known->erase(lease.id);
    why_not_.erase(lease.id);
  }
}

// -------------------------------------------------------------------------------- the rules at work

std::optional<Idle::Quiet> Idle::quiet(const core::Lease& lease, Time now) const {
  const bool paused_by_rule = lease.state == core::LeaseState::paused && has_paused(lease);
  if (lease.state != core::LeaseState::active && !paused_by_rule) return std::nullopt;
  if (lease.stop_requested || (lease.parking && (lease.parking->then_stop || lease.parking->resume_requested)))
    return std::nullopt;
  if (options_.is_resting && options_.is_resting(lease.id)) return std::nullopt;
  engine::LeaseActivity activity = engine_.observer().activity(lease.id);
  // It was paused before the daemon began: the idle time begins again.
  if (paused_by_rule && activity.last == Time{})
    activity.last = std::max(lease.parking->since, engine_.clock().undisturbed_since());
  if (activity.last == Time{} || (!paused_by_rule && activity.state != Activity::idle)) return std::nullopt;
  const InForce rule = rule_of(lease);
  if (rule.is_nothing()) return std::nullopt;
  return Quiet{lease, rule, activity.last, now - activity.last};
}

void Idle::note_next(const Quiet& quiet) {
  for (const Part& part : {quiet.rule.warn, quiet.rule.pause, quiet.rule.end})
    if (part.after > quiet.idle) next_ = std::min(next_, quiet.last + part.after);
}

Time Idle::due(Time now) {
  if (std::exchange(fresh_, false)) look(now);
  if (next_ <= now) {
    next_ = now + ask_again_after;
    engine_.observer().take_snapshot();
  }
  return next_;
}

void Idle::look(Time now) {
  next_ = Time::never();
  if (own_.empty() && options_.rules.named.empty() && options_.rules.standard.is_off()) return;
  const auto is_due = [](const Part& part, const Quiet& quiet) {
    return part.after > Duration{} && part.after <= quiet.idle;
  };
  std::vector<LeaseId> to_end, to_bring_back;
  std::vector<LeaseId> to_warn;
  std::set<LeaseId> to_declare;
  for (const auto& [id, lease] : engine_.state().leases.by_id) {
    if (cause_is_over(lease)) to_bring_back.push_back(id);
    const auto its = quiet(lease, now);
    if (!its) continue;
    note_next(*its);
    const auto warned = warned_.find(id);
    if (is_due(its->rule.end, *its)) to_end.push_back(id);
    else if (is_due(its->rule.warn, *its) && (warned == warned_.end() || warned->second != its->last))
      to_warn.push_back(id);
    if (is_due(its->rule.pause, *its) && !is_due(its->rule.end, *its) && lease.state == core::LeaseState::active &&
        lease.pausable != core::Pausable::no)
      to_declare.insert(id);
  }
  // Each decision may change other leases, so that each lease is looked at again.
  const auto again = [&](LeaseId id) {
    const core::Lease* lease = core::find(engine_.state(), id);
    return lease == nullptr ? std::nullopt : quiet(*lease, now);
  };
  for (const LeaseId id : to_warn)
    if (const auto its = again(id)) warn(*its);
  for (const LeaseId id : to_end)
    if (const auto its = again(id)) end(*its);
  for (const LeaseId id : to_bring_back)
    if (const core::Lease* lease = core::find(engine_.state(), id); lease != nullptr && cause_is_over(*lease))
      bring_back(id);
  for (const auto& [id, terms] : std::map(reclaimable_.made()))
    if (!to_declare.contains(id)) reclaimable_.withdraw(id);
  for (const LeaseId id : to_declare)
    if (const auto its = again(id)) options_.always ? pause_alone(*its, now) : declare(*its);
}

void Idle::warn(const Quiet& quiet) {
  const core::Lease& lease = quiet.lease;
  warned_[lease.id] = quiet.last;
  log::warn({.lease = lease.id}, "{} has done nothing for {}", core::name_of(lease), format_duration(quiet.idle));
  core::ReasonArgs args = core::args("devices", core::device_names(engine_.state(), lease.devices), "idle", quiet.idle);
  args.add(limits(quiet.rule, options_.always, rule_text(quiet.rule.warn.source, lease)));
  (void)engine_.decide(core::Remark{lease.id, core::ReasonKind::idle_warned, std::move(args)});
}

void Idle::end(const Quiet& quiet) {
  const core::Lease& lease = quiet.lease;
  const LeaseId id = lease.id;
  const std::string rule = rule_text(quiet.rule.end.source, lease);
  const std::string why = fmt::format("its program has done nothing for {}, and its idle rule allows {} ({})",
                                      format_duration(quiet.idle), format_duration(quiet.rule.end.after), rule);
  // A session logs what becomes of it, and may leave its end to the next reading.
  if (options_.end_session && options_.end_session(id, why)) return;
  const auto known = ending_.find(id);
  if (known != ending_.end() && known->second == quiet.last) return;
  ending_[id] = quiet.last;
  log::warn({.lease = id}, "{} is ended: {}", core::name_of(lease), why);
  if (lease.state == core::LeaseState::active) {
    core::End end{.lease = id, .why = core::EndReason::expired, .kind = core::ReasonKind::idle_ended};
    end.args = core::args("idle", quiet.idle, "limit", quiet.rule.end.after, "rule", rule);
    if (const auto done = engine_.decide(end); !done) log::error("{}", done.error().detail);
    return;
  }
  // A paused program is resumed first, so that it can save its work.
  core::ReasonArgs args = core::args("devices", core::device_names(engine_.state(), lease.devices), "idle", quiet.idle);
  args.add("ending", true);
  args.add("rule", rule);
  (void)engine_.decide(core::Remark{id, core::ReasonKind::idle_warned, std::move(args)});
  const core::Release release{.lease = id, .stop = true, .asked_by = lease.uid};
  if (const auto done = engine_.decide(release); !done) log::error("{}", done.error().detail);
}

// For those that wait. A session gives its memory back instead of a pause, if its program does not use it.
void Idle::declare(const Quiet& quiet) {
  const LeaseId id = quiet.lease.id;
  const bool may_rest = options_.may_rest && options_.may_rest(id);
  if (may_rest && reclaimable_.wanted_for(id)) {
    (void)options_.rest_session(id, fmt::format("its program has done nothing for {}", format_duration(quiet.idle)));
    return;
  }
  if (const std::string problem = explain::why_never_paused(engine_.state(), quiet.lease);
      !may_rest && !problem.empty()) {
    if (std::exchange(why_not_[id], problem) != problem)
      log::warn({.lease = id}, "it has done nothing for {} and cannot be paused: {}", format_duration(quiet.idle),
                problem);
    return reclaimable_.withdraw(id);
  }
  why_not_.erase(id);
  reclaimable_.declare(id, {.taken = may_rest ? core::Reclaim::Taken::give_back : core::Reclaim::Taken::pause,
                            .since = quiet.last,
                            .since_as = "idle"});
}

// idle.when = "always": although nobody waits. One after the other on each device.
void Idle::pause_alone(const Quiet& quiet, Time now) {
  const core::Lease& lease = quiet.lease;
  const LeaseId id = lease.id;
  const auto tried = tried_.find(id);
  const auto moves = [this](const std::string& uuid) { return engine_.state().devices.by_uuid.at(uuid).pausing > 0; };
  if ((tried != tried_.end() && now - tried->second < try_again_after) || std::ranges::any_of(lease.devices, moves))
    return;
  const std::string why = fmt::format("its program has done nothing for {}", format_duration(quiet.idle));
  if (options_.rest_session && options_.rest_session(id, why)) return;
  const core::PauseCause cause{core::PauseCauseKind::idle, {}, core::args("idle", quiet.idle)};
  const auto done = engine_.decide(core::Pause{id, 0, cause, engine_.observer().host_memory(&lease)});
  tried_[id] = now;
  if (done) {
    why_not_.erase(id);
    return;
  }
  why_not_[id] = done.error().detail;
  log::warn({.lease = id}, "it has done nothing for {} and cannot be paused: {}", format_duration(quiet.idle),
            done.error().detail);
}

void Idle::bring_back(LeaseId id) {
  log::info({.lease = id}, "comes back: the lease for which it was paused has ended, and nobody waits");
  if (const auto done = engine_.decide(core::Resume{id}); !done) log::error("{}", done.error().detail);
}

// Its memory is free, or the lease for which it was paused has ended, and nobody waits for its devices.
bool Idle::cause_is_over(const core::Lease& lease) const {
  if (options_.always || lease.state != core::LeaseState::paused || !has_paused(lease)) return false;
  if (lease.parking->resume_requested || lease.parking->then_stop || !lease.parking->cause.preemptor) return false;
  const core::Lease* preemptor = core::find(engine_.state(), lease.parking->cause.preemptor);
  const auto is_free = [&](const std::string& uuid) {
    const auto device = engine_.state().devices.by_uuid.find(uuid);
    return device != engine_.state().devices.by_uuid.end() &&
           core::free_on(engine_.state(), device->second, engine_.rules(), engine_.now()) >=
               core::need_on(engine_.state(), lease, uuid);
  };
  if (preemptor != nullptr && !preemptor->ended() && !std::ranges::all_of(lease.devices, is_free)) return false;
  return !is_waited_for(lease);
}

// One of the first leases of the queue may run on a device of this lease.
bool Idle::is_waited_for(const core::Lease& lease) const {
  return std::ranges::any_of(engine_.state().queue.in_order(most_waiters), [&](LeaseId id) {
    const core::Lease& waiter = *core::find(engine_.state(), id);
    return std::ranges::any_of(lease.devices, [&](const std::string& uuid) {
      return waiter.waits_in_place() ? std::ranges::count(waiter.devices, uuid) > 0 : core::may_use(waiter, uuid);
    });
  });
}

// -------------------------------------------------------------------------------- shown

std::string Idle::lease_field(std::string_view name, const core::Lease& lease) const {
  if (name != "idle" || lease.ended()) return {};
  const InForce rule = rule_of(lease);
  if (rule.is_nothing()) return {};
  JsonText out;
  out.begin_object();
  const std::array<std::pair<const char*, Part>, 3> parts{
      {{"warn", rule.warn}, {"pause", rule.pause}, {"end", rule.end}}};
  for (const auto& [word, part] : parts) {
    const auto seconds = part.after / std::chrono::seconds(1);
    out.field(fmt::format("{}_seconds", word), part.after > Duration{} ? std::optional(seconds) : std::nullopt);
    out.field(fmt::format("{}_from", word), to_string(part.source));
  }
  const auto why_not = why_not_.find(lease.id);
  out.key("problem");
  if (why_not != why_not_.end()) out.value(why_not->second);
  else if (rule.pause.after > Duration{} && lease.pausable == core::Pausable::no)
    out.value("the lease is never paused (--pausable no)");
  else out.value(nullptr);
  return out.end_object().take();
}

}  // namespace sublet::idle
