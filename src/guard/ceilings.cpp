// SPDX-License-Identifier: Apache-2.0
#include "guard/ceilings.h"

#include "base/log.h"
#include "base/size_bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace sublet::guard {
namespace {

// A program that is paused for its soft limit is not paused again before this time.
constexpr Duration pause_again_after = std::chrono::minutes(1);

bool started_here(const core::Lease& lease) {
  return lease.owner.kind == core::OwnerKind::process && lease.owner.keeper;
}

Bytes free_on(const core::Device& device) {
  return device.reading.total - device.reading.driver_reserved - device.reading.used;
}

std::string name_of(const core::Device& device) { return fmt::format("gpu{}", device.reading.index); }

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
    const auto device = engine_.state().devices().find(uuid);
    const Bytes used = engine_.state().charge(lease.id, uuid).used;
    if (device == engine_.state().devices().end() || used <= limits.soft_limit) continue;
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
  // A program that is paused or ended needs its processor time for that.
  if (known != watched_.end() && (!limited || lease.state != core::LeaseState::active))
    let_run(lease.id, known->second);
  if (lease.ended() || !limited) {
    watched_.erase(lease.id);
    return;
  }
  Watched& watched = watched_[lease.id];
  if (watched.limits == limits) return;
  const Bytes before = watched.limits.ceiling;
  if (limits.ceiling > Bytes{} && before > limits.ceiling) watched.lowered_at = engine_.now();
  watched.limits = limits;
  watched.limited_at = engine_.now();
  engine_.take_snapshot();
}

void Ceilings::loaded() {
  watched_.clear();
  over_.clear();
  for (const auto& [id, lease] : engine_.state().leases()) note(lease);
}

void Ceilings::decided(const core::Plan& plan) {
  for (const core::Lease& lease : plan.changed) note(lease);
}

void Ceilings::measure(const core::Lease& lease, Watched& watched, Time now) {
  const Limits limits = limits_of(lease);
  bool over_soft = false;
  for (const std::string& uuid : lease.devices) {
    const auto device = engine_.state().devices().find(uuid);
    if (device == engine_.state().devices().end() || !device->second.read_at) continue;
    const Bytes used = engine_.state().charge(lease.id, uuid).used;
    const Time read_at = *device->second.read_at;
    auto& [before, at] = watched.last[uuid];
    if (at.ns != 0 && read_at > at && used > before) {
      const double seconds = std::chrono::duration<double>(read_at - at).count();
      watched.rate = std::max(watched.rate, static_cast<std::int64_t>(static_cast<double>((used - before).count) /
                                                                      std::max(seconds, 1e-3)));
    }
    if (read_at > at) before = used, at = read_at;
    if (read_at < watched.limited_at) {  // it may have freed memory since
      next_ = std::min(next_, now + shortest_sample);
      continue;
    }
    const Act act = judge(used, limits, free_on(device->second));
    over_soft = over_soft || act != Act::none;
    if (act != Act::none) over_.push_back({lease.id, act, name_of(device->second), used, limits});
    if (limits.ceiling > Bytes{}) next_ = std::min(next_, now + next_sample(used, limits.ceiling, watched.rate));
  }
  if (over_soft) return;
  watched.warned = false;
  let_run(lease.id, watched);
}

void Ceilings::measured(Time now) {
  over_.clear();
  next_ = Time::never();
  for (auto& [id, watched] : watched_) {
    const core::Lease* lease = engine_.state().find(id);
    if (lease != nullptr && lease->state == core::LeaseState::active) measure(*lease, watched, now);
  }
  // The first to go has the lowest tier, then the lowest priority, then the most above its ceiling.
  const auto order = [this](const Over& over) {
    const core::Lease& lease = *engine_.state().find(over.lease);
    return std::tuple(lease.tier, lease.priority, (over.limits.ceiling - over.used).count);
  };
  std::ranges::sort(over_, {}, order);
}

Time Ceilings::due(Time now) {
  for (Over& over : std::exchange(over_, {})) act_on(std::move(over), now);
  if (next_ <= now) {
    next_ = Time::never();  // the snapshot says when the one after it is due
    engine_.take_snapshot();
  }
  return next_;
}

void Ceilings::act_on(Over over, Time now) {
  const core::Lease* lease = engine_.state().find(over.lease);
  const auto watched = watched_.find(over.lease);
  if (lease == nullptr || watched == watched_.end() || lease->state != core::LeaseState::active) return;
  if (watched->second.limits != over.limits) return;  // they changed since the reading
  if (over.act == Act::warn) {
    approach(over, watched->second);
    return pause(over, now);
  }
  // A ceiling that was just lowered below the use is no leak: the program gets its grace.
  if (now - watched->second.lowered_at < core::over_limit_grace) over.act = Act::end;
  log::warn({.lease = over.lease}, "{} of {} uses {} on {}, more than its ceiling of {}: its program is {}",
            lease->consumer, lease->user, format_size(over.used), over.device, format_size_down(over.limits.ceiling),
            over.act == Act::kill ? "killed" : "ended");
  core::End end{.lease = over.lease, .kill = over.act == Act::kill};
  end.args = core::args("used", over.used, "device", over.device, "ceiling", over.limits.ceiling);
  if (const auto done = engine_.decide(end); !done) log::error("{}", done.error().detail);
}

// Slows the program down, and warns when it is known whether that works.
void Ceilings::approach(const Over& over, Watched& watched) {
  if (soft_cpu_ == 0) {
    if (!std::exchange(watched.warned, true)) warn(over, std::nullopt);
    return;
  }
  if (watched.slowed != Slowed::no) return;
  watched.slowed = Slowed::asked;
  engine_.limit_cpu(over.lease, soft_cpu_, [this, over](const engine::CpuLimited& done) {
    const auto found = watched_.find(over.lease);
    if (found == watched_.end() || found->second.slowed != Slowed::asked) return;
    found->second.slowed = done.why_not.empty() ? Slowed::yes : done.passes ? Slowed::no : Slowed::refused;
    if (!std::exchange(found->second.warned, true)) warn(over, done.why_not);
  });
}

void Ceilings::let_run(LeaseId lease, Watched& watched) {
  const Slowed before = std::exchange(watched.slowed, Slowed::no);
  if (before == Slowed::no || before == Slowed::refused) return;
  engine_.limit_cpu(lease, 0, [lease](const engine::CpuLimited& done) {
    if (!done.why_not.empty()) log::warn({.lease = lease}, "its processor time is still limited: {}", done.why_not);
  });
}

// `unlimited`: why its processor time is not limited; "": it is limited; unset: nobody tried.
void Ceilings::warn(const Over& over, std::optional<std::string> unlimited) {
  const core::Lease& lease = *engine_.state().find(over.lease);
  log::warn({.lease = lease.id}, "{} of {} uses {} on {}, more than its soft limit of {}", lease.consumer, lease.user,
            format_size(over.used), over.device, format_size_down(over.limits.soft_limit));
  const auto percent = unlimited && unlimited->empty() ? std::optional<std::int64_t>(soft_cpu_) : std::nullopt;
  core::ReasonArgs args = over_soft_args(over.used, over.device, over.limits, percent);
  args.add("unlimited", std::move(unlimited));
  (void)engine_.decide(core::Remark{over.lease, core::ReasonKind::over_soft_limit, std::move(args)});
}

// Whether a waiting lease would fit with the memory of this one.
bool Ceilings::is_wanted(const core::Lease& lease) const {
  const core::State& state = engine_.state();
  return std::ranges::any_of(state.leases(), [&](const auto& entry) {
    const core::Lease& waiter = entry.second;
    if (waiter.state != core::LeaseState::queued || waiter.device_count != 1) return false;
    return std::ranges::any_of(lease.devices, [&](const std::string& uuid) {
      const auto device = state.devices().find(uuid);
      if (device == state.devices().end()) return false;
      if (!waiter.wanted_device.empty() && waiter.wanted_device != uuid) return false;
      const Bytes free = state.effective_free(device->second, engine_.rules(), engine_.now());
      return waiter.least() <= free + state.charged(lease, uuid);
    });
  });
}

// Others need the memory: the program is paused, and queues behind them to resume.
void Ceilings::pause(const Over& over, Time now) {
  const core::Lease* lease = engine_.state().find(over.lease);
  const auto watched = watched_.find(over.lease);
  if (lease == nullptr || watched == watched_.end() || lease->state != core::LeaseState::active) return;
  if (lease->pausable == core::Pausable::no || now - watched->second.paused_at < pause_again_after) return;
  if (!is_wanted(*lease)) return;
  watched->second.paused_at = now;
  const core::PauseCause cause{core::PauseCauseKind::soft_limit, {}, core::args("soft", over.limits.soft_limit)};
  if (engine_.decide(core::Pause{over.lease, 0, cause, engine_.host_memory(lease)}))
    (void)engine_.decide(core::Resume{over.lease});
}

}  // namespace sublet::guard
