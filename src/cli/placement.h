// SPDX-License-Identifier: Apache-2.0
// CUDA_VISIBLE_DEVICES of the caller as a wish: the devices on which a lease of `run` may be. Pure functions.
#pragma once

#include "base/error.h"

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace sublet::cli {

// Returns the device to request for a lease on `count` devices, or "" for any device. `visible`: the value of
// CUDA_VISIBLE_DEVICES. `status`: a reply of /v1/status. A value that no request can express is an error: it names no
// device, an unknown device, or several devices that are not all devices of the machine.
Result<std::string> device_of_wish(std::string_view visible, int count, const nlohmann::json& status);

}  // namespace sublet::cli
