// SPDX-License-Identifier: Apache-2.0
// Devices that waiters named before they were read. Private to this folder.
#pragma once

#include "core/current_step.h"

namespace sublet::core {

bool are_read(const Step& step, const std::vector<std::string>& uuids);
void insert_waiter(Step& step, const Lease& lease);
void adopt_named_devices(Step& step);
void forget(Step& step, const std::string& uuid);

}  // namespace sublet::core
