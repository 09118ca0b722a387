// SPDX-License-Identifier: Apache-2.0
// Observations and waiters: snapshots, held leases, waits, reads of the store, warnings.
#include "engine/engine.h"

#include "base/log.h"
#include "core/format.h"
#include "explain/over_limit.h"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace sublet::engine {
namespace {

namespace asio = boost::asio;
// Number of ended leases that are answered without the store.
// A scan of the process table for the same processes is repeated after this time.
constexpr Duration scan_again = std::chrono::milliseconds(900);

constexpr std::size_t recently_ended_limit = 1024;
// Warning limit of free space on the store's disk: with less, it may be full before an admin looks.
constexpr Bytes little_room = 64 * MiB;
// A program needs longer to start and allocate. One reading in this time costs few percent of a processor.
constexpr Duration as_good_as_now = std::chrono::milliseconds(10);
// A driver that hangs delays no caller for longer: the snapshot in progress and the next one are late by then.
constexpr Duration longest_look = 2 * machine::late_after;
constexpr auto quiet = asio::as_tuple(asio::use_awaitable);

Warning safe_mode_warning(const core::SafeMode& safe, Time now) {
  return {"safe-mode",
          core::safe_mode_text(safe) +
              ". No lease is granted, paused or resumed; running programs continue and can be stopped",
          core::safe_mode_hint(safe), now};
}

std::optional<Warning> device_warning(const std::string& uuid, const core::Device& device, Duration max_age, Time now) {
  const std::string name = fmt::format("gpu{} ({})", device.reading.index, uuid);
  if (device.lost) {
    return Warning{"device-lost", name + " is gone: " + device.problem, "look for Xid messages in the kernel's log",
                   now};
  }
  if (!device.problem.empty()) {
    return Warning{"device", name + " is not leased: " + device.problem, "'sublet gpus' shows its last reading", now};
  }
  if (device.read_at && now - *device.read_at <= max_age) return std::nullopt;
  return Warning{"device-stale", name + " is not leased: its last reading is too old",
                 "'sublet doctor' checks the driver", now};
}

Warning unkillable_warning(LeaseId id, const std::string& why, Time now) {
  const std::string reason =
      why.empty() ? "its keeper is gone, and nothing proves that the pids still belong to it" : why;
  return {"unkillable", fmt::format("the daemon cannot end the program of {}: {}", to_string(id), reason),
          fmt::format("'sublet ps -o id,pid' shows its pid; end it by hand, and '{}' ends with it", to_string(id)),
          now};
}

// Without the bytes, which change all the time; /v1/ledger has them.
Warning swapped_warning(const core::Lease& lease, Time now) {
  return {"parked-swapped",
          fmt::format("the parked program of {} ({}, {}) is partly swapped out: it will resume slowly",
                      to_string(lease.id), lease.consumer, lease.user),
          fmt::format(
              "'sublet status' shows how much; set memory.swap.max = 0 in its cgroup, or resume it: 'sublet resume {}'",
              to_string(lease.id)),
          now};
}

// Without the result of each try, which is in the lease's reasons.
Warning not_back_warning(const core::Lease& lease, Time now) {
  return {
      "not-back",
      fmt::format("the paused program of {} ({}, {}) is not running again yet", to_string(lease.id), lease.consumer,
                  lease.user),
      fmt::format("the daemon retries; 'sublet why {}' shows the obstacle and what would help", to_string(lease.id)),
      now};
}

Warning poisoned_warning(const core::State& state, const core::Lease& lease, Time now) {
  return {"poisoned",
          fmt::format("the program of {} ({}, {}) is poisoned and can never run again: {}", to_string(lease.id),
                      lease.consumer, lease.user, core::text_of(lease.parking->cause)),
          fmt::format("its owner or an admin must end it: {} ends it and frees its memory",
                      core::end_command(state, lease)),
          now};
}

// Without the bytes, which change all the time.
Warning over_warning(const core::Lease& lease, const core::Device& device, Time now) {
  return {"over-lease",
          fmt::format("{} ({}, {}) uses more than the {} that it leased on gpu{}", to_string(lease.id), lease.consumer,
                      lease.user, format_size(lease.vram), device.reading.index),
          fmt::format("'sublet ps' shows how much; its owner can enlarge the lease (sublet resize {0} SIZE) or end it "
                      "(sublet stop {0})",
                      to_string(lease.id)),
          now};
}

// Without the free bytes, which change all the time. On a full disk the store fails and returns repeatedly: a failure
// frees enough space for a few commits.
Warning disk_warning(const store::DiskRoom& room, Time now) {
  return {"disk",
          fmt::format("less than {} are free in {}, the store's directory: no lease is granted once the disk is full",
                      format_size(little_room), room.directory),
          "free space on that disk", now};
}

}  // namespace

Warning store_warning(const std::string& problem, Time since) {
  return {"store", "the store is not usable, no lease is granted: " + problem,
          "running programs continue; acknowledged changes are kept", since};
}

// --- safe mode ---

// Safe mode ends by itself. Then waiting leases can be granted.
void Engine::watch_safe_mode() {
  const auto& safe = options_.rules.safe_mode;
  if (!safe) return;
  const Warning warning = safe_mode_warning(*safe, now());
  log::error("{} ({})", warning.text, warning.hint);
  safe_mode_over_->set(std::max(safe->until - now(), Duration{}), [this] {
    options_.rules.safe_mode.reset();
    log::warn("safe mode is over: leases are granted again");
    tick(core::Tick{});
    probe_.take_now();
    tell_changes();
  });
}

// --- snapshots ---

core::DeviceReading Engine::reading(const gpu::GpuDevice& device) {
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
                              .busy_percent = device.busy_percent};
  if (!device.simulated && !device.uuid.empty()) {
    if (const Status locked = host_.lock_card(device.uuid); !locked) reading.problem = locked.error().detail;
  }
  for (const gpu::GpuProcess& process : device.processes) {
    const proc::Member* member = programs_.member(process.process);
    core::ProcessUse use{process.process, process.used, member != nullptr ? member->lease : LeaseId{}};
    use.busy_percent = process.busy_percent;
    use.graphics_only = process.graphics_only;
    if (!use.lease) use.name = programs_.name(use.process);  // the name is shown to leases that wait for its bytes
    reading.processes.push_back(std::move(use));
  }
  return reading;
}

void Engine::on_snapshot(gpu::GpuSnapshot raw, std::int64_t asked_ns) {
  const Transaction transaction(*this);
  (void)notice();
  if (asked_ns < woke_at_ns_) return probe_.take_now();  // a reading from before a sleep would look newer than it is
  const gpu::GpuSnapshot judged = gpu::judge(std::move(raw));
  note_reading(judged.problem);
  if (!judged.problem.empty()) {
    tick(core::SnapshotFailed{judged.problem});
    fail_measurements(judged.problem);
    end_looks(asked_ns);
    tell_changes();
    return;
  }
  scan_for(judged);
  watch_groups();
  core::Snapshot snapshot{.began = clock_.at_monotonic(asked_ns), .devices = {}};
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
  std::map<std::string, int> lost;
  for (const auto& [uuid, device] : state_.devices.by_uuid) {
    if (device.lost && device.read_at) lost.emplace(uuid, device.reading.index);
  }
  snapshot.host = host_memory();
  snapshot.host.may_swap = false;
  const Time began = snapshot.began;
  tick(snapshot);
  activities_.observe(state_, options_.rules, now());
  measure_weighed(began);
  watch_away();
  watch_stopped();
  watch_sizes();
  tell_capabilities();
  for (Capability* capability : capabilities_) capability->measured(now());
  call_capabilities();
  looked_ns_ = asked_ns;
  end_looks(asked_ns);
  for (const auto& [uuid, index] : lost) {
    if (!state_.devices.by_uuid.contains(uuid))
      log::warn("gpu{} ({}) was gone for longer than gpu.forget_after and is forgotten", index, uuid);
  }
  tell_changes();
}

const gpu::Facts* Engine::condition(const std::string& uuid) const {
  const auto found = conditions_.find(uuid);
  return found == conditions_.end() ? nullptr : &found->second;
}

// A group that cannot be read says nothing, and its lease stays as it is.
void Engine::watch_groups() {
  std::vector<core::Lease> owned;  // copies, because a report may end a lease
  for (const auto& [id, lease] : state_.leases.by_id)
    if (lease.owner.kind == core::OwnerKind::group && !lease.ended()) owned.push_back(lease);
  for (const core::Lease& lease : owned) {
    const auto group = programs_.look_at_group(lease.owner.cgroup);
    if (!group) continue;
    const bool lives = group->populated && group->inode == lease.owner.inode;
    if (!lives || lease.state == core::LeaseState::offered)
      tick(core::GroupReport{lease.id, group->populated, group->inode});
  }
}

// Reads the process table again, unless the last scan is recent and the snapshot lists the same processes. Near a
// ceiling there are dozens of snapshots a second, and a scan is the largest part of their cost.
void Engine::scan_for(const gpu::GpuSnapshot& snapshot) {
  std::set<ProcessRef> listed;
  for (const gpu::GpuDevice& device : snapshot.devices)
    for (const gpu::GpuProcess& process : device.processes) listed.insert(process.process);
  const bool recent = clock_.now() - scanned_at_ < scan_again && looks_.empty() && !any_moves();
  if (recent && listed == scanned_for_) return;
  programs_.scan();
  scanned_for_ = std::move(listed);
  scanned_at_ = clock_.now();
}

asio::awaitable<void> Engine::look() {
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

void Engine::end_looks(std::int64_t asked_ns) {
  while (!looks_.empty() && looks_.front().since_ns <= asked_ns) {
    looks_.front().done->cancel();
    looks_.pop_front();
  }
}

// Counts leases that begin to use more than they leased.
void Engine::watch_sizes() {
  decltype(over_) are;
  for (const auto& [uuid, device] : state_.devices.by_uuid) {
    if (device.leased_used <= explain::over_slack) continue;
    for (const auto& [bytes, id] : device.by_charge) {
      if (explain::over_size(state_, *core::find(state_, id), uuid) <= Bytes{}) continue;
      are.emplace(id, uuid);
      if (!over_.contains({id, uuid})) counters_.went_over(uuid);
    }
  }
  over_ = std::move(are);
}

void Engine::pace_probe(Time now) {
  probe_.set_busy(state_.queue.size() > 0 || !settling_.empty() || now < busy_until_ || any_moves());
}

void Engine::keep_ended(const core::Lease& lease) {
  if (recently_ended_.insert_or_assign(lease.id, lease).second) recently_ended_order_.push_back(lease.id);
  if (recently_ended_order_.size() <= recently_ended_limit) return;
  recently_ended_.erase(recently_ended_order_.front());
  recently_ended_order_.pop_front();
}

// --- connections that hold leases ---

void Engine::hold(LeaseId lease, SessionId session, std::int32_t pid) {
  auto& sessions = holders_[lease];
  sessions.insert(session);
  held_by_[session].insert(lease);
  if (sessions.size() == 1 && core::find(state_, lease) != nullptr) tick(core::HeldChanged{lease, true, pid});
}

void Engine::unhold(LeaseId lease, SessionId session) {
  const auto found = holders_.find(lease);
  if (found == holders_.end() || found->second.erase(session) == 0) return;
  if (const auto held = held_by_.find(session); held != held_by_.end()) held->second.erase(lease);
  if (!found->second.empty()) return;
  holders_.erase(found);
  if (const core::Lease* held = core::find(state_, lease); held != nullptr && !held->ended()) {
    tick(core::HeldChanged{lease, false});
  }
}

void Engine::shows(SessionId session, std::uint64_t token, std::function<void()> revoked) {
  Bearer& bearer = bearers_[session];
  bearer.tokens.insert(token);
  bearer.revoked = std::move(revoked);
}

void Engine::session_closed(SessionId session) {
  bearers_.erase(session);
  const auto found = held_by_.find(session);
  if (found == held_by_.end()) return;
  const auto leases = std::move(found->second);
  held_by_.erase(found);
  for (const LeaseId lease : leases) unhold(lease, session);
}

// An ended lease has no holder, however long a connection stays open.
void Engine::forget_holders(LeaseId lease) {
  const auto found = holders_.find(lease);
  if (found == holders_.end()) return;
  for (const SessionId session : found->second) held_by_[session].erase(lease);
  holders_.erase(found);
}

void Engine::not_held(LeaseId lease) {
  if (!holders_.contains(lease) && core::find(state_, lease) != nullptr) tick(core::HeldChanged{lease, false});
}

void Engine::announce(LeaseId lease) {
  const auto [first, last] = watchers_.equal_range(lease);
  for (auto it = first; it != last; ++it) it->second->cancel();
}

Engine::Watchers::iterator Engine::watch(LeaseId lease) {
  return watchers_.emplace(lease, std::make_shared<asio::steady_timer>(io_));
}

void Engine::unwatch(Watchers::iterator watcher) { watchers_.erase(watcher); }

// --- the event stream ---

// Makes events for changes since the last call, and notes the start of each warning. Makes no event while it cannot be
// durable. A change that lasts until the store is back gets its event then.
void Engine::tell_changes() {
  hand_over();  // what was decided before comes first
  auto wrong = warnings();
  if (!store_problem_.empty()) return;
  write_events(log_.of_changes(state_, options_.rules, std::move(wrong), now()), now());
}

void Engine::tell_opened(const std::optional<Warning>& was_down, Time now) {
  std::vector<EventLog::Event> events;
  if (was_down) {  // could not be stored before
    events.push_back(log_.of_warning(*was_down, true, was_down->since));
    events.push_back(log_.of_warning(*was_down, false, now));
  }
  if (!std::exchange(told_start_, true)) events.push_back(log_.of_daemon("started", now));
  write_events(events, now);
}

void Engine::write_events(const std::vector<EventLog::Event>& events, Time now) {
  if (events.empty()) return;
  store::Batch batch{.events = events, .now = now};
  if (!std::exchange(life_stored_, true)) batch.life = log_.life();
  hand_to_store(std::move(batch));
  log_.intended(intended_, events);
}

Engine::Followers::iterator Engine::follow(std::shared_ptr<asio::steady_timer> timer) {
  return followers_.insert(followers_.end(), std::move(timer));
}

void Engine::wake_followers() {
  for (const auto& timer : followers_) timer->cancel();
}

asio::awaitable<void> Engine::new_events(std::chrono::steady_clock::time_point deadline) {
  auto timer = std::make_shared<asio::steady_timer>(io_, deadline);
  const auto entry = followers_.insert(followers_.end(), timer);
  co_await timer->async_wait(quiet);
  followers_.erase(entry);
}

// --- reading the store ---

void Engine::read_store(std::function<std::function<void()>(store::Reader&)> work) {
  store_.read([this, work = std::move(work)](store::Reader& reader) { asio::post(io_, work(reader)); });
}

bool Engine::maybe_remembered(std::uint32_t uid, const std::string& key) const {
  return store_.maybe_remembered(uid, key);
}

void Engine::remembered(std::uint32_t uid, const std::string& key,
                        std::function<void(Result<std::optional<store::Remembered>>)> done) {
  read_store([uid, key, done = std::move(done)](store::Reader& reader) {
    return [done, found = reader.remembered(uid, key)] { done(found); };
  });
}

std::vector<Warning> Engine::warnings() {
  std::vector<Warning> all;
  if (options_.rules.safe_mode) all.push_back(safe_mode_warning(*options_.rules.safe_mode, now()));
  if (!store_problem_.empty()) all.push_back(store_warning(store_problem_, store_problem_since_));
  if (const auto room = store_.disk_room(); room && room->left < little_room) all.push_back(disk_warning(*room, now()));
  if (auto slow = slow_store_warning()) all.push_back(std::move(*slow));
  if (auto unread = unread_warning()) all.push_back(std::move(*unread));
  for (const auto& [uuid, device] : state_.devices.by_uuid) {
    if (auto warning = device_warning(uuid, device, options_.rules.max_age, now())) {
      all.push_back(std::move(*warning));
    }
  }
  for (const Capability* capability : capabilities_)
    for (Warning& warning : capability->warnings(now())) all.push_back(std::move(warning));
  if (!actor_.problem().empty()) {
    // The system's daemon also has its helpers started by the actor.
    const std::string lost = options_.mode == "system"
                                 ? "programs cannot be parked, and programs without a keeper cannot be ended"
                                 : "programs without a keeper cannot be ended";
    all.push_back({"actor", lost + ": the actor does not work: " + actor_.problem(), actor_.hint(), now()});
  }
  std::erase_if(unkillable_, [this](const auto& entry) { return core::find(state_, entry.first) == nullptr; });
  for (const auto& [id, why] : unkillable_) all.push_back(unkillable_warning(id, why, now()));
  for (const auto& [id, bytes] : swapped_) {
    if (const core::Lease* lease = core::find(state_, id)) all.push_back(swapped_warning(*lease, now()));
  }
  for (const auto& [id, uuid] : over_) {
    const core::Lease* lease = core::find(state_, id);
    const auto device = state_.devices.by_uuid.find(uuid);
    if (lease == nullptr || device == state_.devices.by_uuid.end()) continue;
    if (explain::over_size(state_, *lease, uuid) > Bytes{}) all.push_back(over_warning(*lease, device->second, now()));
  }
  for (const LeaseId id : state_.pauses.away) {
    const core::Lease& lease = *core::find(state_, id);
    if (lease.state == core::LeaseState::poisoned) all.push_back(poisoned_warning(state_, lease, now()));
    if (!core::resume_failure(state_, id).empty()) all.push_back(not_back_warning(lease, now()));
  }
  std::map<std::string, Time> since;
  for (Warning& warning : all) {
    const std::string name = warning.code + " " + warning.text;
    const auto before = warned_since_.find(name);
    if (before != warned_since_.end()) warning.since = before->second;
    since.emplace(name, warning.since);
  }
  warned_since_ = std::move(since);
  return all;
}

}  // namespace sublet::engine
