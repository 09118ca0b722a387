// SPDX-License-Identifier: Apache-2.0
// The devices that are like a description of the user (base/gpu_spec.h). On the loop thread.
#pragma once

#include "engine/engine.h"

#include <string>
#include <string_view>
#include <vector>

namespace sublet::engine {

// The uuids of the devices that meet `spec`, sorted. `named`: only those among these; empty: among all. NotFound: they
// are fewer than `count`, and the hint names those that are there. Unavailable: no device was read yet.
Result<std::vector<std::string>> like_devices(const Engine& engine, std::string_view spec,
                                              const std::vector<std::string>& named, int count);

}  // namespace sublet::engine
