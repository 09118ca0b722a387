// SPDX-License-Identifier: Apache-2.0
// Counts decisions about leases, for /metrics and for the limit of living leases per user. Counts from the start of the
// daemon. Belongs to the loop thread.
#pragma once

#include "lease/plan.h"
#include "state/state.h"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

namespace sublet::engine {

class Counters {
 public:
  using Who = std::pair<std::string, std::string>;  // user, tenant
  // Waits that ended in a grant, of a first or a larger size.
  struct Waits {
    std::uint64_t number = 0;
    double seconds = 0;  // sum of all
  };
  enum class PauseResult { paused, undone, ended };
  using Pause = std::pair<core::PauseMethod, PauseResult>;

  // Upper ends of the classes of waits in seconds; an additional class has the rest.
  static constexpr std::array<double, 9> wait_bounds{0.1, 1, 10, 60, 300, 1800, 7200, 21600, 86400};  // seconds

  // The state was read again: the living leases are counted anew.
  void reset(const core::State& state, Time now);
  void observe(const core::Plan& plan, Time now);
  void went_over(const std::string& device) { ++went_over_[device]; }  // a lease uses more than its size there

  // --- reading ---
  int live(std::uint32_t uid) const;  // number of leases of that user that have not ended
  const std::map<core::EndReason, std::uint64_t>& ended() const { return ended_; }
  // Number of waits that ended in a grant, of a first or a larger size, by class.
  const std::array<std::uint64_t, wait_bounds.size() + 1>& waits() const { return waits_; }
  double waited_seconds() const { return waited_seconds_; }  // sum of all waits
  // The same by tenant. Above `who_limit` tenants, the rest is "other".
  const std::map<std::string, Waits>& waits_by_tenant() const { return waits_by_tenant_; }
  // Number of pauses with this result; each try of each method counts.
  std::uint64_t pauses(Pause what) const;
  std::uint64_t times_over(const std::string& device) const;
  // Returns bytes reserved × seconds, by the charged user and tenant. Above `who_limit` pairs, the rest is "other".
  std::map<Who, double> byte_seconds(Time now) const;

  static constexpr std::size_t who_limit = 500;

 private:
  struct Entry {
    std::uint32_t uid = 0;
    Who who;
    Bytes reserved;
    Time since;  // `reserved` is charged from this time on
    bool granted = false;
    Bytes size;
    std::optional<Time> asked_more = {};            // start of the wait for a larger size
    std::optional<core::PauseMethod> pausing = {};  // the method by which the lease is being paused
  };
  void follow_waits(Entry& entry, const core::Lease& lease);
  void count_wait(const std::string& tenant, Duration waited);
  void follow_pause(Entry& entry, const core::Lease& lease, const core::Plan& plan);
  void charge(const Entry& entry, Time until, std::map<Who, double>& totals) const;
  void enter(const core::Lease& lease, Time now);
  void leave(std::uint32_t uid);  // the user has one living lease less

  std::unordered_map<LeaseId, Entry> live_;
  std::unordered_map<std::uint32_t, int> of_user_;
  std::map<core::EndReason, std::uint64_t> ended_;
  std::array<std::uint64_t, wait_bounds.size() + 1> waits_{};
  double waited_seconds_ = 0;
  std::map<std::string, Waits> waits_by_tenant_;
  std::map<Pause, std::uint64_t> pauses_;
  std::map<std::string, std::uint64_t> went_over_;
  std::map<Who, double> used_;
};

}  // namespace sublet::engine
