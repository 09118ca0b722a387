// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"

namespace sublet::enforcer {

inline constexpr Time noon{1'795'780'800'000'000'000};  // 2026-11-27, in UTC

}  // namespace sublet::enforcer
