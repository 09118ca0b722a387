// SPDX-License-Identifier: Apache-2.0
// What happened, in the order in which it was decided, for readers that follow along: numbered when it is decided, told
// when it is durable. The newest are kept in memory, more of them in the store. Belongs to the loop thread.
#pragma once

#include "core/plan.h"
#include "core/state.h"
#include "store/store.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sublet::engine {

struct Warning {
  std::string code;
  std::string text;
  std::string hint;
  Time since;
};

class EventLog {
 public:
  using Event = std::shared_ptr<const store::LoggedEvent>;
  using Find = std::function<const core::Lease*(LeaseId)>;

  // What the store holds is the truth: what was not committed when it failed is forgotten. `life` names the store.
  void open(std::uint64_t last_number, std::string life);
  const std::string& life() const { return life_; }

  // --- making events: each gets the next number ---
  // Of what was decided about leases. `find` finds those that the plan itself does not hold.
  std::vector<Event> of_plan(const core::Plan& plan, const Find& find);
  // Of devices whose state or problem is not what was told last, and of warnings that began or ended since then.
  std::vector<Event> of_changes(const core::State& state, const core::Rules& rules, std::vector<Warning> warnings,
                                Time now);
  // "started", "stopped", or "woke" after the machine was asleep.
  Event of_daemon(std::string_view what, Time now, Duration asleep = {});
  Event of_warning(const Warning& warning, bool begins, Time now);
  // The store's batch `sequence` holds them.
  void intended(std::uint64_t sequence, const std::vector<Event>& events);

  // --- telling ---
  // All batches up to this one are durable. Whether there is anything new.
  bool committed(std::uint64_t sequence);
  std::uint64_t last() const { return last_told_; }  // number of the newest durable event
  // Whether the events above `after` are in memory, all of them.
  bool holds(std::uint64_t after) const;
  // The first of them, `limit` at most.
  std::vector<Event> above(std::uint64_t after, std::size_t limit) const;

 private:
  Event make(std::string type, LeaseId lease, std::string data);

  struct Intended {
    std::uint64_t sequence;
    Event event;
  };
  std::string life_;
  std::uint64_t last_number_ = 0;
  std::uint64_t last_told_ = 0;
  std::deque<Event> recent_;  // told, without a gap, up to last_told_
  std::deque<Intended> waiting_;
  struct Told {
    std::map<std::string, std::pair<std::string, std::string>> devices;  // uuid → state and problem
    std::map<std::string, Warning> warnings;                             // by code and text
  };
  Told told_;           // by what was intended
  Told durable_;        // what it was when everything intended was durable
  bool ahead_ = false;  // told_ may differ from durable_
};

}  // namespace sublet::engine
