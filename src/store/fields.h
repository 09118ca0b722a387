// SPDX-License-Identifier: Apache-2.0
// Values as JSON objects for rows of the store. A function `fields(visit, value)` beside the type names each field
// once, for writing and for reading:
//   void fields(auto& visit, Like<Use> auto& use) { visit("uid", use.uid), visit.word("tier", use.tier, parse_tier); }
#pragma once

#include "base/error.h"
#include "base/ids.h"
#include "base/units.h"
#include "store/store.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <concepts>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace sublet::store {

// A constant or changeable value of this type.
template <typename Value, typename Type>
concept Like = std::same_as<std::remove_const_t<Value>, Type>;

class FieldWriter {
 public:
  template <typename Value>
  void operator()(const char* name, const Value& value) {
    out_[name] = write(value);
  }
  // An unset value has no field.
  template <typename Value>
  void operator()(const char* name, const std::optional<Value>& value) {
    if (value) out_[name] = write(*value);
  }
  // An enum as its word.
  template <typename Enum, typename Parse>
  void word(const char* name, const Enum& value, const Parse&) {
    out_[name] = to_string(value);
  }
  template <typename Enum, typename Parse>
  void word(const char* name, const std::optional<Enum>& value, const Parse&) {
    if (value) out_[name] = to_string(*value);
  }
  const nlohmann::json& object() const { return out_; }

 private:
  static nlohmann::json write(Time value) { return value.ns; }
  static nlohmann::json write(Duration value) { return value.count(); }
  static nlohmann::json write(Bytes value) { return value.count; }
  static nlohmann::json write(LeaseId value) { return value.number; }
  static nlohmann::json write(ProcessRef value) { return {value.pid, value.start_ticks}; }
  template <typename Value>
  static nlohmann::json write(const std::vector<Value>& values) {
    auto out = nlohmann::json::array();
    for (const Value& value : values) out.push_back(write(value));
    return out;
  }
  template <typename Value>
  static nlohmann::json write(const Value& value) {
    if constexpr (requires(FieldWriter & inner) { fields(inner, value); }) {
      FieldWriter inner;
      fields(inner, value);
      return inner.object();
    } else {
      return value;
    }
  }

  nlohmann::json out_ = nlohmann::json::object();
};

// Throws nlohmann::json::exception or std::invalid_argument, which name the field.
class FieldReader {
 public:
  explicit FieldReader(const nlohmann::json& object) : object_(object) {}
  template <typename Value>
  void operator()(const char* name, Value& value) {
    read(object_.at(name), value);
  }
  template <typename Value>
  void operator()(const char* name, std::optional<Value>& value) {
    if (const auto found = object_.find(name); found != object_.end()) read(*found, value.emplace());
  }
  template <typename Enum, typename Parse>
  void word(const char* name, Enum& value, const Parse& parse) {
    const auto text = object_.at(name).get<std::string>();
    const auto known = parse(text);
    if (!known) throw std::invalid_argument(fmt::format("the field '{}' has the unknown word '{}'", name, text));
    value = *known;
  }
  template <typename Enum, typename Parse>
  void word(const char* name, std::optional<Enum>& value, const Parse& parse) {
    if (object_.contains(name)) word(name, value.emplace(), parse);
  }

 private:
  static void read(const nlohmann::json& from, Time& value) { from.get_to(value.ns); }
  static void read(const nlohmann::json& from, Duration& value) { value = Duration(from.get<std::int64_t>()); }
  static void read(const nlohmann::json& from, Bytes& value) { from.get_to(value.count); }
  static void read(const nlohmann::json& from, LeaseId& value) { from.get_to(value.number); }
  static void read(const nlohmann::json& from, ProcessRef& value) {
    from.at(0).get_to(value.pid);
    from.at(1).get_to(value.start_ticks);
  }
  template <typename Value>
  static void read(const nlohmann::json& from, std::vector<Value>& values) {
    values.clear();
    for (const nlohmann::json& each : from) read(each, values.emplace_back());
  }
  template <typename Value>
  static void read(const nlohmann::json& from, Value& value) {
    if constexpr (requires(FieldReader & inner) { fields(inner, value); }) {
      FieldReader inner(from);
      fields(inner, value);
    } else {
      from.get_to(value);
    }
  }

  const nlohmann::json& object_;
};

// A field that is null is a missing one.
inline void drop_nulls(nlohmann::json& object) {
  for (auto each = object.begin(); each != object.end();) each = each->is_null() ? object.erase(each) : std::next(each);
}

// The row of a value under this key.
template <typename Value>
CapabilityRow row_of(std::string_view kind, std::string key, const Value& value) {
  FieldWriter writer;
  fields(writer, value);
  return {std::string(kind), std::move(key),
          writer.object().dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

// Reads the fields of a row into the value. An error names the row, and the field that another version wrote
// differently.
template <typename Value>
Status read_row(const CapabilityRow& row, Value& value) {
  try {
    const auto object = nlohmann::json::parse(row.data);
    FieldReader reader(object);
    fields(reader, value);
    return {};
  } catch (const std::exception& wrong) {
    return unavailable(fmt::format("the stored {} '{}' cannot be read: {}", row.kind, row.key, wrong.what()));
  }
}

}  // namespace sublet::store
