// SPDX-License-Identifier: Apache-2.0
// Rare large requests in a mix. A pure function.
#pragma once

#include "placement/placement.h"

namespace sublet::placement {

// Makes the weights add up to 1, where each kind of request for several devices, or for at least `whole` of one, counts
// at least about `floor`.
void keep_floor(Mix& mix, Amount whole, double floor);

}  // namespace sublet::placement
