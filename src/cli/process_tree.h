// SPDX-License-Identifier: Apache-2.0
// The processes of one program as a tree, with the VRAM of each. Pure functions.
#pragma once

#include "proc/process_table.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace sublet::cli {

struct TreeLine {
  std::int32_t pid = 0;
  int depth = 0;     // 0: the main process, or a process whose parents are unknown
  std::string used;  // "3.0 GiB", "gpu0 3.0 GiB, gpu1 1.0 GiB"; "" for a process without VRAM
  std::string command;
};

struct Look;

// `all`: the processes of this machine; empty if they are not those of the daemon's machine. `rows`: the processes of a
// reply of /v1/processes?lease=. `command_of`: asked for processes that the reply does not list.
std::vector<TreeLine> process_tree(std::int32_t main_pid, const std::vector<proc::ProcessInfo>& all,
                                   const nlohmann::json& rows, const Look& look,
                                   const std::function<std::string(std::int32_t)>& command_of);

}  // namespace sublet::cli
