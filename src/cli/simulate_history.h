// SPDX-License-Identifier: Apache-2.0
// The past of the daemon for `sublet simulate --from-history`: asked of the API, and changed by nothing.
#pragma once

#include "client/client.h"

#include <nlohmann/json.hpp>

#include <string>

namespace sublet::cli {

struct Past {
  nlohmann::json document;  // for src/simulate/history.h
  std::string config;       // the configuration file of the daemon; "": none, or none that can be read
  std::string problem;      // why the configuration counts as the defaults; "": it does not
};

// The leases that lived in the period, with the devices, the tenants and the gaps.
client::Answer<Past> ask_past(client::Client& client, Duration period, bool named);

}  // namespace sublet::cli
