// SPDX-License-Identifier: Apache-2.0
// For tests: all that a lease is, as one line, to compare leases that went through a store.
#pragma once

#include "lease/lease_fields.h"
#include "lease/reason.h"

#include <fmt/format.h>

#include <string>
#include <type_traits>

namespace sublet::core {
namespace detail {

inline std::string described(const std::string& text) { return text; }
inline std::string described(Bytes bytes) { return std::to_string(bytes.count); }
inline std::string described(Time time) { return std::to_string(time.ns); }
inline std::string described(Duration duration) { return std::to_string(duration.count()); }
inline std::string described(LeaseId id) { return std::to_string(id.number); }
inline std::string described(const PauseCause& cause) { return text_of(cause); }

template <typename Value>
std::string described(const Value& value);
template <typename Value>
std::string described(const std::vector<Value>& all);
template <typename First, typename Second>
std::string described(const std::pair<First, Second>& both);

template <typename Value>
std::string described(const std::optional<Value>& maybe) {
  return maybe ? described(*maybe) : "-";
}

template <typename Value>
std::string described(const std::vector<Value>& all) {
  std::string text = "[";
  for (const Value& value : all) text += described(value) + ";";
  return text + "]";
}

template <typename First, typename Second>
std::string described(const std::pair<First, Second>& both) {
  return described(both.first) + "=" + described(both.second);
}

template <typename Value>
std::string described(const Value& value) {
  if constexpr (HasFields<Value>) {
    std::string text = "{";
    std::apply([&](const auto&... fields) { ((text += described(value.*fields.member) + " "), ...); },
               Fields<Value>::all);
    return text + "}";
  } else if constexpr (std::is_enum_v<Value>) {
    return std::string(to_string(value));
  } else {
    return std::to_string(value);
  }
}

}  // namespace detail

inline std::string describe(const Lease& lease) { return detail::described(lease); }

}  // namespace sublet::core
