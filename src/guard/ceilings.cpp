// SPDX-License-Identifier: Apache-2.0
#include "guard/ceilings.h"

#include "base/log.h"
#include "base/size_bounds.h"
#include "explain/over_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace sublet::guard {
namespace {

// A program that has resumed is not paused for its soft limit before this time.
constexpr Duration pause_again_after = std::chrono::minutes(1);

bool started_here(const core::Lease& lease) {
  return lease.owner.kind == core::OwnerKind::process && lease.owner.keeper;
}

Bytes free_on(const core::Device& device) { return device.reading.for_programs() - device.reading.used; }

std::string name_of(const core::Device& device) { return device.reading.id(); }

core::ReasonArgs over_soft_args(Bytes used, const std::string& device, const Limits& limits,
                                std::optional<std::int64_t> percent) {
  const auto ceiling = limits.ceiling > Bytes{} ? std::optional(limits.ceiling) : std::nullopt;
  return core::args("used", used, "device", device, "soft", limits.soft_limit, "ceiling", ceiling, "percent", percent);
}

}  // namespace

Limits Ceilings::limits_of(const core::Lease& lease) const {
  if (!started_here(lease)) return {};
  Limits limits{lease.ceiling, lease.soft_limit};
  if (limits.ceiling == Bytes{} && for_all_) limits.ceiling = lease.vram;
  return limits;
}

std::string Ceilings::over_soft_limit(const core::Lease& lease) const {
  const Limits limits = limits_of(lease);
  if (lease.state != core::LeaseState::active || limits.soft_limit == Bytes{}) return {};
  const auto watched = watched_.find(lease.id);
  const bool is_slowed = watched != watched_.end() && watched->second.slowed == Slowed::yes;
  const auto percent = is_slowed ? std::optional<std::int64_t>(soft_cpu_) : std::nullopt;
  for (const std::string& uuid : lease.devices) {
    const auto device = engine_.state().devices.by_uuid.find(uuid);
    const Bytes used = core::charge_on(engine_.state(), lease.id, uuid).used;
    if (device == engine_.state().devices.by_uuid.end() || used <= limits.soft_limit) continue;
    return core::text_of({.lease = lease.id,
                          .at = {},
                          .kind = core::ReasonKind::over_soft_limit,
                          .args = over_soft_args(used, name_of(device->second), limits, percent)});
  }
  return {};
}

void Ceilings::note(const core::Lease& lease) {
  const Limits limits = limits_of(lease);
  const bool limited = limits.ceiling > Bytes{} || limits.soft_limit > Bytes{};
  const auto known = watched_.find(lease.id);
  // A program that is paused, or was asked to end, needs its processor time for that.
  if (known != watched_.end() && (!limited || lease.state != core::LeaseState::active || lease.stop_requested))
    let_run(lease.id, known->second);
  // A program that was asked to end is watched until it has ended.
  if (!limited || (lease.ended() && !lease.stop_requested)) {
    if (reclaimable_.has(lease.id)) not_over_.push_back(lease.id);
    watched_.erase(lease.id);
    return;
  }
  Watched& watched = watched_[lease.id];
  if (watched.limits == limits) return;
  const Bytes before = watched.limits.ceiling;
  if (limits.ceiling > Bytes{} && before > limits.ceiling)
    watched.lowering = {engine_.now(), lease.parking.has_value()};
  watched.limits = limits;
  watched.limited_at = engine_.now();
  engine_.observer().take_snapshot();
}

void Ceilings::loaded() {
  watched_.clear();
  over_.clear(), not_over_.clear();
  reclaimable_.loaded();
  for (const auto& [id, lease] : engine_.state().leases.by_id) note(lease);
}

void Ceilings::happened(const core::Plan& plan) {
  reclaimable_.happened(plan);
  for (const core::Lease& lease : plan.changed) note(lease);
  for (const core::Action& action : plan.actions) {
    const auto* order = std::get_if<core::SignalProgram>(&action);
    if (order == nullptr || !order->kill) continue;
    if (const auto found = watched_.find(order->lease); found != watched_.end()) found->second.killed = true;
  }
}

std::optional<Stage> Ceilings::stage_of(const core::Lease& lease) const {
  using State = core::LeaseState;
  switch (lease.state) {
    case State::active: return Stage::runs;
    case State::pausing:
    case State::paused:
    case State::resuming: return Stage::away;
    case State::ended: return engine_.programs().inhabited(lease.id) ? std::optional(Stage::ending) : std::nullopt;
    default: return std::nullopt;
  }
}

// Notes the reading of one device, and returns what is to be judged.
Reading Ceilings::take(const core::Lease& lease, const core::Device& device, Stage stage, Watched& watched) const {
  const std::string& uuid = device.reading.uuid;
  Seen& seen = watched.last[uuid];
  Reading reading{.used = core::charge_on(engine_.state(), lease.id, uuid).used,
                  .device_free = free_on(device),
                  .lowered = watched.lowering.is_recent(engine_.now(), core::over_limit_grace)};
  const Time read_at = *device.read_at;
  if (seen.at.ns != 0 && read_at > seen.at) {
    const double seconds = std::max(std::chrono::duration<double>(read_at - seen.at).count(), 1e-3);
    const double rate = static_cast<double>(std::max(reading.used - seen.used, Bytes{}).count) / seconds;
    watched.rate = std::max(watched.rate, static_cast<std::int64_t>(rate));
    reading.coming = growth_until_signal(rate, std::exchange(seen.rate, rate));
  }
  if (stage == Stage::ending) {
    if (!seen.asked) seen.asked = seen.held = seen.at.ns != 0 ? seen.used : reading.used;
    const Time asked_at = engine_.executor().ends().asked_at(lease);
    if (asked_at == Time::never() || read_at < asked_at + request_takes) seen.held = std::max(seen.held, reading.used);
    reading.due = *seen.asked;
    reading.held = seen.held;
  } else if (stage == Stage::away) {
    reading.due = core::to_restore(engine_.state(), lease, uuid).all;
  }
  if (read_at > seen.at) seen.used = reading.used, seen.at = read_at;
  return reading;
}

void Ceilings::measure(const core::Lease& lease, Stage stage, Watched& watched, Time now) {
  const Limits limits = limits_of(lease);
  if (stage == Stage::runs) watched.lowering.it_runs(now);
  bool over_soft = false;
  for (const std::string& uuid : lease.devices) {
    const auto device = engine_.state().devices.by_uuid.find(uuid);
    if (device == engine_.state().devices.by_uuid.end() || !device->second.read_at) continue;
    const Reading reading = take(lease, device->second, stage, watched);
    if (*device->second.read_at < watched.limited_at) {  // it may have freed memory since
      next_ = std::min(next_, now + shortest_sample);
      continue;
    }
    const Act act = judge(reading, limits, stage);
    over_soft = over_soft || act != Act::none;
    if (act != Act::none) over_.push_back({lease.id, act, name_of(device->second), reading.used, limits});
    if (limits.ceiling > Bytes{})
      next_ = std::min(next_, now + next_sample(reading.used, limits.ceiling, watched.rate));
  }
  // A ceiling holds on every device, also on one that was not leased. A program may draw on the screen's device.
  for (const auto& [uuid, device] : engine_.state().devices.by_uuid) {
    if (stage != Stage::runs) break;
    const Bytes used = explain::stray_use(device, lease.id).computing;
    if (used <= Bytes{} || !device.read_at || *device.read_at < watched.limited_at) continue;
    const Act act = judge(Reading{.used = used, .device_free = free_on(device)}, limits, stage);
    over_soft = over_soft || act != Act::none;
    if (act != Act::none) over_.push_back({lease.id, act, name_of(device), used, limits});
  }
  if (over_soft) return;
  watched.warned = false;
  if (reclaimable_.has(lease.id)) not_over_.push_back(lease.id);
  let_run(lease.id, watched);
}

void Ceilings::measured(Time now) {
  over_.clear();
  next_ = Time::never();
  std::erase_if(watched_, [this](const auto& entry) { return core::find(engine_.state(), entry.first) == nullptr; });
  for (auto& [id, watched] : watched_) {
    const core::Lease& lease = *core::find(engine_.state(), id);
    if (const auto stage = stage_of(lease); stage && !watched.killed) measure(lease, *stage, watched, now);
  }
  // The first to go has the lowest tier, then the lowest priority, then the most above its ceiling.
  const auto order = [this](const Over& over) {
    const core::Lease& lease = *core::find(engine_.state(), over.lease);
    return std::tuple(lease.tier, lease.priority, (over.limits.ceiling - over.used).count);
  };
  std::ranges::sort(over_, {}, order);
}

Time Ceilings::due(Time now) {
  for (const LeaseId lease : std::exchange(not_over_, {})) reclaimable_.withdraw(lease);
  for (Over& over : std::exchange(over_, {})) act_on(std::move(over), now);
  if (next_ <= now) {
    next_ = Time::never();  // the snapshot says when the one after it is due
    engine_.observer().take_snapshot();
  }
  return next_;
}

void Ceilings::act_on(Over over, Time now) {
  const core::Lease* lease = core::find(engine_.state(), over.lease);
  const auto watched = watched_.find(over.lease);
  if (lease == nullptr || watched == watched_.end() || watched->second.limits != over.limits) return;  // they changed
  const bool is_active = lease->state == core::LeaseState::active;
  if (over.act == Act::warn) {
    if (!is_active || lease->stop_requested) return;
    approach(over, watched->second);
    return declare(over, now);
  }
  const bool kills = over.act == Act::kill;
  if (!is_active && !kills) return;
  const auto [used, ceiling] = format_sizes_finely(over.used, over.limits.ceiling);
  log::warn({.lease = over.lease}, "{} of {} uses {} on {}, more than its ceiling of {}{}: its program is {}",
            lease->consumer, lease->user, used, over.device, ceiling,
            is_active ? "" : fmt::format(", while it is {}", lease->ended() ? "to end" : core::to_string(lease->state)),
            kills ? "killed" : "ended");
  core::End end{.lease = over.lease, .kill = kills};
  end.args = core::args("used", over.used, "device", over.device, "ceiling", over.limits.ceiling);
  const auto done = engine_.decide(end);
  if (!done) log::error("{}", done.error().detail);
  // Stale: the kill was ordered before.
  if (const auto still = watched_.find(over.lease); still != watched_.end() && kills)
    still->second.killed = done || done.error().code == Code::Stale;
}

// Slows the program down, and warns when it is known whether that works.
void Ceilings::approach(const Over& over, Watched& watched) {
  if (soft_cpu_ == 0) {
    if (!std::exchange(watched.warned, true)) warn(over, std::nullopt);
    return;
  }
  if (watched.slowed != Slowed::no) return;
  watched.slowed = Slowed::asked;
  const auto limited = [this, over](const machine::CpuLimited& done) {
    const auto found = watched_.find(over.lease);
    if (found == watched_.end() || found->second.slowed != Slowed::asked) return;
    found->second.slowed = done.why_not.empty() ? Slowed::yes : done.passes ? Slowed::no : Slowed::refused;
    if (!std::exchange(found->second.warned, true)) warn(over, done.why_not);
  };
  engine_.machine().programs->limit_cpu(over.lease, machine::CpuCause::memory, soft_cpu_, limited);
}

void Ceilings::let_run(LeaseId lease, Watched& watched) {
  const Slowed before = std::exchange(watched.slowed, Slowed::no);
  if (before == Slowed::no || before == Slowed::refused) return;
  const auto lifted = [lease](const machine::CpuLimited& done) {
    if (!done.why_not.empty()) log::warn({.lease = lease}, "its processor time is still limited: {}", done.why_not);
  };
  engine_.machine().programs->limit_cpu(lease, machine::CpuCause::memory, 0, lifted);
}

// `unlimited`: why its processor time is not limited; "": it is limited; unset: nobody tried.
void Ceilings::warn(const Over& over, std::optional<std::string> unlimited) {
  const core::Lease& lease = *core::find(engine_.state(), over.lease);
  const auto [used, soft] = format_sizes_finely(over.used, over.limits.soft_limit);
  log::warn({.lease = lease.id}, "{} of {} uses {} on {}, more than its soft limit of {}", lease.consumer, lease.user,
            used, over.device, soft);
  const auto percent = unlimited && unlimited->empty() ? std::optional<std::int64_t>(soft_cpu_) : std::nullopt;
  core::ReasonArgs args = over_soft_args(over.used, over.device, over.limits, percent);
  args.add("unlimited", std::move(unlimited));
  (void)engine_.decide(core::Remark{over.lease, core::ReasonKind::over_soft_limit, std::move(args)});
}

// Others may need the memory: then the program is paused, and queues behind them to resume.
void Ceilings::declare(const Over& over, Time now) {
  const core::Lease* lease = core::find(engine_.state(), over.lease);
  if (lease == nullptr || lease->state != core::LeaseState::active || lease->pausable == core::Pausable::no) return;
  if (lease->resumed_at && now - *lease->resumed_at < pause_again_after) return;
  reclaimable_.declare(
      over.lease,
      {.taken = core::Reclaim::Taken::turn, .least = lease->tier, .args = core::args("soft", over.limits.soft_limit)});
}

}  // namespace sublet::guard
