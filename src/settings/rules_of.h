// SPDX-License-Identifier: Apache-2.0
// The rules of the decisions by the configuration: of the daemon, and of a simulation with the same file.
#pragma once

#include "base/units.h"
#include "config/config.h"
#include "lease/rules.h"

#include <optional>

namespace sublet::settings {

// `host_memory`: of the machine; unset: unknown.
core::Rules rules_of(const Config& config, std::optional<Bytes> host_memory);

}  // namespace sublet::settings
