// SPDX-License-Identifier: Apache-2.0
// The order to a detached keeper (sublet-keep), which reads it from a descriptor as JSON. Plain data.
#pragma once

#include "base/error.h"
#include "base/ids.h"
#include "base/units.h"
#include "keep/limits.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::keep {

struct Document {
  std::string host;         // URL of the daemon's socket
  std::string tag;          // of the supervised program
  std::uint64_t start = 0;  // number of this start
  std::string log_path;
  Bytes log_max_size;
  int log_keep = 0;
  // The process whose log is read until it is closed, because its keeper was killed. Set: nothing is started.
  std::optional<ProcessRef> drain{};

  nlohmann::json request;                // body of POST /v1/leases, without the owner
  std::vector<std::string> arguments;    // [0] is looked up in PATH
  std::vector<std::string> environment;  // "NAME=value"
  std::string directory;                 // absolute
  int umask = 022;
  std::vector<Limit> limits;
};

Result<Document> parse_document(std::string_view text);

// Returns the value of a variable; "" if it is not set.
std::string variable(const Document& document, std::string_view name);

}  // namespace sublet::keep
