// SPDX-License-Identifier: Apache-2.0
// Which daemon to talk to.
#pragma once

#include "base/error.h"

#include <string>
#include <string_view>

namespace sublet::client {

// A daemon's Unix socket.
struct Endpoint {
  std::string path;  // absolute
  std::string url() const { return "unix://" + path; }
};

// Reads "unix:///run/x.sock" or a path. A relative path is taken from the working directory, because what is handed on
// to child programs must keep its meaning.
Result<Endpoint> parse_endpoint(std::string_view text);

// `flag` (the value of --host) if it is not empty, else SUBLET_HOST, else the user's own socket if it exists, else the
// system's. Reads the environment.
Result<Endpoint> resolve_endpoint(std::string_view flag = {});

}  // namespace sublet::client
