// SPDX-License-Identifier: Apache-2.0
// The arguments of a reason as a JSON object, for the API and the store: sizes end in "_bytes", durations in "_ms".
#pragma once

#include "base/json_text.h"
#include "lease/reason_args.h"

namespace sublet::core {

void write_args(JsonText& out, const ReasonArgs& args);  // a value

}  // namespace sublet::core
