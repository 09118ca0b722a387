// SPDX-License-Identifier: Apache-2.0
#include "http/render.h"

namespace sublet::http {
namespace {

json text_or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

json time_or_null(const std::optional<Time>& time) { return time ? json(format_rfc3339(*time)) : json(nullptr); }

json seconds(Duration duration) { return std::chrono::duration_cast<std::chrono::seconds>(duration).count(); }

json render_owner(const core::Owner& owner) {
  return {{"kind", core::to_string(owner.kind)},
          {"pid", owner.process ? json(owner.process.pid) : json(nullptr)},
          {"keeper_pid", owner.keeper ? json(owner.keeper.pid) : json(nullptr)}};
}

Bytes reserved_of(const core::Lease& lease) {
  return lease.reserves() ? static_cast<std::int64_t>(lease.devices.size()) * lease.vram : Bytes{};
}

}  // namespace

json render_queue_info(const core::QueueInfo& info) {
  json holders = json::array();
  for (const core::Holder& holder : info.holders) {
    holders.push_back({{"lease", holder.lease ? json(to_string(holder.lease)) : json(nullptr)},
                       {"what", holder.what},
                       {"bytes", holder.bytes.count}});
  }
  return {{"place", info.place},
          {"short_bytes", info.short_bytes.count},
          {"device", text_or_null(info.device)},
          {"holders", std::move(holders)},
          {"eta_seconds", info.eta ? seconds(*info.eta) : json(nullptr)},
          {"basis", info.basis}};
}

json render_lease(const core::Lease& lease, const engine::Engine& engine, const engine::Peer& viewer, bool detailed) {
  const core::State& state = engine.state();
  const bool own = viewer.may_act_for(lease.uid);
  const bool live = state.find(lease.id) != nullptr;
  json out = {
      {"id", to_string(lease.id)},
      {"state", core::to_string(lease.state)},
      {"end_reason", lease.ended() ? json(core::to_string(lease.end_reason)) : json(nullptr)},
      {"consumer", lease.consumer},
      {"tag", text_or_null(lease.tag)},
      {"tenant", lease.tenant},
      {"user", lease.user},
      {"uid", lease.uid},
      {"tier", core::to_string(lease.tier)},
      {"priority", lease.priority},
      {"pausable", core::to_string(lease.pausable)},
      {"devices", lease.devices},
      {"device_count", lease.device_count},
      {"wanted_device", text_or_null(lease.wanted_device)},
      {"vram_bytes", lease.vram.count},
      {"asked_vram_bytes", lease.asked_vram.count},
      {"min_vram_bytes", lease.min_vram > Bytes{} ? json(lease.min_vram.count) : json(nullptr)},
      {"reserved_bytes", reserved_of(lease).count},
      {"used_bytes", live ? state.use(lease.id).used.count : 0},
      {"parked_bytes", 0},
      {"peak_used_bytes", lease.peak_used.count},
      {"generation", lease.generation},
      {"exit_status", lease.exit_status ? json(*lease.exit_status) : json(nullptr)},
      {"created_at", format_rfc3339(lease.created_at)},
      {"granted_at", time_or_null(lease.granted_at)},
      {"ended_at", time_or_null(lease.ended_at)},
      {"offer_ends_at", time_or_null(lease.offer_ends_at)},
      {"expires_at", time_or_null(lease.expires_at)},
      {"ttl_seconds", lease.ttl ? seconds(*lease.ttl) : json(nullptr)},
      {"command", own ? text_or_null(lease.command) : json(nullptr)},
      {"owner", render_owner(lease.owner)},
      {"stopping", lease.stop_requested},
      {"stop_grace_seconds", seconds(engine.rules().grace)},
      {"exit_record", own ? text_or_null(lease.owner.exit_record) : json(nullptr)},
      {"settling", lease.ended() && live && state.use(lease.id).settling},
      {"queue", nullptr},
      {"pause", nullptr},
  };
  if (detailed && lease.state == core::LeaseState::queued) {
    out["queue"] = render_queue_info(core::queue_info(state, engine.rules(), lease, engine.now()));
  }
  return out;
}

json render_device(const core::Device& device, const engine::Engine& engine, Time now) {
  const core::DeviceReading& reading = device.reading;
  const bool known = engine.state().known(device, engine.rules(), now);
  const auto age_ms = [&] {
    return std::chrono::duration_cast<std::chrono::milliseconds>(now - *device.read_at).count();
  };
  std::string problem = device.problem;
  if (problem.empty() && !known) problem = device.read_at ? "the last reading is too old" : "never read";
  return {{"id", fmt::format("gpu{}", reading.index)},
          {"index", reading.index},
          {"uuid", reading.uuid},
          {"name", reading.name},
          {"pci_bus_id", reading.pci_bus_id},
          {"total_bytes", reading.total.count},
          {"driver_reserved_bytes", reading.driver_reserved.count},
          {"used_bytes", reading.used.count},
          {"leased_bytes", device.charged.count},
          {"other_bytes", device.other.count},
          {"effective_free_bytes", engine.state().effective_free(device, engine.rules(), now).count},
          {"snapshot_age_ms", device.read_at ? json(age_ms()) : json(nullptr)},
          {"simulated", reading.simulated},
          {"state", device.lost ? "lost"
                    : known     ? "ok"
                                : "unknown"},
          {"problem", text_or_null(problem)}};
}

}  // namespace sublet::http
