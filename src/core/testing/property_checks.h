// SPDX-License-Identifier: Apache-2.0
// Checks of one step that need the state before it and what was stored before it. validate() checks what a state alone
// can show.
#pragma once

#include "core/step.h"

#include <map>
#include <set>
#include <vector>

namespace sublet::core::testing {

class PropertyChecks {
 public:
  explicit PropertyChecks(const Rules& rules) : rules_(rules) {}

  // Call around each step. Violations fail the running test.
  void before(const State& state, Time now);
  void after(const State& state, const Fact& fact, const Plan& plan, Time now);

  // The leases that a store would hold: all leases that plans stored, and nothing else.
  std::vector<Lease> stored() const;
  std::uint64_t last_id() const { return last_id_; }
  // After State::load: owners have time to come back, so that deadlines move.
  void restarted(const State& state);

 private:
  void check_refusal(const Plan& plan) const;
  void store(const Plan& plan);
  void check_stored(const State& state) const;
  void check_grants(const State& state, const Plan& plan, Time now) const;
  void check_nobody_waits_who_fits(const State& state, Time now) const;
  void check_deadlines(const Plan& plan, Time now) const;
  void check_lost_memory(const State& state, const Fact& fact, Time now) const;
  void check_program_end(const State& state, const Fact& fact) const;

  const Rules& rules_;
  std::map<LeaseId, Lease> stored_;
  std::set<LeaseId> forgotten_;  // ended and settled; never to be stored again
  std::uint64_t last_id_ = 0;

  // The state before the step.
  std::map<LeaseId, Lease> leases_before_;
  std::map<std::string, Bytes> free_before_;
  Time wake_before_ = Time::never();
  bool due_before_ = false;
};

}  // namespace sublet::core::testing
