// SPDX-License-Identifier: Apache-2.0
// The inside of step(): one object for one step. Each kind of fact has its own on(). The functions that they share, and
// that follow from time and free bytes alone, stand below. Private to this folder.
#pragma once

#include "core/plan.h"
#include "core/step.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::core {

// The interval between two looks at pauses under verification, and at plans.
inline constexpr Duration look_interval = std::chrono::milliseconds(20);

// The time beyond the expected move: a program may need it to finish submitted work.
inline constexpr Duration driver_grace = std::chrono::seconds(10);
// The most time that a move by the driver should take, whatever is predicted.
inline constexpr Duration driver_limit = std::chrono::hours(1);
// A driver call is given up after this multiple of the time that a move may take, and never under half a minute.
inline constexpr int given_up_after = 3;
inline constexpr int most_doublings = 6;                         // of the cooldown of a lease whose pauses fail
inline constexpr Duration barred_for = std::chrono::minutes(2);  // an obstacle may end without notice

class Nominations;
class NamedFits;
struct PreemptionQuery;
struct SliceGroup;

class Stepper {
 public:
  Stepper(State& state, const Rules& rules, Time now) : state_(state), rules_(rules), now_(now) {}
  Plan run(const Fact& fact);

 private:
  // A request that returns an error has changed nothing.
  Result<LeaseId> on(const Submit& fact);  // step_submit.cpp
  Result<LeaseId> on(const Claim& fact);   // step_owner.cpp
  Result<LeaseId> on(const Attach& fact);
  Result<LeaseId> on(const Renew& fact);
  Result<LeaseId> on(const HeldChanged& fact);
  Result<LeaseId> on(const Resize& fact);  // step_resize.cpp
  Result<LeaseId> on(const Pause& fact);   // step_pause.cpp
  Result<LeaseId> on(const Resume& fact);
  Result<LeaseId> on(const Preempt& fact);      // step_request.cpp
  Result<LeaseId> on(const HostWeighed& fact);  // step_preempt.cpp
  Result<LeaseId> on(const LockIntent& fact);   // step_pause.cpp
  Result<LeaseId> on(const MeasuredWhileLocked& fact);
  Result<LeaseId> on(const Parked& fact);
  Result<LeaseId> on(const Unparked& fact);
  Result<LeaseId> on(const DriverReturned& fact);
  Result<LeaseId> on(const LivenessReport& fact);  // step_away.cpp
  Result<LeaseId> on(const Cooperate& fact);       // step_method.cpp
  Result<LeaseId> on(const Grant& fact);
  Result<LeaseId> on(const Release& fact);  // step_end.cpp
  Result<LeaseId> on(const Amend& fact);    // step_capability.cpp
  Result<LeaseId> on(const End& fact);
  Result<LeaseId> on(const Keep& fact);
  Result<LeaseId> on(const Remark& fact);
  Result<LeaseId> on(const ProgramEnded& fact);
  Result<LeaseId> on(const ProgramFailed& fact);
  Result<LeaseId> on(const Snapshot& fact);  // step_snapshot.cpp
  Result<LeaseId> on(const SnapshotFailed& fact);
  Result<LeaseId> on(const ClockGap& fact);
  Result<LeaseId> on(const Tick&) { return LeaseId{}; }

  // Submitting.
  Status check_form(const Lease& asked) const;
  Status check_size(const Lease& asked) const;
  Status check_size_on(const Lease& asked, const Device* device) const;
  Status check_tag(const Lease& asked) const;
  LeaseId admit(const Submit& fact);
  void enqueue(Lease& lease);
  void announce_wait(Lease& lease);
  ReasonArgs place_args(const Lease& lease) const;

  // Granting: waiters that fit, in order (step_grant.cpp).
  void grant_waiting();
  struct Placement {
    LeaseId lease;
    std::vector<std::string> devices;
    Bytes vram;  // on each of them
  };
  std::optional<Placement> next_placement(const NamedFits& named, std::optional<Nominations>& rooms);
  std::optional<Placement> place(const QueueKey& key, const Nominations* held) const;
  std::vector<Bytes> open_rooms(const Nominations& held) const;
  void note_held(const Nominations& held);
  void grant(Lease& lease, const Placement& placement);
  void start_ttl(Lease& lease);
  void reject_hopeless();
  void reject_as_hopeless(Lease& lease, ReasonArgs why);

  // Sizes that change (step_resize.cpp).
  Status check_resize(const Lease& lease, Bytes vram) const;
  Result<LeaseId> shrink(Lease& lease, Bytes vram);
  Result<LeaseId> ask_more(Lease& lease, const Resize& fact);
  void grow(Lease& lease);
  void withdraw_resize(Lease& lease, ReasonKind kind, ReasonArgs args = {});

  // Changes by capabilities (step_capability.cpp).
  void rank(Lease& lease, const Amend& fact);
  void drop_kept(Lease& lease);
  bool is_measured_gone(const Lease& lease) const;
  void take_over(LeaseId kept, Lease& lease);

  // Pausing (verification: step_verify.cpp) and resuming (step_pause.cpp).
  Status check_pause(const Lease& lease, const HostMemory& host) const;
  Status check_swap(const Lease& lease, const HostMemory& host) const;
  bool swaps_for_good(const Lease& lease, const HostMemory& host) const;
  Status check_host(const Lease& lease, const HostMemory& host) const;
  Error never_runs_again(const Lease& lease) const;
  void begin_pause(Lease& lease, PauseCause cause, bool resume_requested);
  void ask_to_yield(Lease& lease, PauseMethod method, Parking parking);
  void learn(const Lease& lease, Move move, Bytes bytes, Duration took);
  Duration liar_after(const Lease& lease) const;
  void verify_yielding(Time began);
  bool told(const Lease& lease, Time began) const;
  bool yields(const Lease& lease, Time began) const;
  bool holds_on(const Lease& lease) const;
  void settle_down(Lease& lease);
  void fail(Lease& lease, ReasonKind kind, ReasonArgs args, std::optional<Hindrance> hindrance = {});
  void stay_paused(Lease& lease);
  void look_at_unlisted(const Lease& lease);
  void mark_overdue(Lease& lease);
  void runs_again(Lease& lease, const Parking& parking);
  void undo(Lease& lease, ReasonKind kind, ReasonArgs args, LeftAlone::Ground ground);
  void want_back(Lease& lease);
  void bring_back(Lease& lease);
  void bring_back(Lease& lease, ReasonKind kind, ReasonArgs args);
  void withdraw_return(Lease& lease, ReasonKind kind, ReasonArgs args = {});
  void unpark(Lease& lease);
  void look_again(Lease& lease);
  void finish_half_done();

  // While they are parked (step_away.cpp).
  void note_blocked();
  bool orphaned(const Lease& lease) const;
  void end_orphan(Lease& lease);

  // Preemption plans (step_preempt.cpp).
  void preempt();
  bool room_stale();
  bool change_matters(const std::vector<std::string>& changed) const;
  std::vector<Preemptor> list_preemptors();
  void add_first_waiters(std::vector<QueueKey>& keys) const;
  void add_parked(std::vector<QueueKey>& keys) const;
  bool give_up();
  std::vector<LeaseId> preemptors_in_order() const;
  std::vector<std::string> barred_from(const Lease& waiter) const;
  bool goes_ahead(LeaseId preemptor, const PreemptionPlan& preemption) const;
  bool is_gone_on_with(const PreemptionPlan& preemption) const;
  void look_for_room(const Lease& waiter);
  void note_obstacles(const Lease& waiter);
  VictimPlan plan_on_or_elsewhere(PreemptionQuery query) const;
  bool is_free(const Lease& waiter, const std::vector<std::string>& devices) const;
  void look_again_at(Time at);
  bool begin_plan(PreemptionPlan preemption);
  void pass_on(PreemptionPlan& preemption) const;
  bool advance(const PreemptionPlan& preemption);
  bool somebody_yields(const std::vector<std::string>& devices) const;
  PauseCause cause_of(const PreemptionPlan& preemption, const Lease& victim) const;
  void end_spot(Lease& lease, const PreemptionPlan& preemption);
  ReasonKind why_unpausable(const Lease& lease, const Lease& preemptor, ReasonArgs& why) const;
  void leave_alone(Lease& lease, LeftAlone why);
  void bar(const Lease& lease, std::optional<Hindrance> by, const std::string& why);
  void refuse_set(const PreemptionPlan& preemption, const std::string& beyond);
  void ask_by_next(Lease& victim, const PreemptionPlan& preemption);
  bool swap_may_be_prevented(const Lease& victim) const;
  void note_started(const PreemptionPlan& preemption);
  bool yields_on_its_request(LeaseId preemptor, const std::vector<std::string>& devices) const;
  void settle_undone();
  // Preemption requests (step_request.cpp).
  Error cannot_make_room(const Lease& lease, const VictimPlan& plan) const;
  void request_preemption(Lease& lease, const PreemptionRequest& by);
  Tier keeps_out(const PreemptionQuery& query, const VictimPlan& plan) const;
  void keep_request(Lease& lease);
  void drop_request(Lease& lease);
  // Time slices (step_slices.cpp).
  void wait_for_slice(const Lease& waiter, const std::vector<std::string>& barred);
  const PreemptionPlan* started_for(LeaseId preemptor) const;  // null: no victim was asked before this step
  const PreemptionPlan* begun(LeaseId waiter, const std::string& uuid) const;  // null: its slice there has not begun
  void announce_slices_on_several();
  std::vector<LeaseId> wanting_several() const;
  std::optional<NextSlice> slice_on(const Lease& waiter, const Device& device, const std::vector<std::string>& barred);
  std::optional<NextSlice> slice_on_several(const Lease& waiter, const std::vector<std::string>& barred);
  bool comes_before(const Lease& waiter, const NextSlice& slice) const;
  void keep_to_what_was_said(const Lease& waiter, NextSlice& slice) const;
  bool binds(const AnnouncedSlice& said, const NextSlice& slice) const;
  void announce(const NextSlice& slice);
  bool waits_for_reading(const Lease& waiter);
  bool others_come_in_with(const Lease& waiter) const;
  bool take_slice(const Lease& waiter, const NextSlice& slice);
  bool continue_slice(const Lease& waiter);
  void join_slice_group(const Device& device, const SliceGroup& slice_group);
  void count_time(LeaseId id, State::ServiceTime& service);
  void leave_slice_groups();
  bool contends(LeaseId id, const Device& device) const;
  bool contested() const;
  // Pause methods (step_method.cpp).
  bool try_next(Lease& lease, Parking parking, const HostMemory& host);
  Duration yield_time(const Lease& lease) const;
  void note_unfit(Lease& lease, const Parked& fact);
  Duration driver_time(const Lease& lease, Move move) const;
  void remember_pause(const Lease& lease, PauseMethod method, bool verified);
  void note_relapses(std::set<LeaseId> holding);
  Time top_due(LeaseId id) const;
  void pause_relapsed_again();
  void try_top_later(const Lease& lease, const Parked& failed);
  Result<LeaseId> pause_on_top(Lease& lease, const HostMemory& host);
  Result<LeaseId> parked_on_top(Lease& lease, const Parked& fact);
  void forget_top(Lease& lease);
  void recount_tops(Time began);

  // Ends, and changes by time alone (step_end.cpp).
  void end(Lease& lease, EndReason why, ReasonKind kind, ReasonArgs args = {});
  void stop_program(Lease& lease);
  void end_as_it_is(Lease& lease);
  void end_after_resume(Lease& lease);
  bool leaves_parked_processes(const Lease& lease) const;
  void lose_connection(Lease& lease);
  void end_unresponsive(Lease& lease);
  void note_unanswered(const Lease& lease, const Unparked& fact);
  bool program_may_live(const Lease& lease) const;
  bool may_allocate(const Lease& lease) const;
  void program_gone(const Lease& lease);
  void run_timers();
  void fire(Lease& lease);
  void kill(const Lease& lease);
  void lapse(Lease& lease);
  std::optional<std::int32_t> silent_waiter(const Lease& lease) const;

  // Measuring (step_snapshot.cpp).
  void read_device(const DeviceReading& reading, Time began, bool twice);
  Bytes arrived(const Device& device, const DeviceReading& reading) const;
  std::string implausible(const Device& device, const DeviceReading& reading) const;
  Bytes kept_by_driver(const Device& device, const DeviceReading& reading) const;
  void note_hidden(const Device& device, const DeviceReading& reading, Bytes unlisted);
  void accept(Device& device, const DeviceReading& reading, Time began);
  bool shows_the_end(const Lease& lease, Time began) const;
  void settle_measured(Device& device);
  void miss_device(Device& device, const std::string& problem);
  void adopt_named_devices();
  void give_up_missing();
  bool waits_for_card(Lease& lease, const Device& device, bool over);
  bool may_be_told_to_go_on(const Lease& lease) const;
  void end_with(Lease& lease, const Device& device);
  void forget(const std::string& uuid);

  // Bookkeeping of the plan.
  Lease* find(LeaseId id);
  Result<Lease*> find_for(LeaseId id, std::uint64_t generation);  // refuses the unknown and the outdated
  void touch(const Lease& lease);
  void touch_given(const Lease& lease);  // touches a lease that got memory
  void repeat_signals();
  void explain(const Lease& lease, ReasonKind kind, ReasonArgs args = {});
  void note(std::string_view moment);
  void want_snapshot() { snapshot_wanted_ = true; }
  void finish();
  Time wake_at() const;

  State& state_;
  const Rules& rules_;
  const Time now_;
  Plan plan_;
  std::vector<LeaseId> touched_;
  std::vector<LeaseId> given_;           // the touched leases that got memory, in that order
  bool one_piece_ = false;               // a lease that got memory may have freed some before
  std::vector<LeaseId> ended_;           // ended leases that may have nothing left to wait for
  std::set<LeaseId> relapsing_;          // as State::relapsing_, for the snapshot of this step
  std::optional<std::uint64_t> served_;  // revision of the queue when no waiter could be granted any more
  LeaseId submitted_;                    // the lease of the open request: a grant in this step needs no claim
  std::vector<LeaseId> may_be_blocked_;  // leases to examine for blocking processes at the end of the step
  // Victims whose pause was undone in this step and that have another method left. If their memory is still wanted, the
  // next method is ordered at once.
  struct Undone {
    Parking parking;
    HostMemory host;
  };
  std::map<LeaseId, Undone> undone_;
  std::vector<PreemptionPlan> previous_plans_;  // the plans before this step made new ones
  bool snapshot_wanted_ = false;
  std::optional<std::uint32_t> asked_by_;  // the user whose request ends a program, while it is decided
};

}  // namespace sublet::core
