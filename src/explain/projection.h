// SPDX-License-Identifier: Apache-2.0
// A projection: core::step on a copy of the state, with an ideal executor. Moves take their predicted time, leases end
// when they are expected to, the owners of offers claim them, and nothing else happens. Touches nothing but its copy.
#pragma once

#include "lease/plan.h"
#include "state/end_estimate.h"
#include "state/state.h"

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace sublet::explain {

class Projection {
 public:
  Projection(core::State copy, const core::Rules& rules, Time now);

  // A lease that gave memory back: by its end, or by a pause.
  struct Freed {
    LeaseId lease;
    Time at;                                     // when its memory was free
    core::Basis basis = core::Basis::nothing;    // of its end
    Time start;                                  // of its run, for the words of `basis`
    std::optional<core::PauseCause> cause = {};  // of its pause; unset: it ended
    bool gives_back = false;                     // its capability took its memory
    Time asked = {};                             // when its pause was ordered
    std::vector<std::string> devices = {};
  };
  struct Start {
    Time at;
    std::vector<std::string> devices;
    std::vector<Freed> last;  // what freed its memory, as far as it is told, in order
    std::size_t before = 0;   // so many leases freed memory before these
    bool by_pauses() const { return !last.empty() && last.back().cause.has_value(); }
  };
  // When the waiting lease gets its memory. Null: no event that is foreseen gives it.
  const Start* start_of(LeaseId waiter);
  // When a lease that was paused for that waiter gets its memory back.
  std::optional<Time> return_of(LeaseId victim);
  // True if the lease, which waits for more memory, ends before it gets that.
  bool ends_first(LeaseId lease) const { return presence_.contains(lease) && !waiting_.contains(lease); }
  // True if more happens than a projection looks at.
  bool is_cut() const { return cut_; }

 private:
  // The processes of a lease in the virtual readings, where these differ from the last real reading.
  enum class Presence { gone, full };
  struct End {
    Time at;
    core::Basis basis;
    Time start;
  };

  bool play();
  void take(const core::Fact& fact);
  void end(LeaseId id);
  void note(const core::Lease& lease);
  void note_end(const core::Lease& lease);
  void end_at(LeaseId id, End end);
  void note_start(const core::Lease& lease);
  void answer(LeaseId id);
  void set_presence(LeaseId id, Presence presence);
  void begin(const core::Lease& lease);
  core::Fact reading();

  core::State state_;
  core::Rules rules_;
  const Time begun_;
  Time now_;
  Time wake_at_;         // when the core wants to be called
  bool measure_ = true;  // a snapshot is wanted now
  bool cut_ = false;
  std::size_t events_ = 0;
  std::set<Time> aged_;                             // when waiters have waited so long that memory is reserved for them
  std::multimap<Time, core::Fact> answers_;         // of the executor
  std::map<LeaseId, End> ends_;                     // of leases
  std::set<std::pair<Time, LeaseId>> next_ends_;    // the same, in order
  std::unordered_map<LeaseId, Presence> presence_;  // of leases without an entry: as in the last real reading
  std::set<std::string> stale_;                     // devices where something came or went; uuids
  std::unordered_set<LeaseId> waiting_;             // leases that wait for memory
  std::set<LeaseId> silent_;                        // leases whose resume fails now: they do not answer
  std::vector<Freed> freed_;                        // in order
  std::unordered_map<LeaseId, Start> starts_;
  std::unordered_map<LeaseId, Time> paused_;  // when the pause of a lease that is pausing was ordered
  std::unordered_map<LeaseId, Time> returns_;
};

// The projection of the newest state, kept until the state changes.
class Projections {
 public:
  std::shared_ptr<Projection> of(const core::State& state, const core::Rules& rules, Time now);
  void forget() { newest_.reset(); }

 private:
  std::shared_ptr<Projection> newest_;
  std::uint64_t steps_ = 0;  // of its state
};

}  // namespace sublet::explain
