// SPDX-License-Identifier: Apache-2.0
#include "engine/machine.h"

#include "machine/local_host.h"
#include "machine/local_programs.h"
#include "machine/local_unleased.h"
#include "pause/local_cooperation.h"

namespace sublet::engine {

Machine real_machine(boost::asio::io_context& io, const MachineOptions& options) {
  Machine machine;
  machine.clock = std::make_unique<SystemClock>();
  machine.alarm = [&io] { return std::make_unique<machine::LoopAlarm>(io); };
  machine.host = machine::local_host();
  machine.probe = std::make_unique<machine::HelperProbe>(io, options.probe);
  machine.actor = std::make_unique<machine::ActorClient>(io, options.actor);
  auto programs = std::make_unique<machine::LocalPrograms>(io, *machine.actor, options.reconnect);
  pause::LocalParking parking = options.parker;
  if (options.actor_parks) {
    parking.start = [its = programs.get()](LeaseId lease, ProcessRef process, bool to_bring_back,
                                           machine::HelperStarted done) {
      its->start_helper(lease, process, to_bring_back, std::move(done));
    };
  }
  machine.programs = std::move(programs);
  machine.parker = std::make_unique<pause::DriverParker>(io, pause::local_parking(io, std::move(parking)));
  machine.cooperation = std::make_unique<pause::LocalCooperation>(io, *machine.programs, options.answers_dir);
  if (options.actor_parks) machine.keepers = machine::actor_keepers(io, *machine.actor);
  else if (options.keeper.empty()) machine.keepers = machine::no_keepers(io, "sublet-keep is not installed");
  else machine.keepers = machine::local_keepers(io, options.keeper);
  machine.unleased = machine::local_unleased(io, *machine.actor, *machine.programs);
  return machine;
}

}  // namespace sublet::engine
