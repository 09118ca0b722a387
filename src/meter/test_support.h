// SPDX-License-Identifier: Apache-2.0
// Values that several tests of the meter use.
#pragma once

#include "meter/facts.h"

namespace sublet::meter {

inline constexpr std::int64_t gib = 1LL << 30;   // bytes
inline constexpr Ms monday = 1'763'942'400'000;  // 2025-11-24T00:00:00Z

}  // namespace sublet::meter
