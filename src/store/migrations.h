// SPDX-License-Identifier: Apache-2.0
// The schema as numbered steps: migrations/NNNN_name.sql, which CMake embeds in the order of their numbers. The first
// makes the whole schema. Stores of earlier versions are refused.
#pragma once

#include <span>

namespace sublet::store {

struct Migration {
  int version;  // PRAGMA user_version after the step; without a gap
  const char* name;
  const char* sql;
};

std::span<const Migration> migrations();

}  // namespace sublet::store
