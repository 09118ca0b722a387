// SPDX-License-Identifier: Apache-2.0
// CUDA_VISIBLE_DEVICES of the caller as a wish: the devices on which a lease of `run` may be. Pure functions.
#pragma once

#include "base/error.h"

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace sublet::cli {

// Returns the devices to request for a lease on `count` devices, joined by commas, or "" for any device. `visible`: the
// value of CUDA_VISIBLE_DEVICES. `status`: a reply of /v1/status. A value that no request can express is an error: it
// names no device, an unknown device, or fewer devices than the lease is to have.
Result<std::string> devices_of_wish(std::string_view visible, int count, const nlohmann::json& status);

// "0", of a MIG slice "0:1": the name of a device without "gpu". `device`: an entry of /v1/devices.
std::string device_number(const nlohmann::json& device);

}  // namespace sublet::cli
