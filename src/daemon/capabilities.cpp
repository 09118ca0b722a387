// SPDX-License-Identifier: Apache-2.0
#include "daemon/capabilities.h"

#include "base/in_container.h"
#include "base/log.h"
#include "daemon/wiring.h"
#include "http/compatible_service.h"
#include "maintenance/maintenance.h"
#include "share/shares.h"
#include "tenants/tenants.h"

#include <filesystem>

namespace sublet::daemon {

struct CapabilitySet::Made {
  std::unique_ptr<guard::Guard> guard;
  std::unique_ptr<sessions::Sessions> sessions;
  std::unique_ptr<enforcer::Enforcer> enforcer;
  std::unique_ptr<compose::Worker> worker;
  std::unique_ptr<stacks::Stacks> stacks;
  std::unique_ptr<stacks::OneSlot> one_slot;
  std::unique_ptr<http::CompatibleService> compatible;
  std::unique_ptr<http::CompatibleServer> compatible_server;
  std::unique_ptr<idle::Idle> idle;
  std::unique_ptr<follow::Follow> follow;
  std::unique_ptr<events::Outlets> outlets;
  std::unique_ptr<meter::Meter> meter;
  std::unique_ptr<maintenance::Maintenance> maintenance;
  std::unique_ptr<tenants::Tenants> tenants;
  std::unique_ptr<share::Shares> shares;
  std::unique_ptr<limit::Limits> limits;
  std::string credit_socket;
};

namespace {

using Made = CapabilitySet::Made;

// Makes a capability, adds it to the engine, and keeps it.
template <typename Capability, typename... Args>
Status keep(const Parts& parts, std::unique_ptr<Capability>& place, Args&&... args) {
  place = std::make_unique<Capability>(std::forward<Args>(args)...);
  parts.engine.capabilities().add(*place);
  return {};
}

Status make_guard(const Parts& parts, Made& made) {
  return keep(parts, made.guard, parts.engine, parts.keepers, guard_options(parts.config, parts.places));
}

Status make_sessions(const Parts& parts, Made& made) {
  return keep(parts, made.sessions, parts.engine, parts.keepers, sessions_options(parts.config, parts.places));
}

Status make_enforcer(const Parts& parts, Made& made) {
  if (parts.unleased == nullptr) return {};
  return keep(parts, made.enforcer, parts.engine, *parts.unleased, enforcer_options(parts.config));
}

Status make_stacks(const Parts& parts, Made& made) {
  made.worker = compose::remote_worker(parts.io, stacks_worker(parts.config, parts.places));
  return keep(parts, made.stacks, parts.engine, *made.worker, stacks_options(parts.config, parts.places));
}

Status make_one_slot(const Parts& parts, Made& made) {
  if (!made.stacks)
    return bad_request("stacks.http is set, and stacks.enabled is false: its callers would get no answer",
                       "set stacks.enabled = true, or remove stacks.http");
  auto slot = one_slot_options(parts.config);
  if (!slot) return slot.error();
  auto address = compatible_options(parts.config);
  if (!address) return address.error();
  (void)keep(parts, made.one_slot, parts.engine, *made.stacks, std::move(*slot));
  const bool is_admin = parts.config.stacks.http_role.word == "admin";
  made.compatible =
      std::make_unique<http::CompatibleService>(parts.io, parts.engine, *made.stacks, *made.one_slot, is_admin);
  made.compatible_server =
      std::make_unique<http::CompatibleServer>(parts.io, parts.engine, std::move(*address), made.compatible->handler());
  return {};
}

// A wrong rule is told though no rule is in force.
Status make_idle(const Parts& parts, Made& made) {
  auto rules = idle_options(parts.config);
  if (!rules) return rules.error();
  if (!parts.config.idle.enabled) return {};
  (void)keep(parts, made.idle, parts.engine, std::move(*rules));
  if (sessions::Sessions* sessions = made.sessions.get())
    made.idle->set_sessions(
        [sessions](LeaseId lease, const std::string& why) { return sessions->end_idle(lease, why); },
        [sessions](LeaseId lease, const std::string& why) { return sessions->rest_idle(lease, why); },
        [sessions](LeaseId lease) { return sessions->may_rest(lease); },
        [sessions](LeaseId lease) { return sessions->rests(lease); });
  return {};
}

Status make_follow(const Parts& parts, Made& made) {
  return keep(parts, made.follow, parts.engine, follow_options(parts.config, made.enforcer.get()));
}

Status make_events(const Parts& parts, Made& made) {
  auto tools = events_options(parts.config);
  if (!tools) return tools.error();
  return keep(parts, made.outlets, parts.io, parts.engine, std::move(*tools));
}

Status make_meter(const Parts& parts, Made& made) {
  (void)keep(parts, made.meter, parts.io, parts.engine, meter_options(parts.config, parts.store_path));
  made.limits->set_told([meter = made.meter.get()](LeaseId lease, const credit::Counts& grown) {
    constexpr std::int64_t us = 1000;  // in ns
    meter->add_work(lease, {.launches = grown.launches,
                            .copied = grown.copied,
                            .allocated = grown.allocated,
                            .errors = grown.all_errors(),
                            .charged_us = grown.all_busy() / us,
                            .waited_us = grown.all_waited() / us});
  });
  return {};
}

Status make_maintenance(const Parts& parts, Made& made) {
  (void)keep(parts, made.maintenance, parts.engine, cordon_causes(parts.config));
  if (sessions::Sessions* sessions = made.sessions.get())
    made.maintenance->set_sessions(
        {[sessions](LeaseId lease) { return sessions->checkpoint_time(lease); },
         [sessions](LeaseId lease, const std::string& why) { sessions->end_drained(lease, why); }});
  return {};
}

Status make_tenants(const Parts& parts, Made& made) { return keep(parts, made.tenants, parts.engine); }

Status make_limits(const Parts& parts, Made& made) {
  made.credit_socket = parts.places.credit_socket;
  (void)keep(parts, made.shares, parts.engine, parts.config.gpu.interval_idle);
  (void)keep(parts, made.limits, parts.io, parts.engine, limit_options(parts.config), made.shares.get());
  if (const stacks::Stacks* stacks = made.stacks.get())
    made.limits->set_awaits([stacks](std::int32_t pid) { return stacks->awaits(pid); });
  return {};
}

bool always(const Config&) { return true; }

// In this order the engine tells them of decisions. A line uses those above it.
struct Line {
  bool (*enabled)(const Config&);
  Status (*make)(const Parts&, Made&);
};
constexpr Line table[]{
    {always, make_tenants},  // its facts come before those of all others
    {[](const Config& config) { return config.guard.enabled; }, make_guard},
    {[](const Config& config) { return config.sessions.enabled; }, make_sessions},
    {[](const Config& config) { return config.enforcer.enabled; }, make_enforcer},
    {[](const Config& config) { return config.stacks.enabled; }, make_stacks},
    {[](const Config& config) { return !config.stacks.http.text.empty(); }, make_one_slot},
    {always, make_idle},
    {always, make_follow},
    {always, make_limits},
    {always, make_maintenance},
    {always, make_events},
    {[](const Config& config) { return config.meter.enabled; }, make_meter},
};

}  // namespace

CapabilitySet::CapabilitySet() : made_(std::make_unique<Made>()) {}

CapabilitySet::~CapabilitySet() = default;

Status CapabilitySet::make(const Parts& parts) {
  for (const Line& line : table) {
    if (!line.enabled(parts.config)) continue;
    if (const Status made = line.make(parts, *made_); !made) return made;
  }
  return {};
}

http::Capabilities CapabilitySet::shown() const {
  return {.guard = made_->guard.get(),
          .enforcer = made_->enforcer.get(),
          .stacks = made_->stacks.get(),
          .sessions = made_->sessions.get(),
          .events = made_->outlets.get(),
          .meter = made_->meter.get(),
          .idle = made_->idle.get(),
          .follow = made_->follow.get(),
          .limits = made_->limits.get(),
          .maintenance = made_->maintenance.get(),
          .tenants = made_->tenants.get()};
}

namespace {

// A container may not see the folder of the API's socket. So the socket of credits has a second name in a folder of its
// own, which an agent mounts. The folder leads to the socket of the next daemon too.
void name_for_containers(const std::filesystem::path& socket) {
  const auto folder = socket.parent_path() / in_container::folder_name, fresh = folder / in_container::fresh_name;
  std::error_code failure, ignored;
  if (std::filesystem::create_directory(folder, failure))
    std::filesystem::permissions(folder, std::filesystem::perms(0755), failure);
  std::filesystem::remove(fresh, ignored);
  if (!failure) std::filesystem::create_hard_link(socket, fresh, failure);
  if (!failure) std::filesystem::rename(fresh, folder / socket.filename(), failure);
  if (failure) log::warn("containers cannot ask for their limits at {}: {}", folder.string(), failure.message());
}

}  // namespace

Status CapabilitySet::start() {
  // Programs run without a limit then, as they do without the interposer.
  if (const Status started = made_->limits->start(made_->credit_socket); !started)
    log::error("the interposer limits nothing: {}", started.error().detail);
  else name_for_containers(made_->credit_socket);
  return made_->compatible_server ? made_->compatible_server->start() : Status();
}

void CapabilitySet::stop() {
  if (made_->limits) made_->limits->stop();
  if (made_->meter) made_->meter->stop();
}

}  // namespace sublet::daemon
