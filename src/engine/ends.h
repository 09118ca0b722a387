// SPDX-License-Identifier: Apache-2.0
// Ends of programs: which program was asked to end and when, and ends that are not stored yet. A signal that keeps
// memory safe for others must not wait for a disk that is full or hangs: it is sent after a moment, and its end is
// decided again once the store works. Belongs to the loop thread.
#pragma once

#include "engine/event_log.h"
#include "engine/machine.h"
#include "lease/facts.h"
#include "lease/plan.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sublet::engine {

class Engine;

class Ends {
 public:
  Ends(Engine& engine, const Machine& machine);

  // --- ends that are not stored yet ---
  struct Unstored {
    core::Fact fact;  // decided again when the store is back
    std::uint32_t asked_by = 0;
    std::uint64_t sequence = UINT64_MAX;  // the batch that stores it; the largest: none is on its way
    int sent = 0;                         // the last signal; 0: none
    int signal = 0;                       // the next one
    Time signal_at;                       // when that is sent, stored or not; never: all were sent
    Time kill_at;                         // when the grace is over
  };
  // Whether the fact may be decided now. Many changes that wait for a slow disk refuse no end of a program.
  Status may_take(const core::Fact& fact) const;
  // The end of a program that this plan of the fact decides.
  std::optional<Unstored> end_in(const core::Fact& fact, const core::Plan& plan, Time now) const;
  // The kills at the end of a grace that no request brings.
  std::map<LeaseId, Unstored> kills_in(const core::Plan& plan, Time now) const;
  void await(LeaseId lease, std::optional<Unstored> end);  // the plan was taken
  // Decides the end of a program while the store cannot be used: its program gets the signals. Else the refusal.
  Result<LeaseId> decide(const core::Fact& fact, const Error& refusal);
  // Why such an end is not acknowledged.
  Error not_stored(LeaseId lease) const;
  bool has_unstored(LeaseId lease) const { return unstored_.contains(lease); }
  void committed(std::uint64_t sequence);
  void store_failed();
  // The store is back, with its leases as they were. Their ends come before any news of their programs.
  void decide_again();
  void stop() { alarm_->cancel(); }

  // --- all ends ---
  void signal(const core::SignalProgram& order);  // carries out a durable order
  // When the program of an ended lease was asked to end. Time::never(): its signal still waits for the disk.
  Time asked_at(const core::Lease& lease) const;
  // Whether the daemon itself sent SIGTERM to the program, instead of its keeper.
  bool has_signalled(LeaseId lease) const;
  void forget(LeaseId lease) { asked_.erase(lease); }
  void forget_others(const std::function<bool(LeaseId)>& keep);
  // A program that should end cannot be ended; "": no proof of the process.
  void not_killed(LeaseId lease, const std::string& why);
  std::vector<Warning> warnings(Time now);

 private:
  bool ends_program(const core::Fact& fact) const;
  bool was_sent(const core::SignalProgram& order) const;
  void send_due();

  struct Asked {
    bool from_here = false;  // by a signal of the daemon, so that its keeper sends no second one
    Time at;
  };
  Engine& engine_;
  const core::State& state_;
  machine::Programs& programs_;
  const std::unique_ptr<machine::Alarm> alarm_;
  std::map<LeaseId, Unstored> unstored_;
  std::map<LeaseId, Asked> asked_;
  std::map<LeaseId, std::string> unkillable_;
};

}  // namespace sublet::engine
