// SPDX-License-Identifier: Apache-2.0
// The interfaces of the engine to everything except its store. The daemon uses a real machine, the simulation
// (tests/sim) its own.
#pragma once

#include "base/clock.h"
#include "machine/actor.h"
#include "machine/alarm.h"
#include "machine/helper_probe.h"
#include "machine/host.h"
#include "machine/keepers.h"
#include "machine/programs.h"
#include "machine/unleased.h"
#include "pause/cooperation.h"
#include "pause/driver_parker.h"
#include "pause/local_checkpoint_helper.h"

#include <functional>
#include <memory>

namespace sublet::engine {

struct Machine {
  std::unique_ptr<Clock> clock;
  std::function<std::unique_ptr<machine::Alarm>()> alarm;  // makes a timer that is not set, on the same clock
  std::unique_ptr<machine::Host> host;
  std::unique_ptr<machine::Probe> probe;
  std::unique_ptr<machine::Actor> actor;
  std::unique_ptr<machine::Programs> programs;  // may refer to `actor`
  std::unique_ptr<pause::Parker> parker;
  std::unique_ptr<pause::Cooperation> cooperation;  // may refer to `programs`
  std::unique_ptr<machine::Keepers> keepers;        // may refer to `actor`; null: no keeper is ever started
  std::unique_ptr<machine::Unleased> unleased;  // may refer to `actor` and `programs`; null: nothing unleased is ended
};

struct MachineOptions {
  machine::ProbeOptions probe;
  pause::LocalParking parker;
  // The actor starts the helpers that park, with the rights of their processes, and the keepers as their users.
  bool actor_parks = false;
  machine::ActorOptions actor;
  std::string keeper{};                           // path of sublet-keep, unless the actor starts keepers
  std::string answers_dir{};                      // directory of the users' directories (user_directory.h)
  Duration reconnect = std::chrono::seconds(30);  // time for a living keeper to report an exit status
};

// Returns a real machine for this process. Starts nothing yet. `io` must outlive it.
Machine real_machine(boost::asio::io_context& io, const MachineOptions& options);

}  // namespace sublet::engine
