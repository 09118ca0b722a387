// SPDX-License-Identifier: Apache-2.0
// The events of the daemon, in the order of their decisions, for readers of the event stream. An event is numbered when
// it is decided, and sent when it is durable. The newest events are kept in memory, more of them in the store. Belongs
// to the loop thread.
#pragma once

#include "lease/plan.h"
#include "state/state.h"
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

  // Starts from the content of the store: events that were not committed before a failure are forgotten. `life`: id of
  // the store.
  void open(std::uint64_t last_number, std::string life);
  const std::string& life() const { return life_; }

  // --- making events: each gets the next number ---
  // Makes events for the plan's decisions about leases. `find` finds leases that the plan does not contain.
  std::vector<Event> of_plan(const core::Plan& plan, const Find& find);
  // Makes events for devices whose state or problem has changed, and for warnings that began or ended since the last
  // event.
  std::vector<Event> of_changes(const core::State& state, const core::Rules& rules, std::vector<Warning> warnings,
                                Time now);
  // Makes a daemon event: "started", "stopped", or "woke" after a sleep of the machine.
  Event of_daemon(std::string_view what, Time now, Duration asleep = {});
  // Makes an event of a capability; `data` is a JSON object.
  Event of_capability(std::string type, std::string data);
  Event of_warning(const Warning& warning, bool begins, Time now);
  // The store's batch `sequence` contains the events.
  void intended(std::uint64_t sequence, const std::vector<Event>& events);

  // --- sending ---
  // All batches up to this one are durable. Returns whether there are new events to send.
  bool committed(std::uint64_t sequence);
  std::uint64_t last() const { return last_told_; }  // number of the newest durable event
  // Whether all events above `after` are in memory.
  bool holds(std::uint64_t after) const;
  // Returns the first events above `after`, at most `limit`.
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
  std::deque<Event> recent_;  // durable events without a gap, up to last_told_
  std::deque<Intended> waiting_;
  struct Told {
    std::map<std::string, std::pair<std::string, std::string>> devices;  // by UUID: state and problem
    std::map<std::string, Warning> warnings;                             // by code and text
  };
  Told told_;           // state of devices and warnings by all intended events
  Told durable_;        // state when everything intended was durable
  bool ahead_ = false;  // told_ may differ from durable_
};

}  // namespace sublet::engine
