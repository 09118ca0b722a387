// SPDX-License-Identifier: Apache-2.0
// What must hold whatever happens, worked out anew from what was read, stored and told, and without the engine's own
// sums. Each invariant has a short name; it is what a failed run is called by.
#pragma once

#include "engine/engine.h"
#include "watched_store.h"
#include "world.h"

#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace sublet::sim {

class Oracle {
 public:
  Oracle(const Config& config, Verdict& verdict, const World& world);

  // A new life of the engine has begun, or its store was opened anew: what was observed is to be observed again.
  void begin(const engine::Engine* engine, const WatchedStore* store, Time now);
  void ended() { engine_ = nullptr, held_.clear(); }
  // The daemon stood still, or its machine slept, until now, for longer than any load explains.
  void stood_still(Time now);
  void lagged(Time now);  // it stood still for any time: the driver may have returned, and it has not heard of it yet
  void slept(Duration asleep);  // the machine did: no driver could return

  // Called as it happens.
  void reading(const gpu::GpuSnapshot& snapshot, Time began, const std::function<LeaseId(ProcessRef)>& lease_of);
  void intended(const store::Batch& batch);
  void requested(LeaseId lease) { requested_.insert(lease); }  // room is to be made for it
  bool wanted_back(LeaseId lease, bool back);                  // its owner's last word, and what that was before
  void revoked(LeaseId lease) { revoked_.insert(lease); }      // somebody wants it taken
  void told(LeaseId lease, std::uint64_t generation);
  void answers(LeaseId lease, const engine::ParkOutcome& outcome);  // who was asked to yield
  void unreached(LeaseId lease);                                    // nobody could tell it to go on
  void restores(LeaseId lease, const std::vector<engine::Room>& room);
  // It is told to yield, or these of it were weighed and may be parked.
  void parks(LeaseId lease, std::span<const ProcessRef> weighed);
  void held(LeaseId lease, bool held, Time now);

  void trace(bool on) { trace_ = on; }
  std::uint64_t leases_seen() const { return leases_seen_; }
  std::uint64_t pauses_seen() const { return pauses_seen_; }
  std::string why_parked() const;  // the last word on those who are

  // `overdue`: something should have happened by now, and is still to come.
  void after_step(bool overdue);
  // Nothing is left to do, nobody wants anything, and no fault is about.
  void at_rest();

 private:
  using Lease = core::Lease;
  struct Reading {
    Time began;
    Bytes total, driver_reserved, used;
    std::map<LeaseId, Bytes> of;      // by lease; {}: of nobody's
    std::map<LeaseId, Bytes> unseen;  // the same, of what was not listed and really is there
    std::map<ProcessRef, Bytes> each;
    Bytes arrived;  // not listed yet, of those who are brought back

    Bytes used_by(LeaseId lease) const {
      const auto found = of.find(lease);
      return found == of.end() ? Bytes{} : found->second;
    }
  };
  struct Claims {
    Bytes leases, others;
    Bytes sum() const { return leases + others; }
  };
  struct End {
    Time at;
    Bytes each;  // what it is charged on each of its devices until it is measured
    std::vector<std::string> devices;
  };

  Bytes arrived(const std::string& device, const Reading& reading,
                const std::function<LeaseId(ProcessRef)>& lease_of) const;
  void read(const gpu::GpuSnapshot& judged, Time began, const std::function<LeaseId(ProcessRef)>& lease_of);
  void check_change(const Lease* before, const Lease& lease, const store::Batch& batch);
  void check_transition(const Lease& before, const Lease& lease);
  void check_left_parked(const Lease& before, const Lease& lease);
  void check_time_parked(const Lease* before, const Lease& lease, Time now);
  void check_end(const Lease* before, const Lease& lease, const store::Batch& batch);
  void check_room(const Lease& lease, Time now, bool wakes);
  void check_displaced(const Lease& lease, Time now);
  void check_slice(const Lease& lease, Time now);
  void check_begun(const core::PreemptionPlan& preemption, Time now);
  void check_quantum(const Lease& lease, const Lease& next, Time now);
  Time quantum_over(const Lease& lease, const Lease& next) const;
  void note_promised(const core::State& state);
  bool others_move(const Lease& lease, const std::string& device) const;
  void check_yielded(const Lease& lease);
  bool seen_to_lie(const Lease& lease) const;
  void check_named(const core::Reason& reason);
  void check_method(const Lease* before, const Lease& lease, Time now);
  void check_left_alone(const Lease& lease, Time now);
  void check_deferred_end(const Lease& before, const Lease& lease);
  void check_undone(const Lease& lease, Time now) const;
  void follow_undo(const Lease& before, const Lease& lease, const store::Batch& batch);
  void check_ledger_entry(const Lease& lease);
  void follow_return(const Lease* before, const Lease& lease);
  void follow_word(const Lease* before, const Lease& lease, Time now);
  void follow_restart();
  std::optional<Bytes> seen_to_use(LeaseId lease, const std::string& uuid) const;
  static bool is_moved(const Lease& lease);
  static bool is_on(const Lease& lease, const std::string& device);
  static bool waits(const Lease& lease);
  static bool has_room(const Lease& lease);
  Claims claims(const std::string& device, const Reading& reading) const;
  Bytes claimed(const std::string& device, const Reading& reading) const;  // the sum

  Bytes counted(const Lease& lease, const std::string& device, const Reading& reading) const;
  const Reading* known(const std::string& device, Time now) const;
  Bytes capacity(const Reading& reading) const;
  Bytes settling(const Lease& ended, const std::string& device, const Reading& reading) const;
  Bytes coming_free(const std::string& device, const Reading& reading, const std::vector<core::Victim>& victims) const;
  struct Seen {
    std::vector<LeaseId> victims, beneficiaries;  // who yields, and who else comes in by the same turn
    std::vector<std::string> devices;
    Time since;          // decided then
    bool again = false;  // for the second time
  };
  void check_plan(const core::State& state, const core::PreemptionPlan& preemption, const Seen& decided, Time now);
  void check_cheapest(const core::State& state, const core::PreemptionPlan& preemption, const Reading& reading,
                      Bytes lacks, Time now);
  Bytes in_headroom(const std::string& device) const;
  Bytes residues(const std::string& device) const;
  Bytes ledger_left() const;
  void check_host_room(const core::PreemptionPlan& preemption);
  void check_stays_out(const Lease& before, const Lease& lease, const store::Batch& batch);
  void check_plans(const core::State& state, Time now);
  void check_unleased_named(const core::State& state, Time now);
  void check_unleased_named(const core::State& state, const Lease& lease, const Reading& reading, Time now);

  // Turns (oracle_shares.cpp, oracle_announced.cpp).
  struct Contest {
    Time began, at;                              // counted up to `at`
    std::map<LeaseId, Duration> had;             // with its room
    std::set<LeaseId> waited;                    // for it, at any time
    std::set<LeaseId> has;                       // its room, since `at`
    int moving = 0;                              // so many since `at`
    Duration moved{};                            // that took, all of them together
    std::set<LeaseId> movers;                    // who left, or came in, at any time
    std::map<LeaseId, Duration> worked;          // so long it had its room
    std::optional<Time> away;                    // somebody is on the way out or in since
    Duration longest = std::chrono::seconds(5);  // that this took
    Duration quantum{};                          // the longest that anybody could be left his room
    bool fair = true;                            // nothing but turns has decided who has the device
    bool settled = false;                        // and all who have their room can be paused
  };
  void forget_slices() { contests_.clear(), announced_.clear(), entering_.clear(), stands_.clear(), unasked_.clear(); }
  void follow_contests(const core::State& state, Time now);
  void follow_contest(const std::string& device, const std::vector<const Lease*>& members, bool alone,
                      const core::State& state, Time now);
  void count_shares(Contest& contest, const std::vector<const Lease*>& members, const std::string& device, Time now);
  bool takes_slices(const core::State& state, const Lease& lease, const std::string& device, Time now) const;
  bool starts_up(const Lease& lease, const std::string& device) const;
  bool waits_on(const Lease& lease, const std::string& device) const;
  Bytes keeps(const Lease& lease) const;
  void note_quantum(Contest& contest, const std::vector<const Lease*>& members, const Reading& reading,
                    const std::string& device) const;
  void check_shares(const Contest& contest, const std::vector<const Lease*>& members, const std::string& device,
                    Time now);
  void check_switching(const Contest& contest, const std::string& device, Time now);
  void check_announced(const core::State& state, Time now);
  void check_entered(const core::State& state);
  void check_kept(const core::State& state, LeaseId id, Time at, const std::map<LeaseId, Time>& announced, Time now);
  bool takes_fair_slices(LeaseId id) const;
  void check_asked_for(LeaseId next, Time now);
  void check_slices_due(const core::State& state, Time now);
  void check_leaves(const core::PreemptionPlan& preemption, const std::string& device, Time now);
  // Whether anything happens at all (oracle_progress.cpp).
  bool surely_yields(const core::State& state, const Lease& lease, const std::string& device, core::Tier preemptor,
                     Time now) const;
  bool somebody_moves(const core::State& state, const std::string& device) const;
  void check_progress(const core::State& state, Time now);
  void check_under_way(const core::State& state, Time now);
  bool could_ask(const core::State& state, const Lease& waiter, Time now) const;
  // Those of which nothing has registered yet (oracle_register.cpp).
  void follow_silent(const Lease* before, const Lease& lease, Time now);
  Time silent_since(const Lease& lease) const;
  bool in_its_moment(const Lease& lease, Time now) const;
  bool surely_ends(const core::State& state, const Lease& lease, core::Tier preemptor, Time now) const;

  bool stands_before(const Lease& a, const Lease& b, Time now) const;
  bool end_is_known(const Lease& lease, Time now) const;
  const Lease* held_for(const std::string& device, const Lease& given, Time now) const;
  std::optional<Time> limit(const Lease& lease) const;
  void follow_back(const Lease& parked, Time now);
  void note_waited(const std::optional<Lease>& before) {
    if (before && waits(*before)) waited_.push_back(*before);
  }
  void follow_given(const Lease* was, const Lease& lease, Time now);
  void follow_shrunk(const Lease& was, const Lease& lease);
  void check_left_over(const Lease& was, const Lease& given, const std::string& device, Time now);

  // Limits (oracle_limits.cpp).
  void check_limits(const Lease& lease);
  void check_host(LeaseId id, double pressure) const;
  bool swaps(LeaseId id) const;          // what is parked of it may be written to the swap device
  bool driver_barred(LeaseId id) const;  // the driver cannot park it here
  void check_share(const Lease& lease) const;
  void check_nothing_automatic(const core::State& state);
  void check_swapped(const core::State& state) const;
  std::optional<Time> deserted(const Lease& lease) const;
  void follow_deserted();
  void keep_deserted(Time now);
  bool was_told(const core::State& state);
  void check_deserted(const core::State& state);
  void check_orphaned(const Lease& before, const Lease& lease);

  void check_sums(const core::State& state, Time now);
  void check_queue(const core::State& state, Time now);
  void check_served(const core::State& state, Time now);
  void check_due(Time now);
  void check_durable();
  void follow_driver(const core::State& state, Time now);
  void check_stuck(const core::State& state, Time now);
  void check_blame(const core::State& state);

  struct Word {
    Time at;  // since when it has that room
    core::PreemptionRequest by;
  };

  const Config& config_;
  Verdict& verdict_;
  const World& world_;
  const engine::Engine* engine_ = nullptr;
  const WatchedStore* store_ = nullptr;
  std::map<LeaseId, Lease> leases_;          // as last intended; the ended ones until they settle
  std::map<std::string, Reading> readings_;  // the last one that can be believed, by device
  std::map<std::string, Reading> believed_;  // the last of each that was
  std::set<std::string> unread_;             // devices whose newest reading cannot be
  std::map<LeaseId, End> ends_;              // of leases that had a process, until a later reading
  std::set<LeaseId> held_;                   // by connections of this life
  std::map<LeaseId, Time> unheld_;           // connection leases that nobody holds, since
  std::set<LeaseId> requested_, revoked_;    // on somebody's word
  std::set<LeaseId> displaced_;              // pausing for somebody else
  std::map<LeaseId, Time> back_at_;          // runs again since, after a pause
  std::map<LeaseId, Time> told_since_;       // is to run again since, after a pause or an undone one
  std::set<LeaseId> wanted_back_;            // by the last word of their owners
  std::set<LeaseId> undoing_;                // their pause came to nothing
  std::map<LeaseId, Time> undone_at_;        // runs again since, after one that came to nothing
  std::map<LeaseId, int> undone_;            // how many did, in a row
  std::set<LeaseId> hindered_;               // the same, and it was no fault of their own
  std::set<LeaseId> passing_;                // … and what was in the way is over in a moment
  std::set<LeaseId> refuses_;                // who was asked to yield, and was just heard to have failed
  std::map<LeaseId, Time> said_at_;          // pausing, and said then that it has yielded
  std::set<LeaseId> measurable_;             // asked to yield when nobody hid anything any more
  std::map<LeaseId, int> to_blame_;          // failed to yield, so many times in a row, and that is to be known
  std::map<LeaseId, Time> returns_by_;       // the driver should have, at the latest
  std::set<LeaseId> asked_now_;              // to yield, by the newest decision
  std::set<std::string> cleared_;            // by the newest decision: devices on which somebody was ended for others
  using OnDevice = std::pair<LeaseId, std::string>;
  std::map<LeaseId, Word> word_at_;      // has its room on somebody's word
  std::map<LeaseId, Time> asked_at_;     // when it was, by the last that was decided
  std::map<OnDevice, Bytes> asked_;      // held when it was asked to yield
  std::map<OnDevice, Bytes> coming_;     // yielding, or being brought back: what it will hold
  std::map<std::string, Bytes> kept_;    // of each card, by those who come back by the newest decision, until then
  std::map<OnDevice, Bytes> came_back_;  // by the newest decision: what each kept of a card while it was parked
  std::map<OnDevice, std::vector<std::pair<Time, Bytes>>> given_;  // its room there, and by which it grew; and when
  std::vector<Lease> waited_;                          // who is given room by what was stored last, as they were before
  std::map<LeaseId, std::set<LeaseId>> slices_begun_;  // who is to leave, by for whom
  std::map<std::pair<LeaseId, LeaseId>, Time> promised_;  // to the first, who waits: the second may leave for it then
  std::map<LeaseId, Time> used_at_;                       // the last reading that showed it use anything
  std::map<LeaseId, Time> silent_;                        // who had registered for it has ended, or withdrew, then
  Time heard_from_;                                       // nobody could before: no daemon ran, or all slept
  std::map<LeaseId, Seen> plans_;                         // who is to yield, by for whom
  std::map<LeaseId, Time> named_at_;                      // the reading by which it was seen who is in its way
  std::set<LeaseId> over_;                                // ended, once and for all
  std::uint64_t last_id_ = 0;
  std::map<LeaseId, Time> forgiven_;  // may not expire before, whatever is stored
  std::map<LeaseId, std::string> last_words_;
  std::uint64_t leases_seen_ = 0, pauses_seen_ = 0;
  std::map<LeaseId, Time> back_by_;                  // nobody may be gone for want of a connection before
  std::map<std::string, Contest> contests_;          // by device; only where no faults are about
  std::map<LeaseId, Time> announced_;                // to those who take turns there, when theirs begins
  std::uint64_t changes_ = 0, announced_after_ = 0;  // of leases, of what was learned, and of what they are seen to use
  struct Entering {
    std::vector<LeaseId> enters;  // were to come in by the turn that was announced
    std::set<LeaseId> waiting;
    bool begun = false;
  };
  std::map<std::string, Entering> entering_;  // by device
  struct Stands {
    Time since;
    std::vector<LeaseId> victims;
  };
  std::map<LeaseId, Stands> stands_;      // room is made for it, and nothing happens
  std::map<LeaseId, Time> unasked_;       // others could be asked for it since, and are not
  std::map<LeaseId, Time> pause_began_;   // of tokens' leases, on CLOCK_MONOTONIC
  std::map<LeaseId, Time> deserted_;      // nothing of it lives, and the daemon could see that since
  std::optional<Time> looked_;            // begun then, a reading was told in this step
  Time looked_at_;                        // the last one was told then, on CLOCK_MONOTONIC
  Time last_now_, awake_;                 // on CLOCK_MONOTONIC
  std::optional<std::uint64_t> checked_;  // after so many steps of the core
  bool woke_ = false;                     // so the newest decision began
  bool wakes_ = false;                    // it stood still, and has not decided anything since
  Time lagged_at_{};                      // when it had last stood still
  Duration napped_{};                     // the machine slept so long, and the engine has not noticed
  bool trace_ = false;
};

}  // namespace sublet::sim
