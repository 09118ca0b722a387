// SPDX-License-Identifier: Apache-2.0
// The engine and the capabilities above it.
#include "engine/engine.h"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <iterator>
#include <utility>

namespace sublet::engine {

void Engine::add(Capability& capability) { capabilities_.push_back(&capability); }

Result<LeaseId> Engine::decide(const core::Fact& fact) {
  if (const Status may = may_decide(); !may) return may.error();
  const Time now = notice();
  core::Plan plan = core::step(state_, options_.rules, fact, now);
  Result<LeaseId> outcome = plan.outcome;
  intend(std::move(plan), now, std::nullopt);
  return outcome;
}

void Rows::add(Rows&& more) {
  std::ranges::move(more.programs, std::back_inserter(programs));
  std::ranges::move(more.rows, std::back_inserter(rows));
  std::ranges::move(more.events, std::back_inserter(events));
}

Rows Engine::take_rows() {
  Rows rows;
  for (Capability* capability : capabilities_) rows.add(capability->take_rows());
  return rows;
}

// Puts the changes of capabilities into a batch, and returns the events in it.
std::vector<EventLog::Event> Engine::add_rows(Rows rows, store::Batch& batch) {
  batch.programs = std::move(rows.programs);
  batch.rows = std::move(rows.rows);
  std::vector<EventLog::Event> events;
  for (Rows::Event& event : rows.events)
    events.push_back(log_.of_capability(std::move(event.type), std::move(event.data)));
  batch.events.insert(batch.events.end(), events.begin(), events.end());
  return events;
}

void Engine::write_rows(std::string_view transition, Rows rows, const Remember& remember, const Answered& answer) {
  store::Batch batch;
  const std::vector<EventLog::Event> events = add_rows(std::move(rows), batch);
  if (!std::exchange(boot_id_stored_, true)) {  // the rows may name processes of this boot
    batch.boot_id = options_.boot_id;
    batch.clock_offset_ns = clock_.offset_ns();
  }
  write(transition, std::move(batch), remember, answer);
  log_.intended(intended_, events);
}

Result<Answered> Engine::store_rows(std::string_view transition, const Remember& remember, Answered answer) {
  if (const Status may = may_decide(); !may) return may.error();
  Rows rows = take_rows();
  // A decision has taken the rows already, and no answer has to be remembered: nothing is left to write.
  if (rows.empty() && remember.key.empty()) return answer;
  write_rows(transition, std::move(rows), remember, answer);
  wake_capabilities();
  return answer;
}

void Engine::wake_capabilities() {
  if (capabilities_.empty() || std::exchange(capabilities_woken_, true)) return;
  boost::asio::post(io_, [this] { run_capabilities(); });
}

std::string Engine::lease_field(std::string_view name, const core::Lease& lease) const {
  for (const Capability* capability : capabilities_)
    if (std::string field = capability->lease_field(name, lease); !field.empty()) return field;
  return "null";
}

LeaseActivity Engine::activity(LeaseId lease) const {
  return activities_.of(lease, state_, options_.rules, clock_.now());
}

void Engine::touch(LeaseId lease) {
  activities_.touch(lease, now());
  wake_capabilities();
}

void Engine::run_capabilities() {
  capabilities_woken_ = false;
  if (stopping_ || !store_problem_.empty()) return;
  Time next = Time::never();
  for (Capability* capability : capabilities_) next = std::min(next, capability->due(notice()));
  if (Rows rows = take_rows(); !rows.empty()) {
    const auto has = [&](std::string_view kind) {
      return std::ranges::any_of(rows.rows, [&](const auto& row) { return row.kind == kind; });
    };
    const auto* transition = !rows.programs.empty() ? "program_changed"
                             : has("session")       ? "session_changed"
                             : has("stack")         ? "stack_changed"
                                                    : "verdict_changed";
    write_rows(transition, std::move(rows), {}, {});
  }
  if (next == Time::never()) return capability_alarm_->cancel();
  capability_alarm_->set(std::max(next - clock_.now(), Duration::zero()), [this] { run_capabilities(); });
}

}  // namespace sublet::engine
