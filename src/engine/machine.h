// SPDX-License-Identifier: Apache-2.0
// All that the engine touches outside of itself and of its store, as interfaces: the daemon gives it a real machine,
// the simulation (tests/sim) one of its own.
#pragma once

#include "base/clock.h"
#include "engine/actor.h"
#include "engine/alarm.h"
#include "engine/cooperation.h"
#include "engine/driver_parker.h"
#include "engine/helper_probe.h"
#include "engine/host.h"
#include "engine/local_checkpoint_helper.h"
#include "engine/programs.h"

#include <functional>
#include <memory>

namespace sublet::engine {

struct Machine {
  std::unique_ptr<Clock> clock;
  std::function<std::unique_ptr<Alarm>()> alarm;  // a new one, not set; by the same clock
  std::unique_ptr<Host> host;
  std::unique_ptr<Probe> probe;
  std::unique_ptr<Actor> actor;
  std::unique_ptr<Programs> programs;  // may refer to `actor`
  std::unique_ptr<Parker> parker;
  std::unique_ptr<Cooperation> cooperation;  // may refer to `programs`
};

struct MachineOptions {
  ProbeOptions probe;
  LocalParking parker;
  bool actor_parks = false;  // the helpers that park are started by the actor, each with the rights of its process
  ActorOptions actor;
  std::string answers_dir{};                      // where programs that yield by signals leave their answers
  Duration reconnect = std::chrono::seconds(30);  // how long a keeper that lives may take to report an exit status
};

// The machine on which this process runs. Starts nothing yet; `io` outlives it.
Machine real_machine(boost::asio::io_context& io, const MachineOptions& options);

}  // namespace sublet::engine
