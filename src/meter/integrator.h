// SPDX-License-Identifier: Apache-2.0
// Adds up how long each lease held, used and waited for how much. Pure: no clock, no I/O. Its state after a flush and
// the events after it give the same amounts as a run without a break.
#pragma once

#include "base/error.h"
#include "meter/blame.h"
#include "meter/deltas.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace sublet::meter {

class Integrator {
 public:
  explicit Integrator(Ms now) : now_(now) {}

  // Inputs come in the order of their times; an earlier time counts as the time of the input before.
  void take(const LeaseFact& fact);
  void take(const SessionFact& fact);
  void take(const Reading& reading);
  // The last reading is too old, or the daemon did not run: until the next reading, use is not known.
  void forget_reading(Ms at);
  // Events are missing: all leases are forgotten. The amounts are complete up to `from` and from `at` on.
  void lose_events(Ms from, Ms at, const std::string& why);
  // The lease lives, and its earlier events are missing. A lease that is known stays as it is.
  void adopt(const Living& living);
  void pass_to(Ms at) { advance(std::max(at, now_)); }
  void add_gap(Gap gap) { deltas_.gaps.push_back(std::move(gap)); }

  // Integrates up to `at` and returns what was added since the last flush.
  Deltas flush(Ms at);
  Ms now() const { return now_; }
  std::size_t live() const { return live_.size(); }
  std::size_t unflushed() const { return deltas_.size(); }

  // The state, valid right after flush(). An error: it was not written by this version.
  nlohmann::json write() const;
  static Result<Integrator> read(const nlohmann::json& from);

 private:
  struct Live {
    LeaseRow row;
    std::int64_t vram = 0;
    std::vector<std::string> devices{};
    std::int64_t parked_bytes = 0;
    Ms since = 0;      // integrated up to here
    Ms waited_at = 0;  // waited_ms_ at `since`

    bool held_back = false;  // queued, and outside of the queue
    Ms held_back_ms = 0;     // for which it was held back, as far as this life of the daemon knows

    bool holds() const;  // it reserves its size
    bool waits() const { return row.state == core::LeaseState::queued && !held_back; }
  };

  void advance(Ms at);
  Ms step_to(Ms at) const;
  void skip(Ms at);
  void settle(Live& live, Ms at);
  void pass(Ms at);
  void settle_all(Ms at);
  void add_pairs(Ms slot, const Blame::Pairs& pairs);
  void settle_lease_devices(Live& live, Ms passed, Ms waited, Ms slot);
  void settle_strays(Live& live, Ms passed, Ms slot);
  void enter(const LeaseFact& fact);
  void leave(std::map<LeaseId, Live>::iterator lease);
  void count(const Live& live, int sign, Ms at);
  void change(Live& live, const LeaseFact& fact);
  void begin_pause(Live& live, const LeaseFact& fact);
  void end_wait(const Live& live, bool granted, Ms at);
  Cell& cell(LeaseId lease, const std::string& device, Ms slot) { return deltas_.cells[{slot, lease.number, device}]; }

  Ms now_ = 0;
  std::map<LeaseId, Live> live_;
  std::set<LeaseId> changed_;  // whose row is written at the next flush
  Reading reading_;
  bool has_reading_ = false;
  std::map<std::string, std::int64_t> leased_;  // bytes leased now, by device
  int waiting_ = 0;                             // leases in the queue
  Ms waited_ms_ = 0;                            // time in which any lease waited
  Blame blame_;
  Deltas deltas_;
};

}  // namespace sublet::meter
