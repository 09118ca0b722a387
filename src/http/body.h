// SPDX-License-Identifier: Apache-2.0
// Reads the fields of a JSON body strictly: an unknown, mistyped or out-of-range field refuses the request, with the
// field's name, the value found and the valid values.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::http {

// Whether `name` is 1 to 64 safe characters without spaces, for command lines, columns and labels.
bool plain_name(std::string_view name);

// Removes fields that are null: a null field is a missing one, also for those who read the stored body later.
void erase_nulls(nlohmann::json& body);

class Body {
 public:
  // `body` may be null (no fields). Kept by reference.
  explicit Body(const nlohmann::json& body, std::string prefix = {});

  std::optional<std::string> text(std::string_view name, std::size_t max_length = 128);
  std::optional<std::string> name(std::string_view field);                              // see plain_name()
  std::optional<std::string> label(std::string_view field, bool may_be_empty = false);  // see is_label()
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t least, std::int64_t most);
  // A number with at most three decimals, in thousandths.
  std::optional<int> thousandths(std::string_view name, int least, int most);
  std::optional<bool> boolean(std::string_view name);
  const nlohmann::json* object(std::string_view name);
  const nlohmann::json* list(std::string_view name);
  // The first error, if there was none yet: the field has a value that the caller does not accept.
  void refuse(std::string_view name, std::string_view expected, const nlohmann::json& found) {
    fail(name, expected, found);
  }

  // The first error, unknown fields included. Call it after the last field was read.
  Status finish();

 private:
  const nlohmann::json* field(std::string_view name);
  std::optional<std::string> word(std::string_view name, bool (*is_valid)(std::string_view), std::string_view expected);
  void fail(std::string_view name, std::string_view expected, const nlohmann::json& found);

  const nlohmann::json& body_;
  std::string prefix_;
  std::vector<std::string_view> known_;
  std::optional<Error> error_;
};

}  // namespace sublet::http
