// SPDX-License-Identifier: Apache-2.0
// The arguments of a sentence as data: named values in the order in which they were given. Plain data.
#pragma once

#include "base/units.h"

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace sublet::core {

// One of several that share something: a holder of memory and how much it holds.
struct ReasonPart {
  std::string what;
  Bytes bytes;
  bool operator==(const ReasonPart&) const = default;
};

// A string is a name ("lease-3 (train, ana)", "gpu0") or foreign text, for example a message of the driver.
using ReasonValue =
    std::variant<bool, std::int64_t, Bytes, Duration, std::string, std::vector<std::string>, std::vector<ReasonPart>>;

struct ReasonArg {
  std::string name;  // a word; the JSON form adds "_bytes" or "_ms" to sizes and durations
  ReasonValue value;
  bool operator==(const ReasonArg&) const = default;
};

// A value that says nothing (unset, false, empty) is not added: its clause is left out of the sentence.
class ReasonArgs {
 public:
  const std::vector<ReasonArg>& all() const { return args_; }
  bool empty() const { return args_.empty(); }
  void reserve(std::size_t count) { args_.reserve(count); }
  bool operator==(const ReasonArgs&) const = default;

  void add(std::string_view name, std::same_as<bool> auto flag) {
    if (flag) put(name, true);
  }
  void add(std::string_view name, std::integral auto number) requires(!std::same_as<decltype(number), bool>) {
    put(name, static_cast<std::int64_t>(number));
  }
  void add(std::string_view name, Bytes bytes) { put(name, bytes); }
  void add(std::string_view name, Duration duration) { put(name, duration); }
  void add(std::string_view name, std::string text) {
    if (!text.empty()) put(name, std::move(text));
  }
  void add(std::string_view name, std::string_view text) { add(name, std::string(text)); }
  void add(std::string_view name, const char* text) { add(name, std::string(text)); }
  void add(std::string_view name, std::vector<std::string> list) {
    if (!list.empty()) put(name, std::move(list));
  }
  void add(std::string_view name, std::vector<ReasonPart> parts) {
    if (!parts.empty()) put(name, std::move(parts));
  }
  template <typename T>
  void add(std::string_view name, std::optional<T> maybe) {
    if (maybe) add(name, std::move(*maybe));
  }
  void add(ReasonArgs more) {
    for (ReasonArg& arg : more.args_) args_.push_back(std::move(arg));
  }

  const ReasonValue* find(std::string_view name) const {  // null: there is none
    for (const ReasonArg& arg : args_)
      if (arg.name == name) return &arg.value;
    return nullptr;
  }
  // Nothing, zero or false where there is none, or where it is of another type.
  template <typename T>
  T get(std::string_view name) const {
    const ReasonValue* value = find(name);
    const T* typed = value == nullptr ? nullptr : std::get_if<T>(value);
    return typed == nullptr ? T{} : *typed;
  }
  bool has(std::string_view name) const { return find(name) != nullptr; }
  bool flag(std::string_view name) const { return get<bool>(name); }
  std::int64_t number(std::string_view name) const { return get<std::int64_t>(name); }
  Bytes bytes(std::string_view name) const { return get<Bytes>(name); }
  Duration duration(std::string_view name) const { return get<Duration>(name); }
  std::string text(std::string_view name) const { return get<std::string>(name); }
  std::vector<std::string> list(std::string_view name) const { return get<std::vector<std::string>>(name); }
  std::vector<ReasonPart> parts(std::string_view name) const { return get<std::vector<ReasonPart>>(name); }

 private:
  void put(std::string_view name, ReasonValue value) { args_.push_back({std::string(name), std::move(value)}); }

  std::vector<ReasonArg> args_;
};

// args("vram", lease.vram, "waited", now - since): names and values in turn.
namespace detail {
inline void add_all(ReasonArgs&) {}
template <typename Value, typename... Rest>
void add_all(ReasonArgs& args, std::string_view name, Value&& value, Rest&&... rest) {
  args.add(name, std::forward<Value>(value));
  add_all(args, std::forward<Rest>(rest)...);
}
}  // namespace detail

template <typename... NamesAndValues>
ReasonArgs args(NamesAndValues&&... all) {
  ReasonArgs made;
  made.reserve(sizeof...(all) / 2);
  detail::add_all(made, std::forward<NamesAndValues>(all)...);
  return made;
}

}  // namespace sublet::core
