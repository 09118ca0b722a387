// SPDX-License-Identifier: Apache-2.0
#include "store/lease_document.h"

#include "base/json_text.h"
#include "lease/lease_fields.h"
#include "store/reason_column.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <concepts>
#include <tuple>
#include <type_traits>
#include <utility>

namespace sublet::store {
namespace {

using json = nlohmann::ordered_json;  // keeps the order of the arguments of a cause

constexpr std::int64_t most_bytes = 1LL << 62;

// ------------------------------------------------------------------------------------------------ writing

void write(JsonText& out, std::integral auto number) { out.value(number); }
void write(JsonText& out, const std::string& text) { out.value(text); }
void write(JsonText& out, Bytes bytes) { out.value(bytes.count); }
void write(JsonText& out, Time time) { out.value(time.ns); }
void write(JsonText& out, Duration duration) { out.value(std::int64_t{duration.count()}); }
void write(JsonText& out, LeaseId id) { out.value(id.number); }
void write(JsonText& out, const core::PauseCause& cause) { out.raw(encode_cause(cause)); }

template <typename Enum>
requires std::is_enum_v<Enum>
void write(JsonText& out, Enum word) { out.value(to_string(word)); }

template <core::HasFields Struct>
void write(JsonText& out, const Struct& value);

template <typename First, typename Second>
void write(JsonText& out, const std::pair<First, Second>& both) {
  out.begin_array();
  write(out, both.first);
  write(out, both.second);
  out.end_array();
}

template <typename Value>
void write(JsonText& out, const std::vector<Value>& all) {
  out.begin_array();
  for (const Value& value : all) write(out, value);
  out.end_array();
}

template <typename Value>
void write(JsonText& out, const std::optional<Value>& maybe) {
  if (maybe) write(out, *maybe);
  else out.value(nullptr);
}

template <core::HasFields Struct>
void write(JsonText& out, const Struct& value) {
  static const Struct fresh{};
  out.begin_object();
  const auto write_field = [&](const auto& field) {
    if (value.*field.member == fresh.*field.member) return;
    out.key(field.name);
    write(out, value.*field.member);
  };
  std::apply([&](const auto&... fields) { (write_field(fields), ...); }, core::Fields<Struct>::all);
  out.end_object();
}

// ------------------------------------------------------------------------------------------------ reading

template <typename Enum>
constexpr auto parse_word = nullptr;
template <>
constexpr auto parse_word<core::LeaseState> = core::parse_lease_state;
template <>
constexpr auto parse_word<core::EndReason> = core::parse_end_reason;
template <>
constexpr auto parse_word<core::Tier> = core::parse_tier;
template <>
constexpr auto parse_word<core::Pausable> = core::parse_pausable;
template <>
constexpr auto parse_word<core::OwnerKind> = core::parse_owner_kind;
template <>
constexpr auto parse_word<core::PauseMethod> = core::parse_pause_method;
template <>
constexpr auto parse_word<core::CooperationWay> = core::parse_cooperation_way;
template <>
constexpr auto parse_word<core::ObstacleCode> = [](std::string_view word) {
  // Stores of version 25 may have these words.
  return word == "never"       ? core::ObstacleCode::not_parkable
         : word == "unvouched" ? std::optional(core::ObstacleCode::owner_must_vouch)
                               : core::parse_obstacle(word);
};

bool read(const json& from, bool& truth) {
  if (from.is_boolean()) truth = from.get<bool>();
  return from.is_boolean();
}

template <std::integral Number>
bool read(const json& from, Number& number) {
  if (from.is_number_unsigned()) {
    const auto value = from.get<std::uint64_t>();
    number = static_cast<Number>(value);
    return std::in_range<Number>(value);
  }
  if (!from.is_number_integer()) return false;
  const auto value = from.get<std::int64_t>();
  number = static_cast<Number>(value);
  return std::in_range<Number>(value);
}

bool read(const json& from, std::string& text) {
  if (from.is_string()) text = from.get<std::string>();
  return from.is_string();
}

bool read(const json& from, Bytes& bytes) {
  return read(from, bytes.count) && bytes >= Bytes{} && bytes.count <= most_bytes;
}

// Never negative, so that no difference of two overflows.
bool read(const json& from, Time& time) { return read(from, time.ns) && time.ns >= 0; }

bool read(const json& from, Duration& duration) {
  std::int64_t ns = 0;
  const bool good = read(from, ns) && ns >= 0;
  duration = Duration(ns);
  return good;
}

bool read(const json& from, LeaseId& id) { return read(from, id.number); }

bool read(const json& from, core::PauseCause& cause) {
  auto known = decode_cause(from.dump());
  if (known) cause = std::move(*known);
  return known.has_value();
}

template <typename Enum>
requires std::is_enum_v<Enum>
bool read(const json& from, Enum& word) {
  if (!from.is_string()) return false;
  const auto known = parse_word<Enum>(from.get_ref<const std::string&>());
  if (known) word = *known;
  return known.has_value();
}

template <core::HasFields Struct>
bool read(const json& from, Struct& value);

template <typename First, typename Second>
bool read(const json& from, std::pair<First, Second>& both) {
  return from.is_array() && from.size() == 2 && read(from[0], both.first) && read(from[1], both.second);
}

template <typename Value>
bool read(const json& from, std::vector<Value>& all) {
  if (!from.is_array()) return false;
  all.clear();
  return std::ranges::all_of(from, [&](const json& each) { return read(each, all.emplace_back()); });
}

template <typename Value>
bool read(const json& from, std::optional<Value>& maybe) {
  maybe.reset();
  return from.is_null() || read(from, maybe.emplace());
}

template <core::HasFields Struct>
bool read(const json& from, Struct& value) {
  if (!from.is_object()) return false;
  const auto read_field = [&](const auto& field) {
    const auto found = from.find(field.name);
    return found == from.end() || read(*found, value.*field.member);
  };
  return std::apply([&](const auto&... fields) { return (read_field(fields) && ...); }, core::Fields<Struct>::all);
}

// The core relies on this.
bool is_whole(const core::Lease& lease) {
  const bool away =
      lease.parked() || lease.state == core::LeaseState::pausing || lease.state == core::LeaseState::resuming;
  if (!lease.id || (away && !lease.parking) || lease.booked.size() > core::booked_limit) return false;
  return !lease.parking || lease.parking->held_when_paused.size() == lease.devices.size();
}

}  // namespace

std::string encode_lease(const core::Lease& lease) {
  JsonText out(1024);
  write(out, lease);
  return out.take();
}

std::optional<core::Lease> decode_lease(std::string_view text) {
  const json document = json::parse(text, nullptr, false);
  core::Lease lease;
  if (!read(document, lease)) return std::nullopt;
  // Without a measurement all of its memory may come back.
  if (lease.parking && lease.parking->held_when_paused.empty())
    lease.parking->held_when_paused.assign(lease.devices.size(), {.all = lease.vram});
  if (!is_whole(lease)) return std::nullopt;
  return lease;
}

}  // namespace sublet::store
