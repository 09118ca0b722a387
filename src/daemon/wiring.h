// SPDX-License-Identifier: Apache-2.0
// From the configuration to what the parts take.
#pragma once

#include "config/config.h"
#include "daemon/options.h"
#include "engine/engine.h"

#include <string>

namespace sublet::daemon {

// `dir`: of a private daemon, else "".
engine::Options engine_options(const Config& config, const Places& places, const std::string& dir);

engine::MachineOptions machine_options(const Config& config, const Places& places);

// Two descriptors a program: the soft limit is made for other programs than this one. As far as the hard one lets it.
void raise_file_limit();

}  // namespace sublet::daemon
