// SPDX-License-Identifier: Apache-2.0
// The interfaces of the engine to everything except its store. The daemon uses a real machine, the simulation
// (tests/sim) its own.
#pragma once

#include "base/clock.h"
#include "engine/actor.h"
#include "engine/alarm.h"
#include "engine/cooperation.h"
#include "engine/driver_parker.h"
#include "engine/helper_probe.h"
#include "engine/host.h"
#include "engine/keepers.h"
#include "engine/local_checkpoint_helper.h"
#include "engine/programs.h"
#include "engine/unleased.h"

#include <functional>
#include <memory>

namespace sublet::engine {

struct Machine {
  std::unique_ptr<Clock> clock;
  std::function<std::unique_ptr<Alarm>()> alarm;  // makes a timer that is not set, on the same clock
  std::unique_ptr<Host> host;
  std::unique_ptr<Probe> probe;
  std::unique_ptr<Actor> actor;
  std::unique_ptr<Programs> programs;  // may refer to `actor`
  std::unique_ptr<Parker> parker;
  std::unique_ptr<Cooperation> cooperation;  // may refer to `programs`
  std::unique_ptr<Keepers> keepers;          // may refer to `actor`; null: no keeper is ever started
  std::unique_ptr<Unleased> unleased;        // may refer to `actor` and `programs`; null: nothing unleased is ended
};

struct MachineOptions {
  ProbeOptions probe;
  LocalParking parker;
  // The actor starts the helpers that park, with the rights of their processes, and the keepers as their users.
  bool actor_parks = false;
  ActorOptions actor;
  std::string keeper{};                           // path of sublet-keep, unless the actor starts keepers
  std::string answers_dir{};                      // directory of the users' directories (user_directory.h)
  Duration reconnect = std::chrono::seconds(30);  // time for a living keeper to report an exit status
};

// Returns a real machine for this process. Starts nothing yet. `io` must outlive it.
Machine real_machine(boost::asio::io_context& io, const MachineOptions& options);

}  // namespace sublet::engine
