// SPDX-License-Identifier: Apache-2.0
// For the property test: what must hold after every step, computed anew from what was told, without the
// indices and running sums that the core keeps. Slow and simple on purpose.
#pragma once

#include "core/step.h"

#include <map>
#include <optional>
#include <set>
#include <vector>

namespace sublet::core::testing {

class Oracle {
 public:
  explicit Oracle(const Rules& rules) : rules_(rules) {}

  // Call around each step; failures are reported to the test with what is wrong.
  void before(const State& state, const Fact& fact, Time now);
  void after(const State& state, const Fact& fact, const Plan& plan, Time now);
  // After State::load: what is measured is forgotten, owners have time to come back.
  void restarted(Time now);

  // What a store would hold: all that plans said was to be stored, and nothing else.
  std::vector<Lease> stored() const;
  std::uint64_t last_id() const { return last_id_; }

 private:
  struct Measured {
    Bytes used;
    bool untold = false;
    bool after_end = false;
  };

  void follow_plan(const State& state, const Plan& plan);
  void follow_snapshot(const State& state, const Snapshot& snapshot);
  bool may_not_grow(const Lease& lease, Time began) const;
  void follow_ends(const Fact& fact, const Plan& plan, Time now);
  void follow_owner(const Fact& fact, const Plan& plan, Time now);
  void check_store(const State& state) const;
  void check_sums(const State& state, Time now) const;
  void check_settling(const State& state) const;
  void follow_returns(const State& state, const Plan& plan);
  void follow_return(const Lease& lease, LeaseState before, const std::string& uuid);
  void check_ledger(const State& state) const;
  void check_grants(const State& state, const Plan& plan, Time now) const;
  void check_promises(const State& state, const Lease& lease, Time now) const;
  void check_indices(const State& state, Time now) const;
  void check_order(const State& state, Time now) const;
  void check_time(const State& state, const Plan& plan, Time now) const;
  void check_loss(const State& state, const Fact& fact, Time now) const;
  void check_program_end(const State& state, const Fact& fact, const Plan& plan) const;

  bool booked(const Lease& lease, const std::string& uuid) const;  // counts on that device
  Bytes charge_of(const Lease& lease, const std::string& uuid) const;
  void forget_measured(LeaseId id);
  static bool held_from(const State& state, const Lease& lease, const std::string& uuid);
  Bytes need_of(const Lease& lease) const;  // of one that waits to grow, where it is most
  Bytes need_on(const Lease& lease, const std::string& uuid) const;
  int devices_with(const State& state, const Lease& lease, const std::map<std::string, Bytes>& room, Time now) const;
  Time unheld_until(const Lease& lease) const;

  const Rules& rules_;
  std::map<LeaseId, Lease> store_;
  std::set<LeaseId> closed_;                                      // ended, settled, never to be seen again
  std::map<std::pair<LeaseId, std::string>, Measured> measured_;  // by lease and device
  std::set<std::pair<LeaseId, std::string>> unsettled_;           // ended with a process, not measured gone
  std::map<std::pair<LeaseId, std::string>, Bytes> asked_;        // what it held when it was asked to yield
  std::map<std::pair<LeaseId, std::string>, Bytes> back_;         // what it holds, at least, once it is back
  std::map<std::pair<LeaseId, std::string>, Bytes> coming_;       // what the core expects it to hold then
  std::map<std::pair<LeaseId, std::string>, Bytes> needed_;       // what it waits for instead of its size
  std::set<LeaseId> ended_programs_, killed_;
  std::map<LeaseId, Time> gone_;    // their programs have ended, or were killed
  std::map<LeaseId, Time> unheld_;  // live connection leases that nobody holds, since
  std::set<LeaseId> held_;
  Time back_by_;
  Time newest_;  // when the newest snapshot was begun
  std::uint64_t last_id_ = 0;

  // As it was before the step.
  std::map<LeaseId, Lease> leases_before_;
  std::map<std::string, Bytes> free_before_;
  bool due_before_ = false;
  std::set<LeaseId> made_room_for_;
  Time wake_before_ = Time::never();
};

}  // namespace sublet::core::testing
