// SPDX-License-Identifier: Apache-2.0
// Calls of Slurm's scontrol. Blocks; one thread.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::cli {

struct Scontrol {
  std::string program = "scontrol";
  Duration limit{};  // longest time of one question; the program is killed then
  int peer = -1;     // the program is also killed once the other end of this pipe or socket is closed; -1: none
};

// Runs the program and returns its output. An error has the last line that it wrote.
Result<std::string> run_scontrol(const Scontrol& scontrol, const std::vector<std::string>& words);

struct ShownJob {
  std::string address;  // the name for `scontrol update`
  std::map<std::string, std::string> fields;
};

// The fields NAME=VALUE of `scontrol show job -o`. A value with blanks ends before the next known name.
std::map<std::string, std::string> parse_job(std::string_view line);
Result<ShownJob> show_job(const Scontrol& scontrol, std::uint64_t job);
// The same with the resources on each node, as text on one line.
Result<std::string> show_job_in_detail(const Scontrol& scontrol, std::uint64_t job);
// The names of a list of nodes such as "n[1-3]"; empty if scontrol fails.
std::vector<std::string> names_of_nodes(const Scontrol& scontrol, const std::string& list);

}  // namespace sublet::cli
