// SPDX-License-Identifier: Apache-2.0
// GET /v1/consumers: remembered consumers, the basis of estimates and pause costs.
#include "http/grants.h"
#include "http/routes.h"
#include "machine/account.h"

#include <fmt/format.h>

#include <cmath>
#include <set>

namespace sublet::http {
namespace {

std::int64_t ms(Duration duration) { return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count(); }

// The predicted duration of moves: a fixed part, and bytes at a rate. `consumer` without a name: all consumers on this
// device, or on all devices ("").
json moves_of(const core::CostModel& costs, const core::Consumer& consumer, const std::string& device = {}) {
  json moves = json::array();
  const core::CostModel::Key first{consumer, device, {}, {}};
  for (auto entry = costs.entries().lower_bound(first); entry != costs.entries().end(); ++entry) {
    const auto& [key, known] = *entry;
    if (key.consumer != consumer || key.device != device) break;
    const core::MoveCurve::Line line = costs.line(key);
    // Where the bytes do not matter there is no rate.
    const double rate = line.s_per_gib > 0 ? static_cast<double>(GiB.count) / line.s_per_gib : 0;
    moves.push_back({{"method", core::to_string(key.method)},
                     {"move", core::to_string(key.move)},
                     {"samples", known.curve.samples().size()},
                     {"fixed_ms", std::llround(line.fixed_s * 1000)},
                     {"bytes_per_second", rate > 0 && rate < 1e18 ? json(std::llround(rate)) : json(nullptr)},
                     {"spread_ratio", std::round(line.spread * 1000) / 1000}});
  }
  return moves;
}

json pauses_of(const core::State& state, const core::Consumer& consumer) {
  json pauses = json::array();
  const auto& records = state.learned.records;
  for (auto entry = records.lower_bound({consumer, {}}); entry != records.end(); ++entry) {
    const auto& [key, record] = *entry;
    if (key.first != consumer) break;
    pauses.push_back({{"method", core::to_string(key.second)},
                      {"tried", record.tries},
                      {"failed", record.failed()},
                      {"penalty_ms", ms(record.penalty())},
                      {"reliability_ratio", std::round(record.reliability() * 1000) / 1000}});
  }
  return pauses;
}

// The prediction for a new consumer on each device.
json devices_of(const core::State& state) {
  std::set<std::string> uuids;
  for (const auto& [key, entry] : state.learned.costs.entries())
    if (!key.device.empty()) uuids.insert(key.device);
  json rows = json::array();
  for (const std::string& uuid : uuids) {
    const auto device = state.devices.by_uuid.find(uuid);
    const bool there = device != state.devices.by_uuid.end() && device->second.read_at;
    rows.push_back({{"uuid", uuid},
                    {"id", there ? json(device->second.reading.id()) : json(nullptr)},
                    {"moves", moves_of(state.learned.costs, {}, uuid)}});
  }
  return rows;
}

json row(const core::State& state, const core::Consumer& consumer, const engine::Peer& viewer) {
  static const core::ConsumerHistory none;
  const core::ConsumerHistory* found = core::history_of(state, consumer);
  const core::ConsumerHistory& history = found != nullptr ? *found : none;
  json runs = json::array();
  for (const Duration run : history.runs) runs.push_back(ms(run));
  const auto median = history.median ? json(*history.median / std::chrono::seconds(1)) : json(nullptr);
  return {{"consumer", consumer.name},
          {"uid", consumer.uid},
          {"user", machine::account_name(consumer.uid)},
          {"own", consumer.uid == viewer.uid},
          {"peak_used_bytes", history.peak_used.count},
          {"runs", history.runs.size()},
          {"run_ms", std::move(runs)},
          {"median_run_seconds", median},
          {"moves", moves_of(state.learned.costs, consumer)},
          {"pauses", pauses_of(state, consumer)}};
}

Reply get_consumers(Call& call) {
  const core::State& state = call.engine.state();
  json rows = json::array();
  // A consumer may have been paused, or its pause may have been undone, before it came to an end.
  std::set<std::pair<std::string, std::uint32_t>> all;
  for (const auto& [consumer, entry] : state.learned.history) all.emplace(consumer.name, consumer.uid);
  for (const auto& [key, entry] : state.learned.costs.entries())
    if (!key.consumer.name.empty()) all.emplace(key.consumer.name, key.consumer.uid);
  for (const auto& [key, record] : state.learned.records) all.emplace(key.first.name, key.first.uid);
  for (const auto& [name, uid] : all) rows.push_back(row(state, {uid, name}, call.request.peer));
  return Response{200,
                  {{"consumers", std::move(rows)},
                   {"devices", devices_of(state)},
                   {"moves", moves_of(state.learned.costs, {})},
                   {"grants", render_grants(call.engine)}},
                  {}};
}

constexpr Route table[] = {
    Route{Method::get, "/v1/consumers", Role::user, Scope::read, get_consumers},
};

}  // namespace

const std::span<const Route> consumer_routes = table;

}  // namespace sublet::http
