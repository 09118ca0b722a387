// SPDX-License-Identifier: Apache-2.0
// One screen about one program or lease, for `status TAG`. Pure functions.
#pragma once

#include "cli/output.h"
#include "cli/process_tree.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace sublet::cli {

struct Subject {
  nlohmann::json program;           // of /v1/programs; null: a lease without a supervised program
  nlohmann::json lease;             // null: the program has no lease now
  nlohmann::json processes;         // the list of /v1/processes?lease=
  std::vector<TreeLine> tree;       // of the same processes
  std::vector<std::string> output;  // last lines of the program's log, as stored
};

std::string render_subject(const Subject& subject, const Look& look);

// "[######....|.....]" with `columns` characters inside: used bytes of `most`, and a mark at the soft limit (0: none).
std::string limit_bar(std::int64_t used, std::int64_t soft, std::int64_t most, std::size_t columns);

}  // namespace sublet::cli
