// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "gpu/snapshot.h"

#include <string>

namespace sublet::gpu {

// Returns a judged snapshot as text for people, ending in a newline.
std::string show_snapshot(const GpuSnapshot& snapshot);

}  // namespace sublet::gpu
