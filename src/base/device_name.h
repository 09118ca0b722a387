// SPDX-License-Identifier: Apache-2.0
// Names of devices as users write them: one, or several joined by commas.
#pragma once

#include "base/error.h"

#include <string>
#include <string_view>
#include <vector>

namespace sublet {

// The longest list that is read: the UUIDs of a thousand devices.
inline constexpr std::size_t longest_device_list = std::size_t{1} << 16;

// The names in a list such as "gpu1, gpu3", each once and in their order. An empty list has none.
std::vector<std::string> device_list(std::string_view list);

// The error that says what to write in place of a name that names no device ("cuda:1", "any" in a list); nothing for
// other names.
std::optional<Error> explain_device_name(std::string_view name);

}  // namespace sublet
