// SPDX-License-Identifier: Apache-2.0
#include "gpu/show.h"

#include <fmt/format.h>

namespace sublet::gpu {
namespace {

std::string show_process(const GpuProcess& process) {
  const char* remark = process.foreign_pid ? ", no such process here" : process.hidden ? ", hidden in /proc" : "";
  const std::string busy = process.busy_percent ? fmt::format(", busy {} %", *process.busy_percent) : "";
  return fmt::format("    pid {:<8} {:>10}{}{}{}\n", process.process.pid,
                     process.used ? format_size(*process.used) : std::string("not reported"), busy,
                     process.graphics_only ? ", draws" : "", remark);
}

const char* mode_of(const GpuDevice& device) {
  return device.mig ? ", in MIG mode" : device.unified ? ", uses the memory of the machine" : "";
}

std::string show_device(const GpuDevice& device) {
  const std::string slice = device.slice < 0 ? "" : fmt::format(":{}", device.slice);
  std::string text = fmt::format("GPU {}{}: {}{}{}\n  {}  {}\n", device.index, slice,
                                 device.name.empty() ? "?" : device.name, device.simulated ? " (not a real card)" : "",
                                 mode_of(device), device.uuid.empty() ? "no UUID" : device.uuid, device.pci_bus_id);
  if (device.total.count > 0) {
    text += fmt::format("  {} in total, {} reserved by the driver, {} used by {} {}\n", format_size(device.total),
                        format_size(device.driver_reserved), format_size(device.used), device.processes.size(),
                        device.processes.size() == 1 ? "process" : "processes");
  }
  for (const GpuProcess& process : device.processes) text += show_process(process);
  if (!device.problem.empty()) text += fmt::format("  PROBLEM: {}\n", device.problem);
  return text;
}

}  // namespace

std::string show_snapshot(const GpuSnapshot& snapshot) {
  std::string text;
  if (!snapshot.library.empty()) text += fmt::format("library: {}\n", snapshot.library);
  if (!snapshot.driver_version.empty()) text += fmt::format("driver: {}\n", snapshot.driver_version);
  if (!snapshot.problem.empty()) {
    text += fmt::format("PROBLEM: {}\n", snapshot.problem);
  } else {
    text += fmt::format("read in {:.1f} ms, devices: {}\n",
                        static_cast<double>(snapshot.ended_ns - snapshot.began_ns) / 1e6, snapshot.devices.size());
  }
  for (const GpuDevice& device : snapshot.devices) text += show_device(device);
  return text;
}

}  // namespace sublet::gpu
