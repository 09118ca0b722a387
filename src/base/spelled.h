// SPDX-License-Identifier: Apache-2.0
// Values as a configuration file has them: exact, in the largest unit without a rest. Pure functions.
#pragma once

#include "base/units.h"

#include <cstdint>
#include <string>

namespace sublet {

std::string spelled(Duration duration);                     // "90s", "2m"
std::string spelled(Bytes bytes);                           // "1536MiB", "4GiB"
std::string spelled_thousandths(std::int64_t thousandths);  // 2500: "2.5"

}  // namespace sublet
