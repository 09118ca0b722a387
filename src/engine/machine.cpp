// SPDX-License-Identifier: Apache-2.0
#include "engine/machine.h"

#include "engine/card_lock.h"
#include "engine/exit_records.h"
#include "engine/local_cooperation.h"
#include "engine/local_programs.h"
#include "engine/local_unleased.h"
#include "proc/host_memory.h"

#include <unistd.h>

namespace sublet::engine {
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
    engine::sweep_exit_records(dir, keep);
  }

 private:
  CardLocks locks_;
};

}  // namespace

Machine real_machine(boost::asio::io_context& io, const MachineOptions& options) {
  Machine machine;
  machine.clock = std::make_unique<SystemClock>();
  machine.alarm = [&io] { return std::make_unique<LoopAlarm>(io); };
  machine.host = std::make_unique<LocalHost>();
  machine.probe = std::make_unique<HelperProbe>(io, options.probe);
  machine.actor = std::make_unique<ActorClient>(io, options.actor);
  auto programs = std::make_unique<LocalPrograms>(io, *machine.actor, options.reconnect);
  LocalParking parking = options.parker;
  if (options.actor_parks) {
    parking.start = [its = programs.get()](LeaseId lease, ProcessRef process, bool to_bring_back, HelperStarted done) {
      its->start_helper(lease, process, to_bring_back, std::move(done));
    };
  }
  machine.programs = std::move(programs);
  machine.parker = std::make_unique<DriverParker>(io, local_parking(io, std::move(parking)));
  machine.cooperation = std::make_unique<LocalCooperation>(io, *machine.programs, options.answers_dir);
  if (options.actor_parks) machine.keepers = actor_keepers(io, *machine.actor);
  else if (options.keeper.empty()) machine.keepers = no_keepers(io, "sublet-keep is not installed");
  else machine.keepers = local_keepers(io, options.keeper);
  machine.unleased = local_unleased(io, *machine.actor, *machine.programs);
  return machine;
}

}  // namespace sublet::engine
