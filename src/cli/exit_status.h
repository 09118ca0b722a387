// SPDX-License-Identifier: Apache-2.0
// Exit statuses of `status` beside those of verb.h, which all verbs share.
#pragma once

#include "cli/verb.h"

namespace sublet::cli {

// The state of a program or lease, told by `status NAME` alone, beside 0 if it runs and kNotFound.
inline constexpr int kDoesNotRun = 3;
inline constexpr int kHasFailed = 5;
inline constexpr int kWaits = 6;

}  // namespace sublet::cli
