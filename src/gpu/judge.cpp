// SPDX-License-Identifier: Apache-2.0
#include "gpu/snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace sublet::gpu {
namespace {

std::string name_pids(const std::vector<std::int32_t>& pids) {
  std::string text = pids.size() == 1 ? "pid " : "pids ";
  for (std::size_t i = 0; i < pids.size() && i < 5; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", pids[i]);
  return pids.size() > 5 ? text + ", …" : text;
}

std::string judge_memory(const GpuDevice& device) {
  if (device.total.count <= 0) return "the driver reports a card without memory";
  if (device.driver_reserved > device.total || device.used > device.total - device.driver_reserved) {
    return fmt::format("the driver reports {} used and {} reserved of {}, which is more than the card has",
                       format_size(device.used), format_size(device.driver_reserved), format_size(device.total));
  }
  return {};
}

std::string judge_uses(const GpuDevice& device) {
  Bytes sum;
  for (const GpuProcess& process : device.processes) {
    if (!process.used) continue;
    if (*process.used > device.total) {
      return fmt::format("the driver reports {} used by pid {} on a card of {}", format_size(*process.used),
                         process.process.pid, format_size(device.total));
    }
    if (*process.used > device.total - sum) {
      return fmt::format("the driver reports more than the card's {} used by {} listed processes together",
                         format_size(device.total), device.processes.size());
    }
    sum += *process.used;
  }
  return {};
}

std::string judge_pids(GpuDevice& device) {
  std::vector<std::int32_t> all, foreign;
  for (GpuProcess& process : device.processes) {
    all.push_back(process.process.pid);
    process.foreign_pid = process.process.start_ticks == 0 && !process.hidden;
    if (process.foreign_pid) foreign.push_back(process.process.pid);
  }
  std::sort(all.begin(), all.end());
  if (const auto twice = std::adjacent_find(all.begin(), all.end()); twice != all.end()) {
    return fmt::format("the driver lists pid {} twice among {} processes", *twice, all.size());
  }
  if (!foreign.empty()) {
    return fmt::format(
        "{} of {} listed processes ({}) do not exist here: the driver reports pids of another pid namespace",
        foreign.size(), all.size(), name_pids(foreign));
  }
  return {};
}

}  // namespace

GpuSnapshot judge(GpuSnapshot snapshot) {
  for (GpuDevice& device : snapshot.devices) {
    const std::string pids = judge_pids(device);  // called in any case, because it sets the flags
    if (!device.problem.empty()) continue;
    if (device.mig) continue;
    device.problem = judge_memory(device);
    if (device.problem.empty()) device.problem = judge_uses(device);
    if (device.problem.empty()) device.problem = pids;
  }
  return snapshot;
}

}  // namespace sublet::gpu
