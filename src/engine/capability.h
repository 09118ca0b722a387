// SPDX-License-Identifier: Apache-2.0
// A capability: a part of Sublet above the engine, such as supervised programs. It changes leases by facts only, and
// learns from decisions and readings. It has no thread and no clock of its own. All calls are on the loop thread, and
// each is a part of a transaction.
#pragma once

#include "engine/event_log.h"
#include "lease/facts.h"
#include "lease/plan.h"
#include "store/store.h"

#include <string>
#include <string_view>
#include <vector>

namespace sublet::engine {

// Changes of capabilities that are stored in one commit.
struct Rows {
  struct Event {
    std::string type;  // of /v1/events, "verdict"
    std::string data;  // a JSON object with the fields "type" and "at"
  };
  std::vector<store::CapabilityRow> rows{};
  std::vector<Event> events{};
  std::string_view transition{};  // name of the change, at which tests interrupt; "": it has none

  bool empty() const { return rows.empty() && events.empty(); }
};

// The source of the changed rows of one kind; see Records.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual void take(Rows& rows) = 0;                   // adds the rows that changed, and their transition
  virtual void taken(std::uint64_t sequence) = 0;      // these rows are in this batch
  virtual void committed(std::uint64_t sequence) = 0;  // all batches up to this number are durable
};

class Capability {
 public:
  virtual ~Capability() = default;

  // The store was opened, at the start or after a failure: all earlier knowledge is replaced by its rows. The engine's
  // state is loaded, and nothing was decided yet. If the machine was rebooted, the ends of the lost leases follow.
  virtual void loaded(const store::Loaded& rows, Time now) = 0;
  // Facts that the core does not store. They are taken after each load, before any memory is granted.
  virtual std::vector<core::Fact> first_facts() const { return {}; }
  // A plan was made in this transaction, and is about to be stored. Never called within another call of a capability.
  // Only its own records may change in this call; facts and orders wait for due().
  virtual void happened(const core::Plan&, Time) {}
  // A snapshot was decided on; the engine's state has its figures.
  virtual void measured(Time) {}
  // The keeper of a lease has ended, and its program lives on. Seen only by the run of the daemon that saw it live.
  virtual void keeper_lost(LeaseId) {}
  // Acts on what was learned. Returns when to be called next, at the latest. The engine also calls it soon after each
  // decision, reading and change of a record.
  virtual Time due(Time now) = 0;
  // The same while the store cannot be used: does only what keeps memory safe for others. Its ends of programs are
  // carried out (Engine::decide), and nothing else can be decided.
  virtual Time due_without_store(Time) { return Time::never(); }
  // Its present warnings, for `sublet status`, /metrics and the event stream.
  virtual std::vector<Warning> warnings(Time) const { return {}; }
  // Its field of this name in the API's form of a lease, as JSON; "": it has none.
  virtual std::string lease_field(std::string_view, const core::Lease&) const { return {}; }
  // The same for a device, by its uuid.
  virtual std::string device_field(std::string_view, const std::string&) const { return {}; }
};

}  // namespace sublet::engine
