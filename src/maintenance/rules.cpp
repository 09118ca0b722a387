// SPDX-License-Identifier: Apache-2.0
#include "maintenance/rules.h"

#include "base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace sublet::maintenance {

using nlohmann::json;

std::string why_text(const OutOfService& out) {
  std::string text = fmt::format("{} by {}", out.mode == Mode::drain ? "drained" : "cordoned", out.by);
  return out.reason.empty() ? text : text + ": " + out.reason;
}

Act next_act(const OutOfService& out, const core::Lease& lease, const std::optional<Tried>& tried, Time now) {
  if (out.mode != Mode::drain || lease.state != core::LeaseState::active || lease.stop_requested) return Act::nothing;
  const bool may_pause = lease.pausable != core::Pausable::no;
  const bool is_over = out.deadline && *out.deadline <= now;
  // A pause that was refused before the deadline may be possible now: the deadline ends only what cannot be paused.
  if (may_pause && (!tried || (is_over && tried->at < *out.deadline))) return Act::pause;
  if (is_over) return may_pause && now - tried->at < try_again_after ? Act::nothing : Act::end;
  return may_pause && now - tried->at >= try_again_after ? Act::pause : Act::nothing;
}

store::CapabilityRow to_row(const OutOfService& out) {
  json data{{"mode", out.mode == Mode::drain ? "drain" : "cordon"},
            {"by", out.by},
            {"reason", out.reason},
            {"since", out.since.ns}};
  if (out.deadline) data["deadline"] = out.deadline->ns;
  if (out.automatic) data["automatic"] = true;
  return {std::string(row_kind), out.device, data.dump()};
}

store::CapabilityRow removed_row(const std::string& device) { return {std::string(row_kind), device, {}}; }

Result<OutOfService> from_row(const store::CapabilityRow& row) {
  const json data = json::parse(row.data, nullptr, false);
  const auto has = [&data](const char* name, bool (json::*is)() const noexcept) {
    const auto found = data.find(name);
    return found != data.end() && ((*found).*is)();
  };
  const bool readable = data.is_object() && has("mode", &json::is_string) && has("by", &json::is_string) &&
                        has("reason", &json::is_string) && has("since", &json::is_number_integer) &&
                        (!data.contains("deadline") || has("deadline", &json::is_number_integer)) &&
                        (!data.contains("automatic") || has("automatic", &json::is_boolean));
  if (!readable)
    return bad_request(fmt::format("the row of device {}, which is out of service, cannot be read: {}",
                                   printable(row.key), printable(row.data)));
  OutOfService out;
  out.mode = data["mode"] == "drain" ? Mode::drain : Mode::cordon;
  out.device = row.key;
  out.by = data["by"].get<std::string>();
  out.reason = data["reason"].get<std::string>();
  out.since = {data["since"].get<std::int64_t>()};
  out.automatic = data.value("automatic", false);
  if (data.contains("deadline")) out.deadline = Time{data["deadline"].get<std::int64_t>()};
  return out;
}

}  // namespace sublet::maintenance
