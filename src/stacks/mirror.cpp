// SPDX-License-Identifier: Apache-2.0
#include "stacks/mirror.h"

#include "base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace sublet::stacks {
namespace {

using nlohmann::json;

Time at_second(double second) { return Time{static_cast<std::int64_t>(second * 1e9)}; }

std::string text_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<Time> time_of(const json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return {};
  return at_second(found->get<double>());
}

}  // namespace

std::int64_t unix_second(Time time) { return (time.ns + 999'999'999) / 1'000'000'000; }

namespace {

// The service has no empty owner.
json owner_of(const std::string& owner) { return owner.empty() ? json(nullptr) : json(owner); }

}  // namespace

json service_state(const Slot& slot, Time now) {
  json state{{"queue", json::array()}};
  for (const Waiter& each : slot.queue())
    state["queue"].push_back({{"owner", owner_of(each.owner)},
                              {"priority", each.priority},
                              {"target", each.target},
                              {"claim_expires_at", each.claim_ends ? json(unix_second(*each.claim_ends)) : json()}});
  const auto& holder = slot.holder();
  if (!holder && slot.last_target().empty()) return state;
  state["mode"] = "service";
  state["target"] = holder ? holder->target : slot.last_target();
  state["at"] = unix_second(slot.last_start());
  if (holder)
    state["lease"] = {{"owner", owner_of(holder->owner)},
                      {"expires_at", unix_second(holder->expires_at.value_or(now + holder->ttl))}};
  return state;
}

std::string mirror_text(const Slot& slot, bool with_tokens, Time now) {
  json state = service_state(slot, now);
  if (with_tokens) {
    for (std::size_t i = 0; i < slot.queue().size(); ++i) {
      state["queue"][i]["token"] = slot.queue()[i].token;
      state["queue"][i]["enqueued_at"] = unix_second(slot.queue()[i].entered_at);
    }
    if (slot.holder()) state["lease"]["token"] = slot.holder()->token;
  }
  return state.dump(2, ' ', true, json::error_handler_t::replace) + "\n";
}

Result<Slot> read_service_state(const std::string& path, const std::string& text, Time now) {
  const json state = json::parse(text, nullptr, false);
  if (!state.is_object())
    return bad_request(fmt::format("{} is not the state of a one-stack service", printable(path)),
                       "move it away, or choose another GPU_RUNTIME_DIR");
  std::optional<Holder> holder;
  const std::string target = text_of(state, "target");
  if (const auto lease = state.find("lease"); lease != state.end() && lease->is_object() && !target.empty()) {
    std::string token = text_of(*lease, "token");
    if (token.empty()) token = text_of(*lease, "lease_token");
    const auto ends = time_of(*lease, "expires_at");
    if (!token.empty() && ends && *ends > now)
      holder = Holder{
          .token = token, .owner = text_of(*lease, "owner"), .target = target, .ttl = *ends - now, .expires_at = {}};
  }
  std::vector<Waiter> queue;
  if (const auto rows = state.find("queue"); rows != state.end() && rows->is_array()) {
    for (const json& row : *rows) {
      if (!row.is_object() || text_of(row, "token").empty() || queue.size() >= Slot::most_waiters) continue;
      const auto priority = row.find("priority");
      queue.push_back(
          {.token = text_of(row, "token"),
           .owner = text_of(row, "owner"),
           .target = text_of(row, "target"),
           .priority = priority != row.end() && priority->is_number_integer() ? priority->get<std::int64_t>() : 0,
           .claim_ends = {}});
    }
  }
  return Slot::taken_over(std::move(holder), std::move(queue), target, time_of(state, "at").value_or(Time{}));
}

}  // namespace sublet::stacks
