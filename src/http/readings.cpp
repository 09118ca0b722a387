// SPDX-License-Identifier: Apache-2.0
#include "http/readings.h"

#include "http/render.h"

namespace sublet::http {

using nlohmann::json;

void Readings::look(const engine::Engine& engine, Clock::time_point since) {
  if (looks_ > 0 && looked_at_ > since) return;
  looked_at_ = Clock::now();
  at_ = engine.now();
  ++looks_;
  const bool devices = look_at_devices(engine);
  const bool leases = look_at_leases(engine);
  if (!devices && !leases) return;
  ++version_;
  texts_.clear();
}

// A change belongs to the next version. A device that has gone is told by its event.
bool Readings::look_at_devices(const engine::Engine& engine) {
  bool changed = false;
  for (const auto& [uuid, device] : engine.state().devices.by_uuid) {
    Device& known = devices_[uuid];
    known.look = looks_;
    known.row = render_device(device, engine, at_);
    json figures = known.row;
    figures.erase("snapshot_age_ms");
    figures.erase("condition");
    if (known.figures == figures) continue;
    known.figures = std::move(figures);
    known.version = version_ + 1;
    changed = true;
  }
  std::erase_if(devices_, [this](const auto& entry) { return entry.second.look != looks_; });
  return changed;
}

bool Readings::look_at_leases(const engine::Engine& engine) {
  bool changed = false;
  for (const auto& [id, lease] : engine.state().leases.by_id) {
    if (lease.ended() || !lease.granted_at) continue;
    const Use use{core::use_of(engine.state(), id).used.count, engine.observer().activity(id).state, version_ + 1,
                  looks_};
    const auto [known, fresh] = leases_.try_emplace(id, use);
    known->second.look = looks_;
    if (!fresh && known->second.used_bytes == use.used_bytes && known->second.activity == use.activity) continue;
    known->second = use;
    changed = true;
  }
  std::erase_if(leases_, [this](const auto& entry) { return entry.second.look != looks_; });
  return changed;
}

std::shared_ptr<const std::string> Readings::changes_after(Version version) {
  auto& text = texts_[version];
  if (!text) text = std::make_shared<const std::string>(version == version_ ? std::string() : render(version));
  return text;
}

std::string Readings::render(Version after) const {
  json devices = json::array(), leases = json::array();
  for (const auto& [uuid, device] : devices_)
    if (device.version > after) devices.push_back(device.row);
  for (const auto& [id, use] : leases_)
    if (use.version > after)
      leases.push_back(
          {{"lease", to_string(id)}, {"used_bytes", use.used_bytes}, {"activity", engine::to_string(use.activity)}});
  if (devices.empty() && leases.empty()) return {};
  return json{
      {"type", "reading"}, {"at", format_rfc3339(at_)}, {"devices", std::move(devices)}, {"leases", std::move(leases)}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace sublet::http
