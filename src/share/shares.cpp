// SPDX-License-Identifier: Apache-2.0
#include "share/shares.h"

#include "base/json_text.h"
#include "base/log.h"
#include "credit/pages.h"
#include "state/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace sublet::share {
namespace {

constexpr double ns_per_second = 1e9;

bool is_held(const core::Lease& lease) { return lease.share > 0 && lease.share < 100; }

// Percent of the device's time, by the card; unset: it does not tell for each process.
struct Shown {
  std::optional<int> all = 0, held = 0;
};
Shown shown_of(const core::DeviceReading& reading, LeaseId lease, const std::set<ProcessRef>& held) {
  Shown shown;
  for (const core::ProcessUse& use : reading.processes) {
    if (use.lease != lease || use.graphics_only) continue;
    if (!use.computing_percent) return {std::nullopt, std::nullopt};
    shown.all = std::min(*shown.all + *use.computing_percent, 100);
    if (held.contains(use.process)) shown.held = std::min(*shown.held + *use.computing_percent, 100);
  }
  return shown;
}

// Rounded to parts of `unit`.
std::string number(double value, double unit = 10) { return fmt::format("{}", std::round(value * unit) / unit); }

}  // namespace

int Shares::percent(LeaseId lease) const {
  const core::Lease* found = core::find(engine_.state(), lease);
  return found != nullptr ? found->share : 0;
}

Shares::Shares(engine::Engine& engine, Duration interval_idle)
    : engine_(engine), longest_window_(std::max<Duration>(std::chrono::seconds(5), 3 * interval_idle)) {}

Result<int> Shares::page(LeaseId lease, std::uint32_t devices) {
  const core::Lease* found = core::find(engine_.state(), lease);
  if (found == nullptr || !is_held(*found)) return -1;
  if (const auto known = pages_.find(lease); known != pages_.end()) return known->second.get();
  auto made = credit::make_share_page(devices);
  if (!made) return made.error();
  return pages_.emplace(lease, std::move(*made)).first->second.get();
}

Shares::OnDevice& Shares::on(LeaseId lease, const std::string& device) {
  return leases_[lease].try_emplace(device, Audit(longest_window_)).first->second;
}

std::uint32_t Shares::take_use(LeaseId lease, const std::string& device, const credit::ComputeUse& use,
                               const std::set<ProcessRef>& members) {
  const core::Lease* found = core::find(engine_.state(), lease);
  if (found == nullptr || !is_held(*found)) return usual_gain;
  OnDevice& its = on(lease, device);
  its.use = use;
  its.held = members;
  return its.audit.gain();
}

void Shares::look_at(const core::Lease& lease, const std::string& device) {
  const core::Device* read = core::find_device(engine_.state(), device);
  if (read == nullptr || !read->read_at || !read->problem.empty()) return;
  OnDevice& its = on(lease.id, device);
  const Shown shown = shown_of(read->reading, lease.id, its.held);
  its.audit.look(*read->read_at, its.use.busy, shown.all, shown.held, lease.share);
}

void Shares::loaded(const store::Loaded&, Time) { forget_ended(); }

void Shares::forget_ended() {
  std::erase_if(slowed_, [this](const auto& entry) { return core::find(engine_.state(), entry.first) == nullptr; });
  const auto has_ended = [this](const auto& entry) {
    const core::Lease* lease = core::find(engine_.state(), entry.first);
    return (lease == nullptr || lease->ended()) && !slowed_.contains(entry.first);
  };
  std::erase_if(pages_, has_ended);
  std::erase_if(leases_, has_ended);
}

// Each use up to the newest reading is taken in by now. A lease whose processes never asked for it is looked at, too.
Time Shares::due(Time now) {
  for (const auto& [id, lease] : engine_.state().leases.by_id)
    if (lease.state == core::LeaseState::active && is_held(lease))
      for (const std::string& device : lease.devices) look_at(lease, device);
  Time next = Time::never();
  for (const auto& [id, devices] : leases_)
    if (const core::Lease* lease = core::find(engine_.state(), id)) next = std::min(next, slow(*lease, now));
  forget_ended();
  return next;
}

// A program that is paused, or was asked to end, needs its processor time for that. Returns when to look again.
Time Shares::slow(const core::Lease& lease, Time now) {
  std::optional<double> used;
  Time read_at;
  std::optional<Excess> excess;
  std::string device;
  for (const auto& [uuid, on] : leases_.at(lease.id)) {
    if (lease.state != core::LeaseState::active || lease.stop_requested || on.audit.is_stale(now)) continue;
    if (on.audit.used() > used) used = on.audit.used(), read_at = on.audit.read_at();
    if (on.audit.excess() && (!excess || on.audit.excess()->percent > excess->percent))
      excess = on.audit.excess(), device = uuid;
  }
  auto known = slowed_.find(lease.id);
  if (known == slowed_.end()) {
    if (!excess) return Time::never();
    known = slowed_.emplace(lease.id, Slowed{.excess = *excess, .device = device}).first;
  }
  Slowed& slowed = known->second;
  if (slowed.is_asked) return Time::never();
  slowed.throttle.look(read_at, slowed.is_final ? std::nullopt : used, excess.has_value(), lease.share);
  if (slowed.throttle.percent() == slowed.in_force) {
    if (slowed.in_force == 0 && !excess) slowed_.erase(known);
    return Time::never();
  }
  if (now < slowed.lift_again) return slowed.lift_again;
  order(lease.id, slowed);
  return Time::never();
}

void Shares::order(LeaseId lease, Slowed& slowed) {
  const int percent = slowed.throttle.percent();
  slowed.is_asked = true;
  const auto done = [this, lease, percent](const machine::CpuLimited& result) { answered(lease, percent, result); };
  engine_.machine().programs->limit_cpu(lease, machine::CpuCause::share, percent, done);
}

// A limit that was not changed is still in force, and is lifted next.
void Shares::answered(LeaseId lease, int percent, const machine::CpuLimited& done) {
  const auto found = slowed_.find(lease);
  if (found == slowed_.end()) return;
  Slowed& slowed = found->second;
  slowed.is_asked = false, slowed.is_answered = true;
  if (done.why_not.empty()) {
    slowed.in_force = percent;
    if (percent > 0) slowed.why_not.clear();
    slowed.logged.clear();
  } else {
    slowed.throttle.reset();
    if (done.passes) slowed.in_force = 0;  // no actor limits the program
    if (percent > 0) slowed.why_not = done.why_not, slowed.is_final = !done.passes;
    else slowed.lift_again = engine_.now() + window;
    if (std::exchange(slowed.logged, done.why_not) != done.why_not)
      log::warn({.lease = lease}, "the limit of its processor time is not {}: {}", percent > 0 ? "set" : "lifted",
                done.why_not);
  }
  engine_.call_capabilities();
}

// The text stays the same while the warning lasts: another text would be another event.
std::vector<engine::Warning> Shares::warnings(Time) const {
  std::vector<engine::Warning> all;
  for (const auto& [id, slowed] : slowed_) {
    const core::Lease* lease = core::find(engine_.state(), id);
    if (lease == nullptr || !slowed.is_answered) continue;
    std::string text =
        fmt::format("{} has used {:.0f} % of the computing time of {}, and its share is {} %", core::name_of(*lease),
                    slowed.excess.percent, core::device_names(engine_.state(), {slowed.device}).front(), lease->share);
    if (slowed.in_force > 0) text += "; its program gets less processor time until it is within its share";
    else if (!slowed.why_not.empty()) text += fmt::format("; its processor time is not limited: {}", slowed.why_not);
    all.push_back({"share_exceeded", std::move(text),
                   fmt::format("sublet why {} names processes that its limit does not hold", to_string(id)),
                   slowed.excess.since});
  }
  return all;
}

std::string Shares::lease_field(std::string_view name, const core::Lease& lease) const {
  const auto known = leases_.find(lease.id);
  if (name != "share_use" || known == leases_.end()) return {};
  double busy = 0, waited = 0;
  JsonText out;
  out.begin_object().key("devices").begin_array();
  for (const auto& [uuid, on] : known->second) {
    busy += static_cast<double>(on.use.busy) / ns_per_second;
    waited += static_cast<double>(on.use.waited) / ns_per_second;
    out.begin_object().field("uuid", uuid).key("used_percent");
    const bool is_stale = on.audit.is_stale(engine_.now());
    if (const auto used = on.audit.used(); used && !is_stale) out.raw(number(*used));
    else out.value(nullptr);
    out.key("gain").raw(number(on.audit.gain() / 1000.0, 1000));
    out.field("exceeded", on.audit.excess() && !is_stale).end_object();
  }
  out.end_array().key("busy_seconds").raw(number(busy)).key("waited_seconds").raw(number(waited));
  out.key("processor_percent");
  if (const auto slowed = slowed_.find(lease.id); slowed != slowed_.end() && slowed->second.in_force > 0)
    out.value(slowed->second.in_force);
  else out.value(nullptr);
  return out.end_object().take();
}

}  // namespace sublet::share
