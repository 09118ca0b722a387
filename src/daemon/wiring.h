// SPDX-License-Identifier: Apache-2.0
// Turns the configuration into the options of the parts.
#pragma once

#include "compose/remote_worker.h"
#include "config/config.h"
#include "daemon/options.h"
#include "enforcer/enforcer.h"
#include "engine/engine.h"
#include "events/outlets.h"
#include "follow/follow.h"
#include "guard/guard.h"
#include "http/compatible_server.h"
#include "idle/idle.h"
#include "limit/limits.h"
#include "maintenance/errors.h"
#include "meter/meter.h"
#include "sessions/sessions.h"
#include "stacks/one_slot.h"
#include "stacks/stacks.h"

#include <string>

namespace sublet::daemon {

// `dir`: the directory of a private daemon, else "".
enforcer::Options enforcer_options(const Config& config);
// `enforcer`: null if it is switched off.
follow::Options follow_options(const Config& config, const enforcer::Enforcer* enforcer);
stacks::Options stacks_options(const Config& config, const Places& places);
// The user who is charged, and the rest of the compatible service's slot. An error names the key.
Result<stacks::OneSlotOptions> one_slot_options(const Config& config);
// An error names the address. Call it only if stacks.http is set.
Result<http::CompatibleOptions> compatible_options(const Config& config);
compose::RemoteOptions stacks_worker(const Config& config, const Places& places);
Result<idle::Options> idle_options(const Config& config);  // an error names the key
limit::Options limit_options(const Config& config);
maintenance::Causes cordon_causes(const Config& config);
Result<events::Options> events_options(const Config& config);  // an error names the key
meter::Options meter_options(const Config& config, const std::string& store_path);
guard::Options guard_options(const Config& config, const Places& places);
sessions::Options sessions_options(const Config& config, const Places& places);
engine::Options engine_options(const Config& config, const Places& places, const std::string& dir);

engine::MachineOptions machine_options(const Config& config, const Places& places);

// Raises the soft limit of open files, as far as the hard limit allows. Each program needs two descriptors.
void raise_file_limit();

}  // namespace sublet::daemon
