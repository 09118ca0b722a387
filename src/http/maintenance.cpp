// SPDX-License-Identifier: Apache-2.0
// Devices out of service: cordon, drain and uncordon, by admins.
#include "maintenance/maintenance.h"

#include "base/text.h"
#include "http/body.h"
#include "http/render.h"
#include "http/routes.h"
#include "http/stored.h"
#include "state/format.h"
#include "state/reconfigured.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

using maintenance::Mode;
using maintenance::OutOfService;

constexpr std::size_t longest_reason = 200;
constexpr std::int64_t longest_deadline = std::int64_t{30} * 24 * 3600;  // seconds

// The card in MIG mode of this uuid, name or index. Null: there is none.
const gpu::GpuDevice* divided_card(const engine::Engine& engine, std::string_view name) {
  for (const gpu::GpuDevice& card : engine.observer().divided()) {
    const std::string number = fmt::format("{}", card.index);
    if (name == card.uuid || name == number || name == "gpu" + number) return &card;
  }
  return nullptr;
}

// The device of the path, by uuid, name or index; NotFound names the known ones, Unavailable before the first reading.
// A card in MIG mode is one of them: its slices are out of service with the card.
Result<std::string> device_in_path(const Call& call) {
  const core::State& state = call.engine.state();
  if (call.capabilities.maintenance == nullptr)
    return unavailable("devices cannot be taken out of service here", "restart the daemon");
  const core::Device* device = core::find_device(state, call.args[0]);
  if (device == nullptr || device->lost)
    if (const gpu::GpuDevice* card = divided_card(call.engine, call.args[0])) return card->uuid;
  if (device != nullptr) return device->reading.uuid;
  // A device that is gone may still be out of service.
  if (call.capabilities.maintenance->find(call.args[0]) != nullptr) return call.args[0];
  if (state.devices.snapshot_began == Time{} && state.devices.snapshot_problem.empty())
    return unavailable("the daemon has not read any GPU yet", "try again in a moment");
  return not_found(fmt::format("there is no device '{}'", printable(call.args[0])),
                   "the devices are: " + core::list_devices(state));
}

json render_service(const engine::Engine& engine, const std::string& uuid) {
  json told = {{"uuid", uuid}, {"service", nullptr}};
  const auto device = engine.state().devices.by_uuid.find(uuid);
  const gpu::GpuDevice* card = divided_card(engine, uuid);
  if (card != nullptr) told["device"] = fmt::format("gpu{}", card->index);
  else if (device != engine.state().devices.by_uuid.end()) told["device"] = core::name_of(device->second);
  else return told;
  told["service"] = json::parse(engine.capabilities().device_field("service", uuid));
  return told;
}

Reply stored(Call& call, const std::string& uuid) {
  return http::stored(call.engine, call.remember, "service_changed", 200,
                      [&] { return render_service(call.engine, uuid); });
}

Reply take_out(Call& call, Mode mode) {
  const auto uuid = device_in_path(call);
  if (!uuid) return problem(uuid.error());
  Body body(call.request.body);
  OutOfService out{.mode = mode, .device = *uuid, .by = call.request.peer.user, .since = call.engine.now()};
  out.reason = printable(body.text("reason", longest_reason).value_or(""));
  if (mode == Mode::drain)
    if (const auto seconds = body.integer("deadline_seconds", 1, longest_deadline))
      out.deadline = after(out.since, std::chrono::seconds(*seconds));
  if (const Status finished = body.finish(); !finished) return problem(finished.error());
  if (const Status may = call.engine.may_decide(); !may) return problem(may.error());
  call.capabilities.maintenance->take_out(std::move(out));
  return stored(call, *uuid);
}

Reply post_device_cordon(Call& call) { return take_out(call, Mode::cordon); }

Reply post_device_drain(Call& call) { return take_out(call, Mode::drain); }

Reply post_device_uncordon(Call& call) {
  if (const Status none = Body(call.request.body).finish(); !none) return problem(none.error());
  const auto uuid = device_in_path(call);
  if (!uuid) return problem(uuid.error());
  const auto* closed = core::closed_by(call.engine.state(), *uuid);
  const auto& maintained = *call.capabilities.maintenance;
  if (closed != nullptr && *closed != *uuid && maintained.find(*uuid) == nullptr) {
    const gpu::GpuDevice* card = divided_card(call.engine, *closed);
    const std::string name = card == nullptr ? *closed : fmt::format("gpu{}", card->index);
    return problem(bad_request(fmt::format("the slice is out of service with its card, {}", name),
                               fmt::format("take the card back: sublet gpu uncordon {}", name)));
  }
  if (const Status may = call.engine.may_decide(); !may) return problem(may.error());
  call.capabilities.maintenance->take_back(*uuid);
  return stored(call, *uuid);
}

constexpr Route table[] = {
    Route{Method::post, "/v1/devices/{id}/cordon", Role::admin, Scope::admin, post_device_cordon, "reason",
          "ServedDevice"},
    Route{Method::post, "/v1/devices/{id}/drain", Role::admin, Scope::admin, post_device_drain,
          "reason,deadline_seconds", "ServedDevice"},
    Route{Method::post, "/v1/devices/{id}/uncordon", Role::admin, Scope::admin, post_device_uncordon, "",
          "ServedDevice"}
        .granting(Grants::to_waiters),
};

}  // namespace

const std::span<const Route> maintenance_routes = table;

}  // namespace sublet::http
