// SPDX-License-Identifier: Apache-2.0
// The devices of a simulation as a snapshot shows them: empty, and always readable.
#pragma once

#include "lease/facts.h"

#include <string>
#include <vector>

namespace sublet::simulate {

std::string uuid_of(std::size_t device);  // "GPU-00007"

Bytes sum_of(const std::vector<Bytes>& sizes);

// `link`: bytes in a second of the link of each device; 0: not known.
std::vector<core::DeviceReading> readings_of(const std::vector<Bytes>& sizes, Bytes link = {});

}  // namespace sublet::simulate
