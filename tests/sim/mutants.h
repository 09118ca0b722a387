// SPDX-License-Identifier: Apache-2.0
// The mutants of sim_mutants, and what each does.
#pragma once

#include "config.h"

#include "base/mutants.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace sublet::sim {

struct MutantInfo {
  Mutant mutant;
  std::string_view name;  // for `--mutant`
  const char* where;      // "core", "engine" or "store"
  const char* what;
  // True for worlds in which the mutant can show; unset: all worlds.
  bool (*can_show)(const Config&) = nullptr;
  std::uint64_t after = 0;  // the seed before the first that is tried, for a mutant that few seeds find
};

std::span<const MutantInfo> all_mutants();
const MutantInfo* find_mutant(std::string_view name);  // null: there is none of that name

}  // namespace sublet::sim
