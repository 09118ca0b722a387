// SPDX-License-Identifier: Apache-2.0
// The capabilities of one life of the daemon: supervised programs, sessions, idle rules and stacks on its engine.
#pragma once

#include "daemon.h"
#include "guard/guard.h"
#include "idle/idle.h"
#include "sessions/sessions.h"
#include "stacks/stacks.h"

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace sublet::sim {

class Beside;

class House {
 public:
  // Adds the capabilities to the engine, before it starts.
  House(engine::Engine& engine, boost::asio::io_context& io, Beside& beside, Verdict& verdict);

  // Makes a change as a route does: one transaction with its answer. `told` hears whether it is durable.
  void change(std::string_view transition, const std::function<Status()>& change, std::function<void(bool)> told = {});
  // Checks the invariants between two steps. Adds the states that were seen to `met`.
  using Met = std::map<std::string, std::uint64_t>;  // by name: in how many steps
  void check(Met& met) const;

  engine::Engine& engine() { return engine_; }
  guard::Guard& guard() { return *guard_; }
  sessions::Sessions& sessions() { return *sessions_; }
  stacks::Stacks& stacks() { return *stacks_; }
  idle::Idle& idle() { return *idle_; }
  boost::asio::io_context& io() { return io_; }
  std::weak_ptr<const bool> lives() const { return lives_; }

 private:
  void check_programs() const;
  void check_sessions() const;
  void check_stacks() const;

  engine::Engine& engine_;
  boost::asio::io_context& io_;
  Verdict& verdict_;
  std::unique_ptr<machine::Keepers> keepers_;
  std::unique_ptr<compose::Worker> worker_;
  std::unique_ptr<guard::Guard> guard_;
  std::unique_ptr<idle::Idle> idle_;
  std::unique_ptr<sessions::Sessions> sessions_;
  std::unique_ptr<stacks::Stacks> stacks_;
  std::shared_ptr<const bool> lives_ = std::make_shared<const bool>(true);
};

}  // namespace sublet::sim
