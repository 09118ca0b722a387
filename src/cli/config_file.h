// SPDX-License-Identifier: Apache-2.0
// Which configuration file a daemon reads.
#pragma once

#include "client/client.h"

#include <nlohmann/json.hpp>

#include <filesystem>

namespace sublet::cli {

// The file of the daemon at `endpoint`: the one that its `status` (a reply of /v1/status, null without one) names, else
// the one that belongs to its socket. Where no daemon is, nor was named (`named`), that of the one that this user would
// start. "" over TCP where the daemon does not say.
std::filesystem::path config_file(const client::Endpoint& endpoint, const nlohmann::json& status, bool named);

}  // namespace sublet::cli
