// SPDX-License-Identifier: Apache-2.0
// Traces: jobs that arrive, take memory and end; and the machines they run on. Plain values, read from CSV files.
#pragma once

#include "base/error.h"
#include "base/units.h"
#include "lease/lease.h"
#include "placement/placement.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::simulate {

// A device of a trace that counts devices in thousandths has this many bytes for each of them.
inline constexpr Bytes thousandth = 16 * MiB;

struct Job {
  std::string name;  // its consumer: jobs of one name and user have one history
  std::string user = "user";
  std::string tenant;                     // "": that of the user's name
  Duration arrives{};                     // since the start of the trace
  Duration runs{};                        // with its memory, pauses not counted
  Bytes vram;                             // on each device
  int devices = 1;                        // 0: it needs none
  placement::Amount cpu = 0, memory = 0;  // thousandths of a processor, and MiB of the machine; 0: not told
  core::Tier tier = core::Tier::standard;
  int priority = 0;
  bool pausable = true;

  const std::string& whose() const { return tenant.empty() ? user : tenant; }
};

struct Node {
  std::string name;
  int devices = 0;
  Bytes each;
  placement::Amount cpu = 0, memory = 0;
};

// In the order of their arrival. Errors name file, line and column.
Result<std::vector<Job>> read_jobs(const std::string& path);   // our own format: docs/placement.md
Result<std::vector<Job>> read_openb(const std::string& path);  // pods of openb; none of their times are read
Result<std::vector<Job>> read_philly(const std::string& path, Bytes device);
Result<std::vector<Node>> read_nodes(const std::string& path);  // machines of openb, by name

// "4x24GiB", "2x80GiB,1x24GiB": the devices of one machine.
Result<std::vector<Bytes>> parse_devices(std::string_view text);

}  // namespace sublet::simulate
