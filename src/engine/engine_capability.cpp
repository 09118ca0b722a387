// SPDX-License-Identifier: Apache-2.0
// The engine and the capabilities above it.
#include "engine/engine.h"

#include <boost/asio/post.hpp>

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

std::vector<store::ProgramRow> Engine::take_rows() {
  std::vector<store::ProgramRow> rows;
  for (Capability* capability : capabilities_) {
    for (store::ProgramRow& row : capability->take_rows()) rows.push_back(std::move(row));
  }
  return rows;
}

Result<Answered> Engine::store_rows(std::string_view transition, const Remember& remember, Answered answer) {
  if (const Status may = may_decide(); !may) return may.error();
  write(transition, {.programs = take_rows()}, remember, answer);
  wake_capabilities();
  return answer;
}

void Engine::wake_capabilities() {
  if (capabilities_.empty() || std::exchange(capabilities_woken_, true)) return;
  boost::asio::post(io_, [this] { run_capabilities(); });
}

void Engine::run_capabilities() {
  capabilities_woken_ = false;
  if (stopping_ || !store_problem_.empty()) return;
  Time next = Time::never();
  for (Capability* capability : capabilities_) next = std::min(next, capability->due(notice()));
  if (auto rows = take_rows(); !rows.empty()) write("program_changed", {.programs = std::move(rows)}, {}, {});
  if (next == Time::never()) return capability_alarm_->cancel();
  capability_alarm_->set(std::max(next - clock_.now(), Duration::zero()), [this] { run_capabilities(); });
}

}  // namespace sublet::engine
