// SPDX-License-Identifier: Apache-2.0
// Reads the fields of a JSON body strictly: every field is known, typed and in range, or the request is refused with
// the field's name, what was found, and what is right.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::http {

// What is put on a command line, in a column, in a label: short, no spaces, no surprises.
bool plain_name(std::string_view name);

class Body {
 public:
  // `body` may be null (no body: no fields). Kept by reference.
  explicit Body(const nlohmann::json& body, std::string prefix = {});

  std::optional<std::string> text(std::string_view name, std::size_t max_length = 128);
  std::optional<std::string> name(std::string_view field, bool may_be_empty = false);
  std::optional<std::int64_t> integer(std::string_view name, std::int64_t least, std::int64_t most);
  std::optional<bool> boolean(std::string_view name);
  const nlohmann::json* object(std::string_view name);

  // The first thing that was wrong, unknown fields included. Call it after the last field was asked for.
  Status finish();

 private:
  const nlohmann::json* field(std::string_view name);
  void fail(std::string_view name, std::string_view expected, const nlohmann::json& found);

  const nlohmann::json& body_;
  std::string prefix_;
  std::vector<std::string_view> known_;
  std::optional<Error> error_;
};

}  // namespace sublet::http
