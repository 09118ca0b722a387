// SPDX-License-Identifier: Apache-2.0
// Checks of requests for a lease that need more than their body.
#include "http/asking.h"

#include "base/device_name.h"
#include "base/gpu_spec.h"
#include "base/size_bounds.h"
#include "base/text.h"
#include "engine/like_devices.h"
#include "explain/dry_run.h"
#include "explain/nesting.h"
#include "http/find_lease.h"
#include "http/render.h"
#include "state/format.h"
#include "state/reconfigured.h"

#include <fmt/format.h>

#include <set>

namespace sublet::http {

using core::Lease;

// A caller inside of a lease may wait for others, and for a pause of that program, and never for its end.
Status check_nesting(const Call& call, const LeaseCall& asked) {
  if (asked.program || asked.session) return {};  // the daemon starts it, not the caller
  const Lease* outer = lease_around(call, false);
  const Lease& lease = asked.submit.lease;
  const engine::Engine& engine = call.engine;
  if (outer == nullptr || !explain::would_wait_for(engine.state(), engine.rules(), lease, *outer)) return {};
  const auto found = explain::dry_run(engine.state(), engine.rules(), asked.submit, engine.now());
  if (!found || found->would != explain::Would::wait || found->room.found) return {};
  const Bytes most = explain::most_beside(engine.state(), engine.rules(), lease, *outer);
  const std::string id = to_string(outer->id);
  const std::string where = fmt::format("{}", fmt::join(core::device_names(engine.state(), outer->devices), ", "));
  const std::string less = most < least_lease ? "" : fmt::format(", ask for {} or less", format_size_down(most));
  return Error{Code::InUse,
               fmt::format("the lease would wait for itself: process {} runs inside {}, which has {} on {}, and {} do "
                           "not fit beside it",
                           call.request.peer.pid, core::name_of(*outer), format_size_down(outer->vram), where,
                           format_size(lease.least())),
               fmt::format("use the memory of {0}{1}, enlarge it (sublet resize {0} SIZE), or start the program "
                           "outside of it",
                           id, less)};
}

Status check_lease_limit(const engine::Engine& engine, const engine::Peer& peer, int more) {
  const int live = engine.counters().live(peer.uid), limit = engine.options().leases_per_user;
  if (live + more <= limit) return {};
  return Error{Code::Quota,
               live >= limit ? fmt::format("user {} has {} live leases, which is the limit", peer.user, live)
                             : fmt::format("user {} has {} live leases, and {} more are beyond the limit of {}",
                                           peer.user, live, more, limit),
               "release a lease, or raise limits.leases",
               {{"live_leases", live}, {"limit", limit}}};
}

namespace {

// A CUDA program sees one MIG slice, and beside a slice no other device. The core gives no slice to a lease of several
// devices; a request that names one is refused.
Status refuse_named_slices(const core::State& state, const core::Lease& lease) {
  if (lease.device_count < 2) return {};
  for (const std::string& uuid : lease.wanted_devices) {
    const auto device = state.devices.by_uuid.find(uuid);
    if (device == state.devices.by_uuid.end() || !core::is_slice(uuid)) continue;
    return bad_request(fmt::format("{} is a MIG slice, and cannot be one of {} devices of a lease",
                                   device->second.reading.id(), lease.device_count),
                       "a CUDA program sees only one slice: ask for one device, or name whole devices");
  }
  return {};
}

// The error that names the slices of a card in MIG mode; nothing for other names.
std::optional<Error> explain_divided(const std::string& name, const engine::Engine& engine) {
  for (const gpu::GpuDevice& card : engine.observer().divided()) {
    const std::string number = fmt::format("{}", card.index);
    if (name != number && name != "gpu" + number && (name.size() < 8 || !card.uuid.starts_with(name))) continue;
    std::string slices;
    for (const core::Device* slice : slices_of(engine, card))
      slices += (slices.empty() ? "" : ", ") + slice->reading.id();
    return bad_request(
        fmt::format("gpu{} is in MIG mode: only its slices are leased", number),
        slices.empty() ? "it has no slice; nvidia-smi mig makes slices" : fmt::format("its slices are {}", slices));
  }
  return std::nullopt;
}

// The uuid of the device that has this name. Before any device was read it is the name itself: the first reading says
// which device that is.
Result<std::string> device_named(const std::string& name, const engine::Engine& engine) {
  const core::State& state = engine.state();
  std::vector<std::string> names;
  std::vector<std::string> matches;
  for (const auto& [uuid, device] : state.devices.by_uuid) {
    const std::string id = device.reading.id();
    // A card that only a stored lease names has no number yet.
    const bool numbered = device.read_at.has_value();
    if (numbered) names.push_back(id);
    const bool by_number = numbered && (name == id || name == device.reading.number());
    if (by_number || name == uuid) return uuid;
    if (name.size() >= 8 && uuid.starts_with(name)) matches.push_back(uuid);
  }
  if (matches.size() == 1) return matches[0];
  if (matches.size() > 1)
    return bad_request(fmt::format("device '{}' matches {} devices", name, matches.size()),
                       fmt::format("write more of the uuid: {}", fmt::join(matches, ", ")));
  if (const auto divided = explain_divided(name, engine)) return *divided;
  if (const auto explained = explain_device_name(name)) return *explained;
  if (names.empty() && plain_name(name)) return name;
  return not_found(
      fmt::format("device '{}' does not exist", printable(name)),
      names.empty() ? "the daemon has not read any GPU yet" : fmt::format("known devices: {}", fmt::join(names, ", ")));
}

}  // namespace

Status take_device(Body& body, const engine::Engine& engine, core::Lease& lease) {
  const core::State& state = engine.state();
  const std::string wanted = body.text("device", longest_device_list).value_or("");
  if (wanted == "any") return {};
  std::set<std::string> uuids;
  for (const std::string& name : device_list(wanted)) {
    auto uuid = device_named(name, engine);
    if (!uuid) return uuid.error();
    uuids.insert(*uuid);
  }
  lease.wanted_devices.assign(uuids.begin(), uuids.end());
  return refuse_named_slices(state, lease);
}

Status take_gpu_spec(Body& body, const engine::Engine& engine, core::Lease& lease) {
  const std::string spec = body.text("gpu_spec", longest_gpu_spec).value_or("");
  if (spec.empty()) return {};
  auto uuids = engine::like_devices(engine, spec, lease.wanted_devices, lease.device_count);
  if (!uuids) return uuids.error();
  lease.wanted_devices = std::move(*uuids);
  return {};
}

Result<Submitted> submit_with_token(engine::Engine& engine, const core::Submit& submit,
                                    const engine::Remember& remember, const Secret& token,
                                    const std::function<std::pair<int, std::string>(const core::Lease&)>& answer) {
  Submitted made;
  auto answered = engine.request(submit, remember, [&](const Lease& lease) {
    made.lease = lease.id;
    const auto [status, shown] = answer(lease);
    made.response = as_json(status, with_field(shown, "token", token.text));
    return engine::Answered{status, sealed(shown, token)};
  });
  if (!answered) return answered.error();
  made.response.after = answered->after;
  return made;
}

}  // namespace sublet::http
