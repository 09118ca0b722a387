// SPDX-License-Identifier: Apache-2.0
// Carries out the durable orders of the core: signals, pauses and resumes. Belongs to the loop thread.
#pragma once

#include "engine/ends.h"
#include "engine/machine.h"
#include "engine/swap_keeping.h"
#include "lease/facts.h"
#include "lease/plan.h"
#include "pause/method.h"

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sublet::engine {

class Executor {
 public:
  Executor(Engine& engine, const Machine& machine, boost::asio::io_context& io);

  void open();  // starts to listen to programs and to the parker
  void perform(const core::Action& action);
  void lease_ended(const core::Lease& lease);  // perhaps not yet durably
  void loaded() { unparks_waiting_.clear(); }  // the leases were read again
  void store_failed();                         // nothing that is not durable yet is done

  // --- questions of the parker during a pause ---
  void measure(Time began);                            // a reading of the devices came, which began then
  void fail_measurements(const std::string& problem);  // there is none

  Ends& ends() { return ends_; }
  const Ends& ends() const { return ends_; }
  SwapKeeping& swap() { return swap_; }
  // Gives cooperative programs their orders, and takes their answers.
  pause::Cooperation& cooperation() { return cooperation_; }
  const pause::Cooperation& cooperation() const { return cooperation_; }
  // Returns the link of a process to the lease. Scans again if there is none, because the process may be new.
  const proc::Member* member_of(ProcessRef process, LeaseId lease);

 private:
  using GoOn = std::function<void(const std::string& why_not)>;  // "": what had to be stored first is durable
  // Locked processes of a lease whose bytes are being measured, until the engine decides whether they may be parked.
  struct Weighing {
    Time since;
    std::vector<ProcessRef> processes;
    std::function<void(std::string)> say;
  };
  bool lives(LeaseId lease) const;
  void park(const core::Park& order);
  pause::Parker::Program program_of(LeaseId id) const;
  void store_first(LeaseId lease, decltype(core::AttemptEvent::what) fact, GoOn go_on);
  void may_lock(LeaseId lease, const std::string& why_not);
  void weigh(LeaseId lease, Weighing weighing);
  std::optional<core::Parked> refusal(LeaseId id, const std::string& not_kept);
  bool is_asked(LeaseId lease) const;
  pause::Method& method(core::PauseMethod name) const;
  void begin(const core::Park& order);
  void unpark(const core::Unpark& order);
  void parked(LeaseId lease, const pause::ParkOutcome& outcome);
  void unparked(LeaseId lease, const pause::ParkOutcome& outcome);
  void withdraw_if_gone(LeaseId lease);
  std::vector<ProcessRef> tree_of(LeaseId lease);
  std::vector<pause::Room> room_for(LeaseId lease) const;
  void answer_later(LeaseId lease, core::Parked result);

  Engine& engine_;
  const core::State& state_;
  boost::asio::io_context& io_;
  machine::Host& host_;
  machine::Probe& probe_;
  machine::Actor& actor_;
  machine::Programs& programs_;
  pause::Parker& parker_;
  pause::Cooperation& cooperation_;
  const std::vector<std::unique_ptr<pause::Method>> methods_;
  Ends ends_;
  SwapKeeping swap_;
  // Resume orders that wait for the parker to finish an earlier order.
  std::map<LeaseId, core::Unpark> unparks_waiting_;
  std::map<LeaseId, GoOn> locks_waiting_;     // answers to the parker that wait for a commit
  std::map<LeaseId, std::uint64_t> parking_;  // number of the newest order to park, while memory is kept from swap
  std::uint64_t last_park_ = 0;
  std::map<LeaseId, Weighing> weighing_;
};

}  // namespace sublet::engine
