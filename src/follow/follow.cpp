// SPDX-License-Identifier: Apache-2.0
#include "follow/follow.h"

#include "base/log.h"
#include "base/number.h"
#include "explain/over_limit.h"
#include "state/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>

namespace sublet::follow {
namespace {

using core::Lease;
using core::LeaseState;

constexpr std::string_view row_kind = "keep_running";
// A decision that the store refused is made again after this time.
constexpr Duration retry_after = std::chrono::seconds(1);

bool started_here(const Lease& lease) {
  return lease.owner.kind == core::OwnerKind::process && static_cast<bool>(lease.owner.keeper);
}

std::string device_name(const core::State& state, const std::string& uuid) {
  return core::device_names(state, {uuid}).front();
}

// The first process without a lease on the devices of this lease that may do its work: it was started after the lease's
// program, by the same user or by a service of root.
struct Other {
  const core::ProcessUse* use = nullptr;
  const core::Device* device = nullptr;
};
std::optional<Other> other_work(const core::State& state, const proc::ProcRoot& root, const Lease& lease) {
  for (const std::string& uuid : lease.devices) {
    const core::Device* device = core::find_device(state, uuid);
    if (device == nullptr || device->unleased <= core::reading_slack) continue;
    for (const core::ProcessUse& use : device->reading.processes) {
      const bool later = use.process.start_ticks > lease.owner.process.start_ticks;
      if (use.lease || !later || use.used.value_or(Bytes{}) <= core::reading_slack) continue;
      const auto process = root.read(use.process.pid);
      if (process && process->ref == use.process && may_do_work_of(process->uid, lease.uid)) return Other{&use, device};
    }
  }
  return std::nullopt;
}

}  // namespace

// -------------------------------------------------------------------------------- rows

Follow::Follow(engine::Engine& engine, Options options)
    : engine_(engine), options_(std::move(options)), rows_(engine, "", [this](LeaseId id) -> store::CapabilityRow {
        return {std::string(row_kind), fmt::format("{}", id.number), keep_running_.contains(id) ? "{}" : ""};
      }) {}

void Follow::submitted(const Lease& lease, bool keep_running) {
  if (!keep_running) return;
  keep_running_.insert(lease.id);
  rows_.store(lease.id);
}

void Follow::loaded(const store::Loaded& rows, Time) {
  keep_running_.clear(), rows_.clear(), lost_.clear(), strays_.clear();
  for (const store::CapabilityRow& row : rows.rows) {
    if (row.kind != row_kind) continue;
    if (const auto id = parse_number<std::uint64_t>(row.key)) keep_running_.insert(LeaseId{*id});
    else log::error("a program that runs on without its keeper is stored for no lease");
  }
}

void Follow::happened(const core::Plan& plan, Time) {
  for (const Lease& lease : plan.changed) {
    if (!lease.ended()) continue;
    if (keep_running_.erase(lease.id) > 0) rows_.store(lease.id);
    std::erase_if(strays_, [&](const auto& entry) { return entry.first.first == lease.id; });
  }
}

// -------------------------------------------------------------------------------- killed keepers

Time Follow::due(Time now) {
  for (auto& [id, loss] : std::exchange(lost_, {}))
    if (!end_without_keeper(id, loss)) lost_[id] = loss;
  if (std::exchange(fresh_, false)) look_at_strays(now);
  return lost_.empty() ? Time::never() : now + retry_after;
}

// A caller that kills `sublet run` means the program: it gets the way of every other end. False: try it again.
bool Follow::end_without_keeper(LeaseId id, Loss& loss) {
  const Lease* lease = core::find(engine_.state(), id);
  if (lease == nullptr || lease->ended() || !started_here(*lease) || engine_.programs().keeper_alive(id)) return true;
  const bool ends = !keep_running_.contains(id) || lease->stop_requested;
  if (!loss.told) {
    log::warn({.lease = id}, "its keeper (pid {}) was killed: its program {}", lease->owner.keeper.pid,
              ends ? "is ended" : "runs on, and its exit status stays unknown");
    loss.told = static_cast<bool>(engine_.decide(core::Remark{
        id, core::ReasonKind::keeper_killed, core::args("keeper", lease->owner.keeper.pid, "ends", ends)}));
  }
  if (!ends || lease->stop_requested) return loss.told;
  const auto done = engine_.decide(core::Release{.lease = id, .stop = true});
  if (!done) log::error("{} is not ended: {}", to_string(id), done.error().detail);
  return loss.told && done;
}

// -------------------------------------------------------------------------------- devices that were not leased

Treatment Follow::treatment_on(const core::Device& device, LeaseId lease) const {
  if (!options_.treatment) return Treatment::observe;
  std::vector<StrayProcess> all;
  for (const core::ProcessUse& use : device.reading.processes) {
    if (use.lease != lease) continue;
    const proc::Member* member = engine_.programs().member(use.process);
    const bool program = member != nullptr && proc::is_program(member->link);
    all.push_back({options_.treatment(use.process), use.used.value_or(Bytes{}), use.graphics_only, !program});
  }
  return treatment_of(all, explain::over_slack);
}

void Follow::look_at_strays(Time now) {
  const core::State& state = engine_.state();
  const auto strays = explain::stray_uses(state);
  std::erase_if(strays_, [&](const auto& entry) {
    return std::ranges::none_of(
        strays, [&](const explain::Stray& stray) { return entry.first == Place(stray.lease, stray.device); });
  });
  const bool is_settled =
      now - engine_.clock().undisturbed_since() >= options_.start_grace && !engine_.rules().safe_mode;
  const bool may_end = is_settled && std::ranges::all_of(state.devices.by_uuid, [](const auto& entry) {
                         return entry.second.problem.empty() && !entry.second.lost;
                       });
  for (const explain::Stray& stray : strays) {
    const Lease* lease = core::find(state, stray.lease);
    const core::Device* device = core::find_device(state, stray.device);
    if (lease == nullptr || lease->state != LeaseState::active || device == nullptr) continue;
    Sightings& seen = strays_[{stray.lease, stray.device}];
    see(seen, options_.interval, now);
    const Act act = judge(seen, treatment_on(*device, lease->id), may_end);
    if (act == Act::none || lease->stop_requested) continue;
    core::ReasonArgs args = core::args("used", stray.used, "device", device_name(state, stray.device));
    if (act == Act::tell) {
      seen.told = true;
      (void)engine_.decide(core::Remark{stray.lease, core::ReasonKind::stray_use, std::move(args)});
      continue;
    }
    log::warn({.lease = stray.lease}, "its program uses {} on {}, which it has not leased, and is ended",
              format_size(stray.used), device_name(state, stray.device));
    const core::End end{.lease = stray.lease, .kind = core::ReasonKind::stray_ended, .args = std::move(args)};
    if (const auto done = engine_.decide(end); !done) log::error("{}", done.error().detail);
  }
}

// -------------------------------------------------------------------------------- warnings

std::vector<engine::Warning> Follow::warnings(Time now) const {
  const core::State& state = engine_.state();
  std::vector<engine::Warning> all;
  for (const explain::Stray& stray : explain::stray_uses(state)) {
    const Lease* lease = core::find(state, stray.lease);
    if (lease == nullptr || lease->ended()) continue;
    const std::string device = device_name(state, stray.device);
    all.push_back({"stray-use",
                   fmt::format("{} uses memory on {}, which it has not leased", core::name_of(*lease), device),
                   fmt::format("'sublet why {0}' shows how much; its owner can lease {1} too (--gpus), keep the "
                               "program to the devices in CUDA_VISIBLE_DEVICES, or end it (sublet stop {0})",
                               to_string(stray.lease), device),
                   now});
  }
  for (const auto& [id, lease] : state.leases.by_id) {
    if (lease.state != LeaseState::active || !started_here(lease) || lease.peak_used > Bytes{}) continue;
    const auto other = other_work(state, engine_.programs().root(), lease);
    if (!other) continue;
    all.push_back(
        {"work-elsewhere",
         fmt::format("the program of {} holds no memory, and process {} ({}) without a lease, which was "
                     "started after it, holds memory on {}",
                     core::name_of(lease), other->use->process.pid, other->use->name, other->device->reading.id()),
         fmt::format("if a container engine or another service started the work for it: sublet attach {} "
                     "--pid {}",
                     to_string(id), other->use->process.pid),
         now});
  }
  return all;
}

}  // namespace sublet::follow
