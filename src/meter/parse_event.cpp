// SPDX-License-Identifier: Apache-2.0
#include "meter/facts.h"

#include "lease/lease.h"

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdio>

namespace sublet::meter {

using nlohmann::json;

namespace {

// "2026-11-26T10:00:00.123Z", as format_rfc3339() writes it.
std::optional<Ms> read_time(const std::string& text) {
  int year = 0, month = 0, day = 0, hours = 0, minutes = 0, seconds = 0, thousandths = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ", &year, &month, &day, &hours, &minutes, &seconds,
                  &thousandths) != 7)
    return std::nullopt;
  using namespace std::chrono;
  const sys_days date = std::chrono::year(year) / month / day;
  const auto of_day = std::chrono::hours(hours) + std::chrono::minutes(minutes) + std::chrono::seconds(seconds);
  return duration_cast<milliseconds>(date.time_since_epoch() + of_day).count() + thousandths;
}

std::string text_of(const json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// "lease-7 (train, ana)" begins with the id.
LeaseId first_lease(const std::string& text) {
  const auto lease = parse_lease_id(text.substr(0, text.find(' ')));
  return lease ? *lease : LeaseId{};
}

std::variant<std::monostate, LeaseFact, SessionFact> read_lease(const json& event, Ms at) {
  const auto lease = parse_lease_id(text_of(event, "lease"));
  const auto state = core::parse_lease_state(text_of(event, "state"));
  if (!lease || !state) return {};
  LeaseFact fact;
  fact.lease = *lease;
  fact.at = at;
  fact.state = *state;
  fact.end_reason = core::parse_end_reason(text_of(event, "end_reason")).value_or(core::EndReason::none);
  fact.account = {text_of(event, "user"), text_of(event, "tenant"), text_of(event, "consumer")};
  fact.vram = event.value("vram_bytes", std::int64_t{0});
  event.at("devices").get_to(fact.devices);
  const json args = event.value("args", json::object());
  fact.preemptor = first_lease(text_of(args, "preemptor"));
  if (text_of(event, "kind") == "paused" && args.contains("parked_bytes"))
    fact.parked_bytes = args.at("parked_bytes").get<std::int64_t>();
  fact.held_back = event.value("held_back", false);
  return fact;
}

}  // namespace

std::variant<std::monostate, LeaseFact, SessionFact> parse_event(std::string_view type, std::string_view data) {
  if (type != "lease" && type != "session") return {};
  try {
    const json event = json::parse(data);
    const auto at = read_time(text_of(event, "at"));
    if (!at) return {};
    if (type == "lease") return read_lease(event, *at);
    const auto lease = parse_lease_id(text_of(event, "lease"));
    if (!lease) return {};
    SessionFact fact{*at, *lease, text_of(event, "session")};
    if (event.contains("checkpoint_bytes")) fact.checkpoint_bytes = event.at("checkpoint_bytes").get<std::int64_t>();
    return fact;
  } catch (const json::exception&) {
    return {};
  }
}

}  // namespace sublet::meter
