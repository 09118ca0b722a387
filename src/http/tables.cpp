// SPDX-License-Identifier: Apache-2.0
// The tables: devices, processes, the ledger; and the whole at a glance.
#include "base/text.h"
#include "enforcer/enforcer.h"
#include "http/find_lease.h"
#include "http/query.h"
#include "http/render.h"
#include "http/routes.h"
#include "machine/account.h"
#include "proc/container.h"
#include "state/format.h"

#include <fmt/format.h>

#include <unistd.h>

namespace sublet::http {
namespace {

// So many programs' control groups are read for one answer.
constexpr std::size_t groups_looked_at = 64;

json all_devices(const engine::Engine& engine) {
  std::vector<const core::Device*> devices;
  for (const auto& [uuid, device] : engine.state().devices.by_uuid) devices.push_back(&device);
  std::ranges::stable_sort(devices, {}, [](const core::Device* device) { return device->reading.order(); });
  json rows = json::array();
  for (const core::Device* device : devices) rows.push_back(render_device(*device, engine, engine.now()));
  return rows;
}

// Processes of an ended lease may hold memory for long; the memory stays charged to the lease.
bool lease_ended(const core::ProcessUse& use, const engine::Engine& engine) {
  const core::Lease* lease = core::find(engine.state(), use.lease);
  return use.lease && (lease == nullptr || lease->ended());
}

// The daemon's own container is no news: its users are inside, too.
json container_named(const std::string& container, const proc::ProcRoot& root) {
  if (container.empty()) return nullptr;
  const auto own = root.read_file("self/cgroup");
  if (own && proc::container_of(proc::parse_process_cgroups(*own)) == container) return nullptr;
  return container;
}

json process_row(const core::ProcessUse& use, const core::Device& device, const Call& call) {
  const engine::Engine& engine = call.engine;
  const engine::Peer& viewer = call.request.peer;
  const enforcer::Enforcer* enforcer = call.capabilities.enforcer;
  const enforcer::Rule* approval = enforcer == nullptr ? nullptr : enforcer->approval_of(use.process);
  const auto& root = engine.programs().root();
  const auto read = root.read_with(use.process.pid, "cgroup");
  const auto info = read ? Result<proc::ProcessInfo>(read->info) : root.read(use.process.pid);
  const bool here = info && info->ref == use.process;
  const std::string container =
      here && read ? proc::container_of(proc::parse_process_cgroups(read->text)) : std::string();
  const bool own = here && viewer.may_act_for(info->uid);
  const proc::Member* member = engine.programs().member(use.process);
  return {{"pid", use.process.pid},
          {"start_ticks", use.process.start_ticks},
          {"uid", here ? json(info->uid) : json(nullptr)},
          {"user", here ? json(machine::account_name(info->uid)) : json(nullptr)},
          {"command", own ? json(root.command_line(use.process.pid)) : json(nullptr)},
          {"container", container_named(container, root)},
          {"device", device.reading.uuid},
          {"used_bytes", use.used ? json(use.used->count) : json(nullptr)},
          {"busy_percent", use.busy_percent ? json(*use.busy_percent) : json(nullptr)},
          {"lease", use.lease ? json(to_string(use.lease)) : json(nullptr)},
          {"lease_ended", lease_ended(use, engine)},
          {"approval", approval == nullptr ? json(nullptr) : json(approval->id)},
          {"link", use.lease && member != nullptr ? json(proc::to_string(member->link)) : json("none")}};
}

// Processes that hold VRAM without a live lease, so that people see why memory is missing.
json unleased_processes(const Call& call) {
  const engine::Engine& engine = call.engine;
  json rows = json::array();
  for (const auto& [uuid, device] : engine.state().devices.by_uuid) {
    for (const core::ProcessUse& use : device.reading.processes) {
      // A leased program is an unleased process on a card that its lease is not on.
      if (!device.leases.contains(use.lease) || lease_ended(use, engine))
        rows.push_back(process_row(use, device, call));
    }
  }
  return rows;
}

// The lease around the caller, which may be the caller's own.
json inside(const Call& call) {
  const core::Lease* outer = lease_around(call, true);
  return outer == nullptr ? json(nullptr) : json(to_string(outer->id));
}

json counts(const core::State& state) {
  json by_state = json::object();
  for (const char* name : {"queued", "offered", "active", "pausing", "paused", "resuming", "poisoned"})
    by_state[name] = 0;
  for (const auto& [id, lease] : state.leases.by_id) {
    if (lease.ended()) continue;
    auto& count = by_state[std::string(core::to_string(lease.state))];
    count = count.get<int>() + 1;
  }
  return by_state;
}

// The user whose rights this call has, so that a client offers nothing that would be refused.
json caller(const engine::Peer& peer) {
  return {{"user", peer.user},
          {"uid", peer.uid},
          {"admin", peer.role == engine::Role::admin},
          {"scope", peer.scope ? json(to_string(*peer.scope)) : json(nullptr)}};
}

// Active leases by what their programs do.
json activities(const engine::Engine& engine) {
  std::array<int, 3> count{};
  for (const auto& [id, lease] : engine.state().leases.by_id)
    if (lease.state == core::LeaseState::active)
      ++count.at(static_cast<std::size_t>(engine.observer().activity(id).state));
  using State = engine::LeaseActivity::State;
  json by_state = json::object();
  for (const State state : {State::busy, State::idle, State::unknown})
    by_state[std::string(engine::to_string(state))] = count.at(static_cast<std::size_t>(state));
  return by_state;
}

// The least that a control group leaves of those whose programs could be parked. Unset: none of them has a limit.
std::optional<Bytes> group_headroom(const engine::Engine& engine) {
  std::optional<Bytes> least;
  std::size_t looked_at = 0;
  for (const auto& [uuid, device] : engine.state().devices.by_uuid) {
    for (const LeaseId id : device.leases) {
      const core::Lease& lease = *core::find(engine.state(), id);
      if (lease.state != core::LeaseState::active || !lease.owner.process || ++looked_at > groups_looked_at) continue;
      const auto headroom = engine.observer().host_memory(&lease).headroom;
      if (headroom) least = std::min(least.value_or(*headroom), *headroom);
    }
  }
  return least;
}

json ledger_entry(const core::Lease& lease, const engine::Engine& engine) {
  const auto swapped = engine.observer().swapped().find(lease.id);
  return {{"lease", to_string(lease.id)},
          {"consumer", lease.consumer},
          {"user", lease.user},
          {"class", "parked"},
          {"bytes", lease.parking->host_bytes.count},
          {"settled", lease.parking->measured},
          {"swapped_bytes", swapped == engine.observer().swapped().end() ? 0 : swapped->second.count}};
}

json ledger(const engine::Engine& engine) {
  const core::State& state = engine.state();
  const core::Rules& rules = engine.rules();
  core::HostMemory host = engine.observer().host_memory();
  host.headroom = group_headroom(engine);
  json entries = json::array();
  std::map<std::uint32_t, std::string> users;
  for (const LeaseId id : state.pauses.away) {
    const core::Lease* lease = core::find(state, id);
    if (lease == nullptr || !lease->parking || lease->ended()) continue;
    users.emplace(lease->uid, lease->user);
    entries.push_back(ledger_entry(*lease, engine));
  }
  json shares = json::array();
  for (const auto& [uid, user] : users)
    shares.push_back({{"user", user}, {"uid", uid}, {"bytes", core::ledger_of(state, uid).count}});
  return {{"limit_bytes", rules.ledger_limit.count},
          {"share_bytes", core::ledger_share(rules).count},
          {"host_bytes", std::max(host.available - rules.ledger_reserve, Bytes{}).count},
          {"cgroup_bytes", host.headroom ? json(host.headroom->count) : json(nullptr)},
          {"free_bytes", core::ledger_free(state, rules, host).count},
          {"parked_bytes", state.host.entries.count},
          {"cache_bytes", 0},  // nothing is cached yet
          {"may_swap", host.may_swap},
          {"allow_swap", rules.allow_swap},
          {"pressure_ratio", host.pressure ? json(*host.pressure) : json(nullptr)},
          {"max_pressure_ratio", rules.ledger_max_pressure},
          {"users", std::move(shares)},
          {"entries", std::move(entries)}};
}

json render_actor(const engine::Engine& engine) {
  const actor::Reply& said = engine.machine().actor->introduction();
  const bool ready = engine.machine().actor->ready();
  const bool groups = ready && said.path[0] != '\0';
  return {{"ready", ready},
          {"problem", engine.machine().actor->problem()},
          {"socket", engine.machine().actor->socket().empty() ? json(nullptr) : json(engine.machine().actor->socket())},
          {"uid", ready ? json(said.uid) : json(nullptr)},
          {"signals_others", ready && (said.flags & actor::signals_others) != 0},
          {"parks_others", ready && (said.flags & actor::parks_others) != 0},
          {"parks_roots", ready && (said.flags & actor::parks_roots) != 0},
          {"groups", groups ? json(said.path) : json(nullptr)}};
}

json render_safe_mode(const engine::Engine& engine) {
  const auto& safe = engine.rules().safe_mode;
  if (!safe) return nullptr;
  return {{"since", format_rfc3339(engine.clock().started_at())},
          {"until", format_rfc3339(safe->until)},
          {"why", safe->why}};
}

Reply get_health(Call& call) {
  if (const auto& safe = call.engine.rules().safe_mode)
    return Response{503, {{"status", core::safe_mode_text(*safe)}}, {}, false};
  if (call.engine.store_problem().empty()) return Response{200, {{"status", "ok"}}, {}, false};
  return Response{503, {{"status", "the store is not usable"}}, {}, false};
}

Reply get_devices(Call& call) {
  json divided = json::array();
  for (const gpu::GpuDevice& card : call.engine.observer().divided())
    divided.push_back(render_divided(card, call.engine));
  return Response{200, {{"devices", all_devices(call.engine)}, {"mig_cards", std::move(divided)}}, {}, false};
}

Reply get_processes(Call& call) {
  const std::string lease = query_value(call.request, "lease");
  const auto only = parse_lease_id(lease);
  if (call.request.query.contains("lease") && !only)
    return problem(bad_request(fmt::format("lease={} is not a lease's id", printable(lease)),
                               "give an id such as lease-7, or leave lease out"));
  json rows = json::array();
  for (const auto& [uuid, device] : call.engine.state().devices.by_uuid) {
    for (const core::ProcessUse& use : device.reading.processes) {
      if (only && use.lease != *only) continue;
      rows.push_back(process_row(use, device, call));
    }
  }
  return Response{200, {{"processes", std::move(rows)}}, {}, false};
}

Reply get_ledger(Call& call) { return Response{200, ledger(call.engine), {}}; }

Reply get_status(Call& call) {
  engine::Engine& engine = call.engine;
  const engine::Options& options = engine.options();
  json warnings = json::array();
  for (const engine::Warning& warning : engine.warnings()) {
    warnings.push_back({{"code", warning.code},
                        {"text", warning.text},
                        {"hint", warning.hint},
                        {"since", format_rfc3339(warning.since)}});
  }
  json environment = json::object();
  for (const auto& [name, value] : options.program_env) environment[name] = value;
  return Response{200,
                  {{"daemon",
                    {{"version", SUBLET_VERSION},
                     {"since", format_rfc3339(engine.clock().started_at())},
                     {"mode", options.mode},
                     {"pid", ::getpid()},
                     {"dir", options.dir.empty() ? json(nullptr) : json(options.dir)},
                     {"config", options.config_file.empty() ? json(nullptr) : json(options.config_file)},
                     {"credit_socket",
                      options.credit_socket.empty() ? json(nullptr) : json(options.credit_socket)},
                     {"tcp", options.tcp.empty() ? json(nullptr) : json(options.tcp)},
                     {"store", engine.store_problem().empty() ? "ok" : "failed: " + engine.store_problem()},
                     {"safe_mode", render_safe_mode(engine)},
                     {"actor", render_actor(engine)},
                     {"gpu_library", engine.machine().probe->library()},
                     {"driver_version", engine.machine().probe->driver_version()}}},
                   {"devices", all_devices(engine)},
                   {"leases", counts(engine.state())},
                   {"activity", activities(engine)},
                   {"ledger", ledger(engine)},
                   {"unleased_processes", unleased_processes(call)},
                   {"waiting_bytes", engine.state().queue.waiting_bytes().count},
                   {"warnings", std::move(warnings)},
                   {"program_env", std::move(environment)},
                   {"gpu_names", options.gpu_names},
                   {"inside", inside(call)},
                   {"caller", caller(call.request.peer)},
                   {"now", format_rfc3339(engine.now())}},
                  {},
                  false};
}

constexpr Route table[] = {
    Route{Method::get, "/healthz", Role::nobody, Scope::read, get_health, "", "Health"}.without_store(),
    Route{Method::get, "/v1/status", Role::user, Scope::read, get_status, "", "Status"}.without_store(),
    Route{Method::get, "/v1/devices", Role::user, Scope::read, get_devices}.without_store(),
    Route{Method::get, "/v1/processes", Role::user, Scope::read, get_processes, "lease"}.without_store(),
    Route{Method::get, "/v1/ledger", Role::user, Scope::read, get_ledger, "", "Ledger"},
};

}  // namespace

const std::span<const Route> table_routes = table;

}  // namespace sublet::http
