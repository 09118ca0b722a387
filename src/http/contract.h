// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace sublet::http {

// The files of api/ as one JSON document, as of the build.
std::string_view contract();

}  // namespace sublet::http
