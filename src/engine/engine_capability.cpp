// SPDX-License-Identifier: Apache-2.0
// The engine and the capabilities above it.
#include "engine/engine.h"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <utility>

namespace sublet::engine {

void Engine::add(Capability& capability) { capabilities_.push_back(&capability); }

Result<LeaseId> Engine::decide(const core::Fact& fact) {
  if (const Status may = may_take(fact); !may) return decide_end(fact, may.error());
  const Time now = notice();
  core::Plan plan = core::step(state_, options_.rules, fact, now);
  Result<LeaseId> outcome = plan.outcome;
  auto end = end_in(fact, plan, now);
  intend(std::move(plan), now);
  if (end) await_end(*outcome, std::move(end));
  return outcome;
}

void Engine::rows_changed() {
  pending_.stores = true;
  call_capabilities();
}

void Engine::tell(Rows::Event event) {
  pending_.events.push_back(std::move(event));
  rows_changed();
}

void Engine::call_capabilities() {
  if (capabilities_.empty() || std::exchange(capabilities_called_, true)) return;
  boost::asio::post(io_, [this] { run_capabilities(); });
}

std::string Engine::lease_field(std::string_view name, const core::Lease& lease) const {
  for (const Capability* capability : capabilities_)
    if (std::string field = capability->lease_field(name, lease); !field.empty()) return field;
  return "null";
}

std::string Engine::device_field(std::string_view name, const std::string& uuid) const {
  for (const Capability* capability : capabilities_)
    if (std::string field = capability->device_field(name, uuid); !field.empty()) return field;
  return "null";
}

LeaseActivity Engine::activity(LeaseId lease) const {
  return activities_.of(lease, state_, options_.rules, clock_.now());
}

void Engine::touch(LeaseId lease) {
  activities_.touch(lease, now());
  call_capabilities();
}

void Engine::run_capabilities() {
  capabilities_called_ = false;
  if (stopping_) return;
  const bool can_store = store_problem_.empty();
  Time next = Time::never();
  {
    const Transaction transaction(*this);
    for (Capability* capability : capabilities_) {
      next = std::min(next, can_store ? capability->due(notice()) : capability->due_without_store(clock_.now()));
      tell_capabilities();
    }
  }
  if (next == Time::never()) return capability_alarm_->cancel();
  capability_alarm_->set(std::max(next - clock_.now(), Duration::zero()), [this] { run_capabilities(); });
}

}  // namespace sublet::engine
