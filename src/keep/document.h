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
  std::string host;          // URL of the daemon's socket
  std::string tag;           // of the supervised program; "": a session
  std::uint64_t number = 0;  // of the supervised program
  std::string session;       // id of the session; "": a supervised program
  std::uint64_t start = 0;   // number of this start
  std::string log_path;
  Bytes log_max_size;
  int log_keep = 0;
  Bytes log_user_max;  // of all logs of the user; 0: no limit
  // The process whose log is read until it is closed, because its keeper was killed. Set: nothing is started.
  std::optional<ProcessRef> drain{};
  // Set: `arguments` are a session's checkpoint command, which runs without a lease of its own.
  struct Hook {
    std::uint64_t number = 0;  // of the run
    Duration timeout{};        // then it is killed
  };
  std::optional<Hook> hook{};

  nlohmann::json request;                // body of POST /v1/leases, without the owner
  std::vector<std::string> arguments;    // [0] is looked up in PATH
  std::vector<std::string> environment;  // "NAME=value"
  std::string directory;                 // absolute
  int umask = 022;
  std::vector<Limit> limits;
};

Result<Document> parse_document(std::string_view text);

// Path of the call that takes the reports of the keeper.
std::string report_path(const Document& document);

// Returns the value of a variable; "" if it is not set.
std::string variable(const Document& document, std::string_view name);

}  // namespace sublet::keep
