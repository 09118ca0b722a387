// SPDX-License-Identifier: Apache-2.0
// The schema as numbered steps: migrations/NNNN_name.sql, which CMake embeds in the order of their numbers.
#pragma once

#include <span>

namespace sublet::store {

struct Migration {
  int version;  // PRAGMA user_version after the step; 1, 2, 3 … without a gap
  const char* name;
  const char* sql;
};

std::span<const Migration> migrations();

}  // namespace sublet::store
