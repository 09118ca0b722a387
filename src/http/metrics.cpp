// SPDX-License-Identifier: Apache-2.0
// Figures for a collector, in Prometheus' text form. Base units; no lease, pid, path or command in a label, so that the
// number of series is bounded by that of cards, accounts and words.
#include "events/outlets.h"
#include "guard/guard.h"
#include "http/metrics_page.h"
#include "http/routes.h"
#include "sessions/sessions.h"
#include "stacks/stacks.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

using core::LeaseState;

double seconds(Duration time) { return std::max(std::chrono::duration<double>(time).count(), 0.0); }

// One walk over the leases for all that is counted of them.
void leases(Page& page, const engine::Engine& engine) {
  std::map<LeaseState, double> by_state;
  for (const LeaseState state : {LeaseState::queued, LeaseState::offered, LeaseState::active, LeaseState::pausing,
                                 LeaseState::paused, LeaseState::resuming, LeaseState::poisoned})
    by_state[state] = 0;
  std::map<core::Tier, double> waiting{{core::Tier::critical, 0},
                                       {core::Tier::interactive, 0},
                                       {core::Tier::standard, 0},
                                       {core::Tier::batch, 0},
                                       {core::Tier::spot, 0}};
  std::map<core::Tier, double> longest = waiting;  // seconds
  double parked = 0;                               // seconds
  std::map<std::string, double> held, used;        // by labels
  for (const auto& [id, lease] : engine.state().leases.by_id) {
    if (lease.ended()) continue;
    ++by_state[lease.state];
    // Leases that wait to grow or to resume are counted too.
    if (engine.state().queue.contains(id)) {
      ++waiting[lease.tier];
      longest[lease.tier] = std::max(longest[lease.tier], seconds(engine.now() - lease.waits_since()));
    }
    if (lease.parked_at) parked = std::max(parked, seconds(engine.now() - *lease.parked_at));
    if (!lease.reserves()) continue;
    for (const std::string& device : lease.devices) {
      std::string labels = fmt::format("tenant=\"{}\",user=\"{}\",gpu=\"{}\"", escaped(lease.tenant),
                                       escaped(lease.user), escaped(device));
      if (held.size() >= engine::Counters::who_limit && !held.contains(labels)) {
        labels = R"(tenant="other",user="other",gpu="other")";
      }
      held[labels] += count(lease.reserved_each());
      used[labels] += count(core::charge_on(engine.state(), id, device).used);
    }
  }
  page.metric("sublet_leases", "gauge", "Leases that have not ended, by state");
  for (const auto& [state, number] : by_state) {
    page.sample(fmt::format("state=\"{}\"", core::to_string(state)), number);
  }
  page.metric("sublet_queue_length", "gauge", "Leases in the queue, by tier: to start, to grow or to resume");
  for (const auto& [tier, number] : waiting) {
    page.sample(fmt::format("tier=\"{}\"", core::to_string(tier)), number);
  }
  page.metric("sublet_queue_longest_wait_seconds", "gauge", "Longest present wait in the queue, by tier");
  for (const auto& [tier, longest_wait] : longest) {
    page.sample(fmt::format("tier=\"{}\"", core::to_string(tier)), longest_wait);
  }
  page.single("sublet_paused_longest_seconds", "gauge", "How long the lease has been paused that is paused longest",
              parked);
  page.metric("sublet_tenant_memory_bytes", "gauge", "Memory reserved by leases; for a paused lease, its residue");
  for (const auto& [labels, bytes] : held) page.sample(labels, bytes);
  page.metric("sublet_tenant_memory_used_bytes", "gauge", "Memory that the programs of these leases use");
  for (const auto& [labels, bytes] : used) page.sample(labels, bytes);
}

// No series for a state that no lease of the tenant is in.
void tenants(Page& page, const engine::Engine& engine) {
  std::map<std::string, std::map<LeaseState, double>> by_tenant;
  for (const auto& [id, lease] : engine.state().leases.by_id) {
    if (lease.ended()) continue;
    const bool known = by_tenant.contains(lease.tenant) || by_tenant.size() < engine::Counters::who_limit;
    ++by_tenant[known ? lease.tenant : "other"][lease.state];
  }
  page.metric("sublet_tenant_leases", "gauge", "Leases that have not ended, by tenant and state");
  for (const auto& [tenant, states] : by_tenant) {
    for (const auto& [state, number] : states)
      page.sample(fmt::format("tenant=\"{}\",state=\"{}\"", escaped(tenant), core::to_string(state)), number);
  }
  page.metric("sublet_tenant_queue_wait_seconds", "summary",
              "Time from a request to start or to grow until its grant, by tenant");
  for (const auto& [tenant, waits] : engine.counters().waits_by_tenant()) {
    const std::string labels = fmt::format("tenant=\"{}\"", escaped(tenant));
    page.sample(labels, waits.seconds, "_sum");
    page.sample(labels, static_cast<double>(waits.number), "_count");
  }
}

void ledger(Page& page, const engine::Engine& engine) {
  const core::State& state = engine.state();
  page.metric("sublet_ledger_bytes", "gauge",
              "Host memory in the park ledger: parked, promised (entered, not yet parked), swapped (parked, on a swap "
              "device), limit");
  Bytes swapped;
  for (const auto& [lease, bytes] : engine.observer().swapped()) swapped += bytes;
  page.sample("state=\"parked\"", count(state.host.entries - state.host.unsettled));
  page.sample("state=\"promised\"", count(state.host.unsettled));
  page.sample("state=\"swapped\"", count(swapped));
  page.sample("state=\"limit\"", count(engine.rules().ledger_limit));
}

void counters(Page& page, const engine::Engine& engine) {
  const engine::Counters& counters = engine.counters();
  page.metric("sublet_usage_byte_seconds_total", "counter", "Reserved memory times its time, since the start");
  for (const auto& [who, amount] : counters.byte_seconds(engine.now())) {
    page.sample(fmt::format("user=\"{}\",tenant=\"{}\"", escaped(who.first), escaped(who.second)), amount);
  }
  page.metric("sublet_leases_ended_total", "counter", "Leases that have ended since the start, by reason");
  for (const auto& [reason, number] : counters.ended()) {
    page.sample(fmt::format("reason=\"{}\"", core::to_string(reason)), static_cast<double>(number));
  }
  page.metric("sublet_queue_wait_seconds", "histogram", "Time from a request to start or to grow until its grant");
  double sum = 0;
  for (std::size_t i = 0; i < counters.waits().size(); ++i) {
    sum += static_cast<double>(counters.waits()[i]);
    const bool last = i == engine::Counters::wait_bounds.size();
    page.sample(fmt::format("le=\"{}\"", last ? "+Inf" : fmt::format("{}", engine::Counters::wait_bounds[i])), sum,
                "_bucket");
  }
  page.sample("", counters.waited_seconds(), "_sum");
  page.sample("", sum, "_count");
}

// Every card has this series from the start, so that the first violation is a step.
void violations(Page& page, const engine::Engine& engine) {
  page.metric("sublet_limit_violations_total", "counter",
              "Number of times that a lease began to use more than its size");
  for (const auto& [uuid, device] : engine.state().devices.by_uuid) {
    page.sample(fmt::format("gpu=\"{}\"", escaped(uuid)), static_cast<double>(engine.counters().times_over(uuid)));
  }
}

// All of them from the start on, too.
void pauses(Page& page, const engine::Engine& engine) {
  using core::PauseMethod;
  using Result = engine::Counters::PauseResult;
  page.metric("sublet_pauses_total", "counter",
              "Results of pauses: paused (memory measured free), undone (the program keeps running), ended (the lease "
              "ended meanwhile)");
  for (const PauseMethod method : {PauseMethod::cooperative, PauseMethod::driver}) {
    for (const auto& [result, word] :
         {std::pair(Result::paused, "paused"), {Result::undone, "undone"}, {Result::ended, "ended"}}) {
      page.sample(fmt::format("method=\"{}\",result=\"{}\"", core::to_string(method), word),
                  static_cast<double>(engine.counters().pauses({method, result})));
    }
  }
}

// Every state is there from the start on.
void programs(Page& page, const guard::Guard& guard) {
  std::map<guard::Phase, double> by_phase;
  for (const auto& [key, program] : guard.programs()) ++by_phase[program.progress.phase];
  page.metric("sublet_guard_programs", "gauge", "Supervised programs, by state");
  for (int phase = 0; phase <= static_cast<int>(guard::Phase::failed); ++phase) {
    page.sample(fmt::format("state=\"{}\"", guard::to_string(static_cast<guard::Phase>(phase))),
                by_phase[static_cast<guard::Phase>(phase)]);
  }
}

void sessions_by_state(Page& page, const sessions::Sessions& sessions) {
  using sessions::State;
  std::map<State, double> by_state;
  for (const sessions::Session* session : sessions.all()) ++by_state[session->progress.state];
  page.metric("sublet_sessions", "gauge", "Sessions, by state");
  for (int state = 0; state <= static_cast<int>(State::closed); ++state)
    page.sample(fmt::format("state=\"{}\"", sessions::to_string(static_cast<State>(state))),
                by_state[static_cast<State>(state)]);
}

void stacks_by_state(Page& page, const stacks::Stacks& stacks) {
  std::map<std::string_view, double> by_state;
  for (const char* state : {"down", "up", "queued", "creating", "starting", "ready", "released", "stopping", "failed"})
    by_state[state] = 0;
  for (const auto& [name, entry] : stacks.entries()) ++by_state[entry.state()];
  page.metric("sublet_stacks", "gauge", "Docker Compose projects, by state");
  for (const auto& [state, number] : by_state) page.sample(fmt::format("state=\"{}\"", state), number);
}

// No series without targets.
void targets(Page& page, const events::Outlets& outlets) {
  const auto counts = outlets.counts();
  if (counts.empty()) return;
  page.metric("sublet_events_delivered_total", "counter", "Events that a target took, or that were lost to it");
  for (const auto& [name, count] : counts) {
    page.sample(fmt::format("target=\"{}\",result=\"sent\"", escaped(name)), static_cast<double>(count.sent));
    page.sample(fmt::format("target=\"{}\",result=\"dropped\"", escaped(name)), static_cast<double>(count.dropped));
  }
  page.metric("sublet_events_behind", "gauge", "Events that were not looked at yet, by target");
  for (const auto& [name, count] : counts)
    page.sample(fmt::format("target=\"{}\"", escaped(name)), static_cast<double>(count.behind));
}

Reply get_metrics(Call& call) {
  const engine::Engine& engine = call.engine;
  Page page;
  page.metric("sublet_build_info", "gauge", "1; the version is in the label");
  page.sample(fmt::format("version=\"{}\"", SUBLET_VERSION), 1);
  const std::int64_t started_ms = engine.clock().started_at().ns / 1'000'000;
  page.single("sublet_start_time_seconds", "gauge", "When the daemon started, in seconds since 1970",
              static_cast<double>(started_ms) / 1e3);
  page.single("sublet_store_up", "gauge", "1 while the store is usable; at 0 no lease is granted",
              engine.store_problem().empty() ? 1 : 0);
  page.metric("sublet_warnings", "gauge", "Current warnings, by code");
  std::map<std::string, double> warnings;
  for (const engine::Warning& warning : call.engine.warnings()) ++warnings[warning.code];
  for (const auto& [code, number] : warnings) page.sample(fmt::format("code=\"{}\"", escaped(code)), number);
  page.single("sublet_events_total", "counter", "Events recorded in this store so far",
              static_cast<double>(engine.commits().log().last()));
  device_metrics(page, engine);
  leases(page, engine);
  tenants(page, engine);
  if (call.capabilities.tenants != nullptr) tenant_metrics(page, engine, *call.capabilities.tenants);
  ledger(page, engine);
  counters(page, engine);
  violations(page, engine);
  pauses(page, engine);
  if (call.capabilities.guard != nullptr) programs(page, *call.capabilities.guard);
  if (call.capabilities.sessions != nullptr) sessions_by_state(page, *call.capabilities.sessions);
  if (call.capabilities.stacks != nullptr) stacks_by_state(page, *call.capabilities.stacks);
  if (call.capabilities.limits != nullptr) interposer_metrics(page, engine, *call.capabilities.limits);
  if (call.capabilities.events != nullptr) targets(page, *call.capabilities.events);
  return Response{200, nullptr, {}, false, page.take(), "text/plain; version=0.0.4; charset=utf-8"};
}

constexpr Route table[] = {
    Route{Method::get, "/metrics", Role::user, Scope::read, get_metrics}.without_store(),
};

}  // namespace

const std::span<const Route> metrics_routes = table;

}  // namespace sublet::http
