// SPDX-License-Identifier: Apache-2.0
#include "engine/observer.h"

#include "base/log.h"
#include "engine/engine.h"
#include "explain/over_limit.h"
#include "state/reconfigured.h"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace sublet::engine {
namespace {

namespace asio = boost::asio;

// A scan of the process table for the same processes is repeated after this time.
constexpr Duration scan_again = std::chrono::milliseconds(900);
// A program needs longer to start and allocate. One reading in this time costs few percent of a processor.
constexpr Duration as_good_as_now = std::chrono::milliseconds(10);
// A driver that hangs delays no caller for longer: the snapshot in progress and the next one are late by then.
constexpr Duration longest_look = 2 * machine::late_after;
constexpr Duration long_first_reading = std::chrono::seconds(5);
constexpr auto quiet = asio::as_tuple(asio::use_awaitable);

}  // namespace

Observer::Observer(Engine& engine, const Machine& machine, asio::io_context& io)
    : engine_(engine),
      state_(engine.state()),
      io_(io),
      host_(*machine.host),
      probe_(*machine.probe),
      actor_(*machine.actor),
      programs_(*machine.programs),
      first_reading_alarm_(machine.alarm()) {}

void Observer::start() {
  probe_.start({.snapshot = [this](gpu::GpuSnapshot snapshot,
                                   std::int64_t asked_ns) { on_snapshot(std::move(snapshot), asked_ns); },
                .problem = [this](const std::string& problem) { fail(problem, INT64_MAX, false); },
                .late = [this](const std::string& problem) { fail(problem, INT64_MAX, true); }});
  first_reading_alarm_->set(long_first_reading, [this] {
    const auto warning = unread_warning(engine_.now());
    if (!warning) return;
    log::warn("{}", warning->text);
    engine_.tell_changes();
  });
}

void Observer::stop() {
  stopping_ = true;
  probe_.stop();
  end_looks(INT64_MAX);
  first_reading_alarm_->cancel();
}

// --- snapshots ---

// A driver that answers with an error does so at each reading.
void Observer::note_reading(const std::string& problem) {
  if (problem.empty()) has_read_ = true;
  const std::string before = std::exchange(unread_, problem);
  if (before == problem) return;
  if (problem.empty()) log::info("the GPUs can be read again");
  else log::warn("the GPUs cannot be read, no lease is granted: {}; retrying", problem);
}

std::optional<Warning> Observer::unread_warning(Time now) const {
  constexpr auto hint = "'sublet doctor' checks the driver";
  const std::string& problem = probe_.problem().empty() ? state_.devices.snapshot_problem : probe_.problem();
  if (!problem.empty()) return Warning{"gpu", "the GPUs cannot be read, no lease is granted: " + problem, hint, now};
  if (has_read_ || now - engine_.clock().started_at() < long_first_reading) return std::nullopt;
  return Warning{"gpu", "no GPU has been read since the daemon's start, no lease is granted", hint,
                 engine_.clock().started_at()};
}

// No usable snapshot came. A late one may still come, and answers the questions about locked processes.
void Observer::fail(const std::string& problem, std::int64_t asked_ns, bool is_late) {
  engine_.tick(core::SnapshotFailed{problem});
  if (!is_late) engine_.executor().fail_measurements(problem);
  end_looks(asked_ns);
  engine_.tell_changes();
}

core::DeviceReading Observer::reading(const gpu::GpuDevice& device) {
  core::DeviceReading reading{.uuid = device.uuid,
                              .name = device.name,
                              .index = device.index,
                              .pci_bus_id = device.pci_bus_id,
                              .simulated = device.simulated,
                              .link_per_second = device.link_per_second,
                              .total = device.total,
                              .driver_reserved = device.driver_reserved,
                              .used = device.used,
                              .processes = {},
                              .problem = device.problem,
                              .lost = device.lost,
                              .busy_percent = device.busy_percent,
                              .links = device.links,
                              .parent = device.parent,
                              .slice = device.slice,
                              .unified = device.unified,
                              .for_system = device.unified ? engine_.options().unified_headroom : Bytes{}};
  if (device.mig) {
    // The card itself is no device any more: what was leased there ends as on a lost card, and nothing is granted.
    reading.lost = true;
    if (reading.problem.empty()) reading.problem = std::string(core::in_mig_mode);
  }
  if (!device.simulated && !device.uuid.empty()) {
    if (const Status locked = host_.lock_card(device.uuid); !locked) reading.problem = locked.error().detail;
  }
  for (const gpu::GpuProcess& process : device.processes) {
    const proc::Member* member = programs_.member(process.process);
    core::ProcessUse use{process.process, process.used, member != nullptr ? member->lease : LeaseId{}};
    use.busy_percent = process.busy_percent;
    use.computing_percent = process.computing_percent;
    use.graphics_only = process.graphics_only;
    if (!use.lease) use.name = programs_.name(use.process);  // the name is shown to leases that wait for its bytes
    reading.processes.push_back(std::move(use));
  }
  return reading;
}

const gpu::Facts* Observer::condition(const std::string& uuid) const {
  const auto found = conditions_.find(uuid);
  return found == conditions_.end() ? nullptr : &found->second;
}

core::Snapshot Observer::snapshot_of(const gpu::GpuSnapshot& judged, Time began) {
  core::Snapshot snapshot{.began = began, .devices = {}};
  for (const gpu::GpuDevice& device : judged.devices) {
    if (!device.uuid.empty()) {
      snapshot.devices.push_back(reading(device));
      conditions_.insert_or_assign(device.uuid, device.facts);
    } else if (device.lost) {
      snapshot.lost = device.problem;
    } else {
      snapshot.unnamed = device.problem.empty() ? "it has no UUID" : device.problem;
    }
  }
  snapshot.host = host_memory();
  snapshot.host.may_swap = false;
  return snapshot;
}

void Observer::on_snapshot(gpu::GpuSnapshot raw, std::int64_t asked_ns) {
  const Engine::Transaction transaction(engine_);
  // A reading from before a sleep would look newer than it is.
  if (asked_ns < engine_.clock().woke_at_ns()) return probe_.take_now();
  const gpu::GpuSnapshot judged = gpu::judge(std::move(raw));
  note_reading(judged.problem);
  if (!judged.problem.empty()) return fail(judged.problem, asked_ns, false);
  divided_.clear();
  std::ranges::copy_if(judged.devices, std::back_inserter(divided_), &gpu::GpuDevice::mig);
  scan_for(judged);
  watch_groups(true);
  std::map<std::string, std::string> lost;  // ids by uuid
  for (const auto& [uuid, device] : state_.devices.by_uuid) {
    if (device.lost && device.read_at) lost.emplace(uuid, device.reading.id());
  }
  const Time began = engine_.clock().at_monotonic(asked_ns);
  engine_.tick(snapshot_of(judged, began));
  activities_.observe(state_, engine_.rules(), engine_.now());
  engine_.executor().measure(began);
  watch_away();
  watch_stopped();
  watch_sizes();
  engine_.tell_plans();
  engine_.capabilities().measured(engine_.now());
  looked_ns_ = asked_ns;
  end_looks(asked_ns);
  for (const auto& [uuid, id] : lost) {
    if (!state_.devices.by_uuid.contains(uuid))
      log::warn("{} ({}) was gone for longer than gpu.forget_after and is forgotten", id, uuid);
  }
  engine_.tell_changes();
}

// Reads the process table again, unless the last scan is recent and the snapshot lists the same processes. Near a
// ceiling there are dozens of snapshots a second, and a scan is the largest part of their cost.
void Observer::scan_for(const gpu::GpuSnapshot& snapshot) {
  std::set<ProcessRef> listed;
  for (const gpu::GpuDevice& device : snapshot.devices)
    for (const gpu::GpuProcess& process : device.processes) listed.insert(process.process);
  const bool recent = engine_.now() - scanned_at_ < scan_again && looks_.empty() && !any_moves();
  if (recent && listed == scanned_for_) return;
  programs_.scan();
  scanned_for_ = std::move(listed);
  scanned_at_ = engine_.now();
}

asio::awaitable<void> Observer::look() {
  const auto done = std::make_shared<asio::steady_timer>(io_, asio::steady_timer::time_point::max());
  const Look look{monotonic_ns(), done};
  const bool just_looked = look.since_ns - looked_ns_ <= as_good_as_now.count();
  if (stopping_ || just_looked || !probe_.problem().empty()) co_return;
  looks_.push_back(look);
  probe_.take_now();
  const auto waits = [this, done] {
    return std::ranges::any_of(looks_, [&](const Look& other) { return other.done == done; });
  };
  done->expires_after(std::chrono::duration_cast<asio::steady_timer::duration>(longest_look));
  while (waits() && monotonic_ns() - look.since_ns < longest_look.count()) co_await done->async_wait(quiet);
  std::erase_if(looks_, [&](const Look& other) { return other.done == done; });
}

void Observer::end_looks(std::int64_t asked_ns) {
  while (!looks_.empty() && looks_.front().since_ns <= asked_ns) {
    looks_.front().done->cancel();
    looks_.pop_front();
  }
}

// Counts leases that begin to use more than they leased.
void Observer::watch_sizes() {
  decltype(over_) are;
  for (const auto& [uuid, device] : state_.devices.by_uuid) {
    if (device.leased_used <= explain::over_slack) continue;
    for (const auto& [bytes, id] : device.by_charge) {
      if (explain::over_size(state_, *core::find(state_, id), uuid) <= Bytes{}) continue;
      are.emplace(id, uuid);
      if (!over_.contains({id, uuid})) engine_.went_over(uuid);
    }
  }
  over_ = std::move(are);
}

void Observer::pace(Time now) {
  probe_.set_busy(state_.queue.size() > 0 || !settling_.empty() || now < busy_until_ || any_moves());
}

}  // namespace sublet::engine
