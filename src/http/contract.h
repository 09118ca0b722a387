// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace sublet::http {

// api/openapi.yaml as JSON, as of the build.
std::string_view contract();

}  // namespace sublet::http
