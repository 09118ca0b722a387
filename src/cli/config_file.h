// SPDX-License-Identifier: Apache-2.0
// Finds the configuration file that a daemon reads.
#pragma once

#include "client/client.h"

#include <nlohmann/json.hpp>

#include <filesystem>

namespace sublet::cli {

// The file named in `status` (a reply of /v1/status, null without one), else the file that belongs to the socket of
// `endpoint`. Without a daemon, and if none was `named`, the file of the daemon that this user would start. "" over TCP
// if the daemon does not say.
std::filesystem::path config_file(const client::Endpoint& endpoint, const nlohmann::json& status, bool named);

}  // namespace sublet::cli
