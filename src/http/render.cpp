// SPDX-License-Identifier: Apache-2.0
#include "http/render.h"

#include "explain/over_limit.h"
#include "explain/summary.h"
#include "http/condition.h"
#include "lease/reason.h"
#include "state/blocked.h"
#include "state/format.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

json text_or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

std::int64_t seconds(Duration duration) { return std::chrono::duration_cast<std::chrono::seconds>(duration).count(); }
// Rounded up: a caller that counts the seconds down must not kill too early.
std::int64_t whole_seconds(Duration duration) { return std::chrono::ceil<std::chrono::seconds>(duration).count(); }

// The empty text stands for "none".
void maybe_text(JsonText& out, std::string_view name, const std::string& text) {
  out.key(name);
  if (text.empty()) out.value(nullptr);
  else out.value(text);
}

void maybe_time(JsonText& out, std::string_view name, const std::optional<Time>& time) {
  out.key(name);
  if (time) out.value(format_rfc3339(*time));
  else out.value(nullptr);
}

void maybe_pid(JsonText& out, std::string_view name, const ProcessRef& process) {
  out.key(name);
  if (process) out.value(process.pid);
  else out.value(nullptr);
}

// Whether its keeper was killed while its program lives.
bool is_without_keeper(const core::Lease& lease, const engine::Engine& engine) {
  return !lease.ended() && lease.owner.keeper && lease.owner.process && !engine.programs().keeper_alive(lease.id);
}

void write_owner(JsonText& out, const core::Lease& lease, const engine::Engine& engine) {
  const core::Owner& owner = lease.owner;
  out.key("owner").begin_object().field("kind", core::to_string(owner.kind));
  maybe_pid(out, "pid", owner.process);
  maybe_pid(out, "keeper_pid", owner.keeper);
  maybe_text(out, "cgroup", owner.cgroup);
  out.field("keeper_killed", is_without_keeper(lease, engine));
  out.end_object();
}

// The memory of its processes on devices that it has not leased.
void write_strays(JsonText& out, const core::Lease& lease, const core::State& state) {
  out.key("stray").begin_array();
  for (const auto& [uuid, device] : state.devices.by_uuid) {
    const Bytes used = lease.ended() ? Bytes{} : explain::stray_use(device, lease.id).used;
    if (used <= explain::over_slack) continue;
    out.begin_object().field("device", uuid).field("bytes", used.count).end_object();
  }
  out.end_array();
}

void write_resize(JsonText& out, const core::Lease& lease) {
  out.key("resize");
  if (lease.resize) {
    out.begin_object().field("vram_bytes", lease.resize->vram.count);
    out.field("since", format_rfc3339(lease.resize->queued_at)).end_object();
  } else {
    out.value(nullptr);
  }
}

// The obstacle to running the program again, as of the last attempt; "" if none is known, or if a running attempt has
// got further.
std::string problem_of(const core::Lease& lease, const engine::Engine& engine,
                       const std::optional<engine::MoveProgress>& progress) {
  if (lease.state == core::LeaseState::poisoned) return core::text_of(lease.parking->cause);
  if (lease.state == core::LeaseState::pausing)
    return core::unverified_text(engine.state(), engine.rules(), lease, engine.now());
  const bool moves = progress && progress->moved > Bytes{} && !progress->late;
  return moves ? std::string() : core::resume_failure(engine.state(), lease.id);
}

// Findings that several parts of a lease's form tell.
struct Found {
  std::optional<explain::QueueInfo> queue{};  // while it waits, if the estimate is told
  std::optional<core::Blocked> blocked{};
  std::optional<engine::MoveProgress> progress{};
  std::string problem{};  // see problem_of
};

Found find_out(const core::Lease& lease, const engine::Engine& engine, explain::Estimates& estimates, bool detailed) {
  Found found{.blocked = core::what_blocks(engine.state(), engine.rules(), lease, engine.now())};
  const bool waits = !lease.held_back_at && engine.state().queue.contains(lease.id);
  if ((detailed && waits) || (lease.parking && !lease.ended() && lease.waits_in_place()))
    found.queue = estimates.of(lease);
  if (!lease.parking || lease.ended()) return found;
  found.progress = engine.observer().progress(lease);
  found.problem = problem_of(lease, engine, found.progress);
  return found;
}

// The expected end of the pause, if known, while the lease waits to resume.
std::optional<Time> parked_until(const core::Lease& lease, const engine::Engine& engine, const Found& found) {
  if (!lease.waits_in_place() || !found.queue || !found.queue->eta) return std::nullopt;
  return engine.now() + *found.queue->eta;
}

void write_progress(JsonText& out, const std::optional<engine::MoveProgress>& progress) {
  out.key("progress");
  if (!progress) {
    out.value(nullptr);
    return;
  }
  out.begin_object().field("move", core::to_string(progress->move));
  out.field("moved_bytes", progress->moved.count).field("total_bytes", progress->total.count);
  out.field("bytes_per_second", progress->per_second.count);
  out.field("left_ms", std::chrono::duration_cast<std::chrono::milliseconds>(progress->left).count());
  out.field("measured", progress->measured).field("late", progress->late);
  out.field("under_way", progress->under_way).end_object();
}

void write_parking(JsonText& out, const core::Lease& lease, const engine::Engine& engine, const Found& found) {
  out.key("pause");
  if (!lease.parking || lease.ended()) {
    out.value(nullptr);
    return;
  }
  const core::Parking& parking = *lease.parking;
  out.begin_object().field("method", core::to_string(parking.method));
  out.field("since", format_rfc3339(parking.since));
  maybe_time(out, "until", parked_until(lease, engine, found));
  out.field("reason", core::text_of(explain::cause_now(engine.state(), parking.cause)));
  out.field("cause", core::to_string(parking.cause.kind));
  maybe_text(out, "preemptor", parking.cause.preemptor ? to_string(parking.cause.preemptor) : std::string());
  out.field("resume_requested", parking.resume_requested).field("stuck", core::is_stuck(engine.state(), lease.id));
  out.field("begun", core::has_begun(engine.state(), lease.id));
  out.field("residue_bytes", parking.residue.count);
  maybe_text(out, "problem", found.problem);
  write_progress(out, found.progress);
  out.end_object();
}

void write_blocked(JsonText& out, const std::optional<core::Blocked>& blocked) {
  out.key("blocked");
  if (!blocked) {
    out.value(nullptr);
    return;
  }
  out.begin_object().field("code", to_string(blocked->code)).field("text", blocked->text);
  out.key("unleased_processes").begin_array();
  for (const core::UnleasedProcess& unleased : blocked->unleased_processes) {
    out.begin_object();
    maybe_pid(out, "pid", unleased.process);
    maybe_text(out, "program", unleased.name);
    out.field("device", unleased.device).field("bytes", unleased.bytes.count).end_object();
  }
  out.end_array().end_object();
}

// The work of its program; null while it can do none.
void write_activity(JsonText& out, const core::Lease& lease, const engine::Engine& engine) {
  const engine::LeaseActivity activity = engine.observer().activity(lease.id);
  out.key("activity");
  if (lease.state != core::LeaseState::active || activity.last == Time{}) {
    out.value(nullptr);
    return;
  }
  out.begin_object().field("state", engine::to_string(activity.state));
  out.field("since", format_rfc3339(activity.last)).end_object();
}

// The sentence of its present state.
std::string summary_of(const core::Lease& lease, const engine::Engine& engine, const Found& found, bool detailed) {
  explain::Aspects aspects{.problem = found.problem, .keeper_killed = is_without_keeper(lease, engine)};
  if (const auto& stopped = engine.observer().stopped(); !lease.ended() && stopped.contains(lease.id))
    aspects.stopped = stopped.at(lease.id).by_debugger ? "stopped by a debugger" : "stopped by a signal";
  const auto* queue = detailed && found.queue ? &*found.queue : nullptr;
  return explain::summary(engine.state(), lease, found.blocked, queue, aspects);
}

void write_asked(JsonText& out, const core::Lease& lease, const core::State& state) {
  out.field("consumer", lease.consumer).field("remembered", !lease.nameless);
  maybe_text(out, "tag", lease.tag);
  out.field("tenant", lease.tenant).field("user", lease.user).field("uid", lease.uid);
  out.field("tier", core::to_string(lease.tier)).field("priority", lease.priority);
  out.field("pausable", core::to_string(lease.pausable)).key("devices").begin_array();
  for (const std::string& device : lease.devices) out.value(device);
  out.end_array().field("device_count", lease.device_count);
  maybe_text(out, "wanted_device", lease.wanted_devices.size() == 1 ? lease.wanted_devices.front() : std::string());
  out.key("wanted_devices").begin_array();
  for (const std::string& device : core::sort_by_index(state, lease.wanted_devices)) out.value(device);
  out.end_array();
  out.field("vram_bytes", lease.vram.count).field("asked_vram_bytes", lease.asked_vram.count).key("min_vram_bytes");
  if (lease.min_vram > Bytes{}) out.value(lease.min_vram.count);
  else out.value(nullptr);
  const auto limit = [&out](std::string_view name, Bytes bytes) {
    out.field(name, bytes > Bytes{} ? std::optional(bytes.count) : std::nullopt);
  };
  limit("memory_bytes", lease.ceiling);
  limit("soft_bytes", lease.soft_limit);
  out.field("share", lease.share > 0 ? std::optional(lease.share) : std::nullopt);
}

void write_times(JsonText& out, const core::Lease& lease, Time now) {
  out.field("created_at", format_rfc3339(lease.created_at));
  maybe_time(out, "held_back_at", lease.held_back_at);
  maybe_time(out, "granted_at", lease.granted_at);
  maybe_time(out, "resized_at", lease.sized ? std::optional(lease.sized->until) : std::nullopt);
  maybe_time(out, "ended_at", lease.ended_at);
  maybe_time(out, "offer_ends_at", lease.offer_ends_at);
  maybe_time(out, "expires_at", lease.parking ? std::nullopt : lease.expires_at);
  out.field("ttl_seconds", lease.ttl ? std::optional(seconds(*lease.ttl)) : std::nullopt);
  const auto left = lease.time_left(now);
  out.field("left_seconds", left && !lease.ended() ? std::optional(seconds(*left)) : std::nullopt);
}

}  // namespace

void write_queue_info(JsonText& out, const explain::QueueInfo& info, const engine::Engine& engine, bool held_back) {
  out.begin_object().field("place", info.place).field("held_back", held_back);
  out.field("short_bytes", info.short_bytes.count);
  maybe_text(out, "device", info.device);
  out.field("free_bytes", info.free.count).field("unleased_bytes", info.unleased.count);
  out.key("holders").begin_array();
  for (const core::Holder& holder : info.holders) {
    out.begin_object();
    maybe_text(out, "lease", holder.lease ? to_string(holder.lease) : std::string());
    const core::Lease* lease = core::find(engine.state(), holder.lease);
    const bool alone = lease != nullptr && is_without_keeper(*lease, engine);
    out.field("what", alone ? holder.what + ", whose keeper was killed," : holder.what);
    out.field("bytes", holder.bytes.count).end_object();
  }
  out.end_array().key("reserved_devices").begin_array();
  for (const std::string& device : info.reserved_devices) out.value(device);
  out.end_array();
  maybe_text(out, "reserved_for", info.reserved_for ? to_string(info.reserved_for) : std::string());
  out.field("eta_seconds", info.eta ? std::optional(whole_seconds(*info.eta)) : std::nullopt);
  out.field("basis", info.basis);
  out.field("bound_seconds", info.bound ? std::optional(whole_seconds(info.bound->within)) : std::nullopt);
  maybe_text(out, "bound_from", info.bound ? info.bound->from : std::string());
  maybe_text(out, "bound_unless", info.bound ? info.bound->unless : std::string());
  out.end_object();
}

// `info`: set while it waits.
static void write_queue(JsonText& out, const core::Lease& lease, const engine::Engine& engine,
                        const std::optional<explain::QueueInfo>& info) {
  if (lease.held_back_at) {
    explain::QueueInfo kept;
    kept.place = engine.state().queue.place_of(lease);
    write_queue_info(out, kept, engine, true);
  } else if (info && engine.state().queue.contains(lease.id)) {
    write_queue_info(out, *info, engine);
  } else {
    out.value(nullptr);
  }
}

void write_queue(JsonText& out, const core::Lease& lease, const engine::Engine& engine, explain::Estimates& estimates) {
  const bool waits = !lease.held_back_at && engine.state().queue.contains(lease.id);
  write_queue(out, lease, engine, waits ? std::optional(estimates.of(lease)) : std::nullopt);
}

void write_lease(JsonText& out, const core::Lease& lease, const engine::Engine& engine, const engine::Peer& viewer,
                 bool detailed, explain::Estimates* estimates) {
  const core::State& state = engine.state();
  explain::Estimates alone = engine.estimates();
  if (estimates == nullptr) estimates = &alone;
  const Found found = find_out(lease, engine, *estimates, detailed);
  const bool own = viewer.may_act_for(lease.uid);
  const bool live = core::find(state, lease.id) != nullptr;
  out.begin_object().field("id", to_string(lease.id)).field("state", core::to_string(lease.state)).key("end_reason");
  if (lease.ended()) out.value(core::to_string(lease.end_reason));
  else out.value(nullptr);
  out.field("summary", summary_of(lease, engine, found, detailed));
  write_asked(out, lease, state);
  out.field("reserved_bytes", lease.reserved().count);
  out.field("used_bytes", live ? core::use_of(state, lease.id).used.count : 0)
      .field("parked_bytes", lease.parked() ? lease.parking->host_bytes.count : 0);
  out.field("over_bytes", explain::over_size(state, lease).count);
  write_strays(out, lease, state);
  out.field("peak_used_bytes", lease.peak_used.count).field("generation", lease.generation);
  out.field("exit_status", lease.exit_status);
  write_times(out, lease, engine.now());
  out.field("paused_seconds", seconds(lease.parked_until(engine.now())));
  maybe_text(out, "command", own ? lease.command : std::string());
  write_owner(out, lease, engine);
  const auto stopped = lease.ended() ? engine.observer().stopped().end() : engine.observer().stopped().find(lease.id);
  const bool stands = stopped != engine.observer().stopped().end();
  maybe_time(out, "stopped_since", stands ? std::optional(stopped->second.since) : std::nullopt);
  maybe_text(out, "stopped_by", !stands ? "" : stopped->second.by_debugger ? "debugger" : "signal");
  out.field("lapsed_offers", lease.lapsed_offers);
  out.field("stopping", lease.stop_requested)
      .field("stop_grace_seconds", whole_seconds(core::stop_grace(lease, engine.rules())))
      .field("signalled", engine.executor().ends().has_signalled(lease.id));
  maybe_text(out, "exit_record", own ? lease.owner.exit_record : std::string());
  out.field("settling", lease.ended() && live && core::use_of(state, lease.id).settling);
  write_activity(out, lease, engine);
  out.key("idle").raw(engine.capabilities().lease_field("idle", lease));
  out.key("interposer").raw(engine.capabilities().lease_field("interposer", lease));
  out.key("share_use").raw(engine.capabilities().lease_field("share_use", lease));
  out.key("session").raw(engine.capabilities().lease_field("session", lease));
  write_resize(out, lease);
  out.key("queue");
  if (detailed) write_queue(out, lease, engine, found.queue);
  else out.value(nullptr);
  write_blocked(out, found.blocked);
  write_parking(out, lease, engine, found);
  const auto slice = explain::leaves_in(state, lease.id, engine.now());
  out.field("next_slice_seconds", slice ? std::optional(whole_seconds(*slice)) : std::nullopt);
  out.end_object();
}

std::string render_lease(const core::Lease& lease, const engine::Engine& engine, const engine::Peer& viewer,
                         bool detailed) {
  // With a token behind it; a larger piece of memory is not kept at hand for the next by the C library.
  JsonText out(1024);
  write_lease(out, lease, engine, viewer, detailed);
  return out.take();
}

// The ids of the other devices that are linked with this one in that way.
static json render_linked(const core::Device& device, const engine::Engine& engine, Linked way) {
  json ids = json::array();
  const int group = device.reading.links.in(way);
  if (group < 0) return ids;
  std::vector<const core::DeviceReading*> linked;
  for (const auto& [uuid, other] : engine.state().devices.by_uuid)
    if (other.reading.links.in(way) == group && &other != &device && !other.lost) linked.push_back(&other.reading);
  std::ranges::sort(linked, {}, [](const core::DeviceReading* reading) { return reading->order(); });
  for (const core::DeviceReading* reading : linked) ids.push_back(reading->id());
  return ids;
}

static json render_links(const core::Device& device, const engine::Engine& engine) {
  json links = json::object();
  for (int way = 0; way < link_levels; ++way)
    links[std::string(linked_names[static_cast<std::size_t>(way)])] =
        render_linked(device, engine, static_cast<Linked>(way));
  return links;
}

json render_device(const core::Device& device, const engine::Engine& engine, Time now) {
  const core::DeviceReading& reading = device.reading;
  const bool known = core::is_known(engine.state(), device, engine.rules(), now);
  const auto age_ms = [&] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - *device.read_at).count();
  };
  std::string problem = device.problem;
  if (problem.empty() && !known) problem = device.read_at ? "the last reading is too old" : "never read";
  return {{"id", reading.id()},
          {"index", reading.index},
          {"uuid", reading.uuid},
          {"name", reading.name},
          {"pci_bus_id", reading.pci_bus_id},
          {"parent", reading.slice < 0 ? json(nullptr) : json(reading.parent)},
          {"slice", reading.slice < 0 ? json(nullptr) : json(reading.slice)},
          {"unified", reading.unified},
          {"link_bytes_per_second",
           reading.link_per_second > Bytes{} ? json(reading.link_per_second.count) : json(nullptr)},
          {"links", render_links(device, engine)},
          {"total_bytes", reading.total.count},
          {"driver_reserved_bytes", reading.driver_reserved.count},
          {"used_bytes", reading.used.count},
          {"busy_percent", reading.busy_percent ? json(*reading.busy_percent) : json(nullptr)},
          {"leased_bytes", device.charged.count},
          {"residue_bytes", device.residues.count},
          {"other_bytes", device.other.count},
          {"other_lasting_bytes", std::min(device.lasting.bytes(), device.other).count},
          {"capacity_bytes", std::max(core::capacity_of(device, engine.rules()), Bytes{}).count},
          {"effective_free_bytes", core::free_on(engine.state(), device, engine.rules(), now).count},
          {"snapshot_age_ms", device.read_at ? json(age_ms()) : json(nullptr)},
          {"simulated", reading.simulated},
          {"state", device.lost ? "lost"
                    : known     ? "ok"
                                : "unknown"},
          {"service", json::parse(engine.capabilities().device_field("service", reading.uuid))},
          {"condition", render_condition(engine.observer().condition(reading.uuid))},
          {"problem", text_or_null(problem)}};
}

std::vector<const core::Device*> slices_of(const engine::Engine& engine, const gpu::GpuDevice& card) {
  std::vector<const core::Device*> there;
  for (const auto& [uuid, device] : engine.state().devices.by_uuid)
    if (device.reading.parent == card.uuid && !device.lost) there.push_back(&device);
  std::ranges::sort(there, {}, [](const core::Device* device) { return device->reading.order(); });
  return there;
}

json render_divided(const gpu::GpuDevice& card, const engine::Engine& engine) {
  json slices = json::array();
  for (const core::Device* device : slices_of(engine, card)) slices.push_back(device->reading.uuid);
  return {{"id", fmt::format("gpu{}", card.index)},
          {"index", card.index},
          {"uuid", card.uuid},
          {"name", card.name},
          {"pci_bus_id", card.pci_bus_id},
          {"simulated", card.simulated},
          {"slices", std::move(slices)},
          {"problem", text_or_null(card.problem)}};
}

}  // namespace sublet::http
