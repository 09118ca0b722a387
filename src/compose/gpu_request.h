// SPDX-License-Identifier: Apache-2.0
// Requests for GPUs in a resolved Compose configuration. Pure functions; any thread.
#pragma once

#include "compose/worker.h"

#include <nlohmann/json.hpp>

namespace sublet::compose {

// Removes each request for GPUs from a service: devices of `deploy`, `gpus`, CDI devices, mounts that stand for
// devices, and the runtime of NVIDIA. Notes in `into` how it was written (with several, the one that needs no CDI), and
// its capabilities and options.
void take_gpu_request(nlohmann::json& service, Service& into);

}  // namespace sublet::compose
