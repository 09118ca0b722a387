// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

namespace sublet::compose {

// A JSON value as a result: json itself converts to and from so much that Result<json> is ambiguous.
struct Document {
  nlohmann::json root;
};

}  // namespace sublet::compose
