// SPDX-License-Identifier: Apache-2.0
// Paths as texts: nothing is looked up.
#pragma once

#include <string_view>

namespace sublet {

// Whether `path` is `directory` or below it. Both are without a slash at their end.
constexpr bool is_inside(std::string_view path, std::string_view directory) {
  return path.starts_with(directory) && (path.size() == directory.size() || path[directory.size()] == '/');
}

}  // namespace sublet
