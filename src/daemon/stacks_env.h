// SPDX-License-Identifier: Apache-2.0
// `subletd --stacks-from-env`: the environment variables of the one-stack service as our configuration.
#pragma once

#include "base/error.h"
#include "config/config.h"

#include <functional>
#include <string>

namespace sublet::daemon {

// Reads a variable; null: it is not set.
using GetVariable = std::function<const char*(const char* name)>;

// Turns stacks and the compatible service on, by the variables of the service. Keys that the file sets in [stacks] give
// way. An error names the variable.
Status stacks_from_env(Config& config, const GetVariable& variable);

}  // namespace sublet::daemon
