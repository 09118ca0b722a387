// SPDX-License-Identifier: Apache-2.0
#include "client/lease.h"

namespace sublet::client {
namespace {

using nlohmann::json;

// A field may be missing or null and then keeps its default. Unknown fields of a newer daemon are ignored.
const json* field(const json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string text(const json& object, const char* name) {
  const json* value = field(object, name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

std::optional<std::int64_t> number(const json& object, const char* name) {
  const json* value = field(object, name);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  if (value->is_number_float()) return static_cast<std::int64_t>(value->get<double>());
  return value->get<std::int64_t>();
}

Bytes bytes(const json& object, const char* name) { return {number(object, name).value_or(0)}; }

Place parse_place(const json& queue) {
  Place place;
  place.place = static_cast<int>(number(queue, "place").value_or(0));
  const json* held_back = field(queue, "held_back");
  place.held_back = held_back != nullptr && held_back->is_boolean() && held_back->get<bool>();
  place.short_by = bytes(queue, "short_bytes");
  place.device = text(queue, "device");
  place.free = bytes(queue, "free_bytes");
  place.unleased = bytes(queue, "unleased_bytes");
  place.reserved_for = text(queue, "reserved_for");
  place.basis = text(queue, "basis");
  if (const auto eta = number(queue, "eta_seconds")) place.eta = std::chrono::seconds(*eta);
  if (const json* holders = field(queue, "holders"); holders != nullptr && holders->is_array()) {
    for (const json& holder : *holders) {
      if (!holder.is_object()) continue;
      place.holders.push_back({text(holder, "lease"), text(holder, "what"), bytes(holder, "bytes")});
    }
  }
  return place;
}

}  // namespace

Answer<Lease> parse_lease(const json& body) {
  Lease lease;
  if (body.is_object()) {
    lease.id = text(body, "id");
    lease.state = text(body, "state");
  }
  if (lease.id.empty() || lease.state.empty()) {
    return Failure{FailureKind::lost, {Code::Unavailable, "the daemon's answer is not a lease", {}}, 0, {}};
  }
  lease.end_reason = text(body, "end_reason");
  lease.consumer = text(body, "consumer");
  lease.vram = bytes(body, "vram_bytes");
  lease.asked_vram = bytes(body, "asked_vram_bytes");
  lease.share = static_cast<int>(number(body, "share").value_or(0));
  lease.used = bytes(body, "used_bytes");
  lease.generation = static_cast<std::uint64_t>(number(body, "generation").value_or(0));
  const json* stopping = field(body, "stopping");
  lease.stopping = stopping != nullptr && stopping->is_boolean() && stopping->get<bool>();
  const json* signalled = field(body, "signalled");
  lease.signalled = signalled != nullptr && signalled->is_boolean() && signalled->get<bool>();
  if (const auto grace = number(body, "stop_grace_seconds")) lease.stop_grace = std::chrono::seconds(*grace);
  if (const auto status = number(body, "exit_status")) lease.exit_status = static_cast<int>(*status);
  lease.exit_record = text(body, "exit_record");
  if (const json* devices = field(body, "devices"); devices != nullptr && devices->is_array()) {
    for (const json& device : *devices) {
      if (device.is_string()) lease.devices.push_back(device.get<std::string>());
    }
  }
  if (const json* owner = field(body, "owner"); owner != nullptr && owner->is_object()) {
    lease.owner_kind = text(*owner, "kind");
    lease.owner_pid = static_cast<int>(number(*owner, "pid").value_or(0));
    lease.keeper_pid = static_cast<int>(number(*owner, "keeper_pid").value_or(0));
  }
  if (const json* resize = field(body, "resize"); resize != nullptr && resize->is_object())
    lease.resize = bytes(*resize, "vram_bytes");
  if (const json* pause = field(body, "pause"); pause != nullptr && pause->is_object()) {
    lease.pause_reason = text(*pause, "reason");
    const json* resume_requested = field(*pause, "resume_requested");
    lease.resume_requested =
        resume_requested == nullptr || !resume_requested->is_boolean() || resume_requested->get<bool>();
  }
  if (const json* queue = field(body, "queue"); queue != nullptr && queue->is_object())
    lease.queue = parse_place(*queue);
  return lease;
}

Answer<Lease> parse_lease(const std::string& body) { return parse_lease(json::parse(body, nullptr, false)); }

std::string Undone::text() const {
  return why.empty() ? why : (begun ? "its pause was undone: " : "it was not paused: ") + why;
}

namespace {

// The kinds of a pause that was undone; their sentences say why after the first colon.
bool is_undone(std::string_view kind) {
  return kind == "pause_failed" || kind == "pause_disproved" || kind == "pause_unmeasured" ||
         kind == "pause_interrupted";
}

}  // namespace

Undone why_undone(const json& why) {
  constexpr std::string_view help = "to pause it: ";
  const json* reasons = field(why, "reasons");
  if (reasons == nullptr || !reasons->is_array()) return {};
  Undone found;
  for (auto reason = reasons->rbegin(); reason != reasons->rend() && found.why.empty(); ++reason) {
    const std::string said = text(*reason, "text"), code = text(*reason, "code");
    if (is_undone(text(*reason, "kind"))) {
      const json* args = field(*reason, "args");
      found.begun = args != nullptr && field(*args, "begun") != nullptr;
      const std::size_t colon = said.find(": ");
      found.why = colon == std::string::npos ? said : said.substr(colon + 2);
    } else if (code == "paused" || code == "pausing") {
      return {};
    }
  }
  const json* helps = field(why, "helps");
  if (helps == nullptr || !helps->is_array() || helps->empty() || !helps->front().is_string()) return found;
  if (const auto& first = helps->front().get_ref<const std::string&>(); first.starts_with(help))
    found.hint = first.substr(help.size());
  return found;
}

}  // namespace sublet::client
