// SPDX-License-Identifier: Apache-2.0
// Reads and writes lines of JSON between sublet-gpu and subletd. The reader does not trust the writer. Pure functions
// and values, any thread.
#pragma once

#include "base/units.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace sublet::gpu {

using Json = nlohmann::json;

inline constexpr std::int64_t bytes_limit = 1LL << 62;
inline constexpr std::size_t max_text = 1000;

// Returns the text without control characters, and shortened. The JSON writer repairs text that is not UTF-8.
std::string fit(std::string text);

// Parses without exceptions. Returns `discarded` for text that is no JSON or is nested deeper than any line of ours.
Json parse_line(std::string_view line);

// Returns the line of a value, ending in '\n'. Replaces bytes that are not UTF-8.
std::string to_line(const Json& json);

// Reads members of an object, and remembers the first member that is invalid.
class Reader {
 public:
  Reader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("is no object");
  }

  const std::string& problem() const { return problem_; }
  bool ok() const { return problem_.empty(); }
  void fail(std::string_view why) {
    if (problem_.empty()) problem_ = fmt::format("{} {}", where_, why);
  }

  std::int64_t integer(const char* name, std::int64_t low, std::int64_t high) {
    const Json* value = find(name);
    if (value == nullptr) return low;
    const bool too_large =
        value->is_number_unsigned() && value->get<std::uint64_t>() > static_cast<std::uint64_t>(high);
    if (!value->is_number_integer() || too_large || value->get<std::int64_t>() < low ||
        value->get<std::int64_t>() > high) {
      fail(fmt::format("has a {} that is no integer in {} … {}", name, low, high));
      return low;
    }
    return value->get<std::int64_t>();
  }

  std::uint64_t natural(const char* name) {
    const Json* value = find(name);
    if (value == nullptr) return 0;
    if (!value->is_number_unsigned()) {
      fail(fmt::format("has a {} that is no natural number", name));
      return 0;
    }
    return value->get<std::uint64_t>();
  }

  Bytes bytes(const char* name) { return {integer(name, 0, bytes_limit)}; }

  bool boolean(const char* name) {
    const Json* value = find(name);
    if (value != nullptr && !value->is_boolean()) fail(fmt::format("has a {} that is neither true nor false", name));
    return ok() && value->get<bool>();
  }

  std::string text(const char* name, std::size_t limit = max_text) {
    const Json* value = find(name);
    if (value == nullptr) return {};
    if (!value->is_string() || value->get_ref<const std::string&>().size() > limit) {
      fail(fmt::format("has a {} that is no text of at most {} bytes", name, limit));
      return {};
    }
    const auto& text = value->get_ref<const std::string&>();
    if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; })) {
      fail(fmt::format("has a {} with control characters", name));
      return {};
    }
    return text;
  }

  // Returns null, and records a problem, if the member is missing, no array, or longer than `limit`.
  const Json* array(const char* name, std::size_t limit) {
    const Json* value = find(name);
    if (value == nullptr) return nullptr;
    if (value->is_array() && value->size() <= limit) return value;
    fail(fmt::format("has {} that are no array of at most {}", name, limit));
    return nullptr;
  }

  const Json* find(const char* name) {
    if (!ok()) return nullptr;
    const auto found = object_.find(name);
    if (found == object_.end()) fail(fmt::format("has no {}", name));
    return ok() ? &*found : nullptr;
  }

 private:
  const Json& object_;
  std::string where_;
  std::string problem_;
};

}  // namespace sublet::gpu
