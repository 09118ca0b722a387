// SPDX-License-Identifier: Apache-2.0
#include "machine/local_host.h"

#include "machine/card_lock.h"
#include "machine/exit_records.h"
#include "proc/host_memory.h"

#include <unistd.h>

namespace sublet::machine {
namespace {

class LocalHost final : public Host {
 public:
  core::HostMemory memory(std::span<const ProcessRef> processes,
                          const std::optional<proc::SwapStopper>& by) const override {
    const auto root = proc::ProcRoot::open();
    if (!root) return {};
    std::vector<std::int32_t> pids;
    for (const ProcessRef process : processes) pids.push_back(process.pid);
    const proc::HostFigures figures = proc::host_figures(*root, pids, by);
    return {figures.available, figures.headroom, figures.may_swap, figures.pressure};
  }
  std::vector<std::string> swap_groups(std::span<const ProcessRef> processes) const override {
    std::vector<std::string> groups(processes.size());
    const auto root = proc::ProcRoot::open();
    const auto hierarchies = root ? proc::find_hierarchies(*root) : Result<proc::Hierarchies>(root.error());
    for (std::size_t i = 0; hierarchies && i < processes.size(); ++i) {
      const auto its = proc::cgroups_of(*root, processes[i].pid);
      const auto group = its ? proc::swap_group(*hierarchies, *its) : std::nullopt;
      if (group) groups[i] = group->path;
    }
    return groups;
  }
  HostUse use(std::span<const ProcessRef> processes) const override {
    HostUse sum;
    const auto root = proc::ProcRoot::open();
    if (!root) return sum;
    for (const ProcessRef process : processes) {
      const auto memory = proc::process_memory(*root, process);
      if (!memory) continue;
      sum.resident += memory->resident;
      sum.swapped += memory->swapped;
    }
    return sum;
  }
  Status lock_card(const std::string& uuid) override { return locks_.acquire(uuid); }
  void remove_exit_record(const std::string& path) override { ::unlink(path.c_str()); }
  void sweep_exit_records(const std::string& dir, const std::function<bool(LeaseId)>& keep) override {
    machine::sweep_exit_records(dir, keep);
  }

 private:
  CardLocks locks_;
};

}  // namespace

std::unique_ptr<Host> local_host() { return std::make_unique<LocalHost>(); }

}  // namespace sublet::machine
