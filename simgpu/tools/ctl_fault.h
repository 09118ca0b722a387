// SPDX-License-Identifier: Apache-2.0
// The command line of simgpu-ctl after its verb, and the help on faults.
#pragma once

#include "base/error.h"
#include "simgpu/table/table.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace simgpu::tools {

// Parses NAME [--device N] [--pid P] [--nth N] [--duration DUR] [--bandwidth SIZE/s] [--code N] [--first-pid P]. The
// error names the nearest right word.
sublet::Result<Fault> parse_fault(const std::vector<std::string_view>& arguments);

// Finds a fault such as "nvml-error"; the error names the nearest right name.
sublet::Result<FaultKind> parse_fault_name(std::string_view name);
sublet::Result<SettingInfo> parse_setting_key(std::string_view key);

// Parses KEY=VALUE of `simgpu-ctl card`, such as "temperature=81".
sublet::Result<std::pair<Figure, std::uint64_t>> parse_card_figure(std::string_view word);

std::string figure_list();
std::string fault_list();  // a line for each fault, for --help
std::string setting_list();

}  // namespace simgpu::tools
