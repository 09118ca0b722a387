// SPDX-License-Identifier: Apache-2.0
#include "engine/capabilities.h"

#include "engine/engine.h"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <utility>

namespace sublet::engine {

void Capabilities::stop() {
  stopping_ = true;
  alarm_->cancel();
}

void Capabilities::loaded(const store::Loaded& rows, Time now) {
  for (Capability* capability : all_) capability->loaded(rows, now);
}

std::vector<core::Fact> Capabilities::first_facts() const {
  std::vector<core::Fact> facts;
  for (const Capability* capability : all_)
    for (core::Fact& fact : capability->first_facts()) facts.push_back(std::move(fact));
  return facts;
}

void Capabilities::happened(const core::Plan& plan, Time now) {
  for (Capability* capability : all_) capability->happened(plan, now);
}

void Capabilities::measured(Time now) {
  for (Capability* capability : all_) capability->measured(now);
  call_soon();
}

void Capabilities::keeper_lost(LeaseId lease) {
  for (Capability* capability : all_) capability->keeper_lost(lease);
  call_soon();
}

void Capabilities::call_soon() {
  if (all_.empty() || std::exchange(is_called_, true)) return;
  boost::asio::post(io_, [this] { run(); });
}

void Capabilities::later(std::function<void()> act) {
  boost::asio::post(io_, [this, act = std::move(act)] {
    if (!stopping_) act();
  });
}

void Capabilities::run() {
  is_called_ = false;
  if (stopping_) return;
  Time next = Time::never();
  {
    const Engine::Transaction transaction(engine_);
    const bool can_store = engine_.store_problem().empty();
    for (Capability* capability : all_) {
      const Time now = engine_.notice();
      engine_.tell_plans();
      next = std::min(next, can_store ? capability->due(now) : capability->due_without_store(now));
    }
  }
  if (next == Time::never()) return alarm_->cancel();
  alarm_->set(std::max(next - engine_.now(), Duration::zero()), [this] { run(); });
}

std::vector<Warning> Capabilities::warnings(Time now) const {
  std::vector<Warning> warnings;
  for (const Capability* capability : all_)
    for (Warning& warning : capability->warnings(now)) warnings.push_back(std::move(warning));
  return warnings;
}

std::string Capabilities::lease_field(std::string_view name, const core::Lease& lease) const {
  for (const Capability* capability : all_)
    if (std::string field = capability->lease_field(name, lease); !field.empty()) return field;
  return "null";
}

std::string Capabilities::device_field(std::string_view name, const std::string& uuid) const {
  for (const Capability* capability : all_)
    if (std::string field = capability->device_field(name, uuid); !field.empty()) return field;
  return "null";
}

void Capabilities::take(Rows& rows) {
  for (RowSource* source : sources_) source->take(rows);
}

void Capabilities::taken(std::uint64_t sequence) {
  for (RowSource* source : sources_) source->taken(sequence);
}

void Capabilities::committed(std::uint64_t sequence) {
  for (RowSource* source : sources_) source->committed(sequence);
}

}  // namespace sublet::engine
