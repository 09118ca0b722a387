// SPDX-License-Identifier: Apache-2.0
// Sizes as Kubernetes writes them: "6Gi", "500M", "1e9". Pure functions.
#pragma once

#include "base/units.h"

#include <optional>
#include <string>
#include <string_view>

namespace sublet::kube {

// Unset: this is no quantity of whole bytes from 0 to 2^62.
std::optional<Bytes> parse_quantity(std::string_view text);

// "6656Mi", or bytes if they are no whole MiB.
std::string format_quantity(Bytes bytes);

}  // namespace sublet::kube
