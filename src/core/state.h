// SPDX-License-Identifier: Apache-2.0
// All that the core knows: one value that owns its indices. Only step() and load() change it; everybody else
// reads. Not thread-safe: it belongs to the engine's loop thread.
#pragma once

#include "core/by_name.h"
#include "core/cost.h"
#include "core/facts.h"
#include "core/lease.h"
#include "core/preemption_plan.h"
#include "core/preemptors.h"
#include "core/queue.h"
#include "core/rules.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sublet::core {

// Figures of one reading are taken one after the other; between them a program may allocate a little.
inline constexpr Bytes reading_slack = 64 * MiB;

// The charge of a lease on one of its devices beyond its size: measured use, and bytes that still settle after its end.
struct Charge {
  Bytes used{};           // of its processes, in the last plausible snapshot
  bool untold = false;    // one of them is listed there without the bytes it uses
  int processes = 0;      // so many of them are listed there
  bool settling = false;  // ended, and not yet measured gone
  bool measured = false;  // settling, and `used` was measured after the end: no more than that counts
  // Bytes that its processes will hold here once they are back, if more than its size. The bytes are charged from the
  // pause order until the next measurement, except while the lease is paused. For a lease that can never be restored:
  // the bytes that were charged on its way back.
  Bytes coming{};
  // Its size before it shrank: they may have taken more of that than was measured last. Until they are measured again.
  Bytes shrunk_from{};
  Bytes needed{};  // of that, before it is given its room: no more than the device has beside others that are parked
  // Bytes of processes that left the list while the device still has them taken. The bytes may belong to others; they
  // are no proof that the processes freed them.
  Bytes hidden{};
};

// The same over all of its devices.
struct Use {
  Bytes used;
  bool untold = false;
  bool settling = false;
};

// A known device by what may still be promised there; of equals the lower index comes first, then the uuid.
struct DeviceFree {
  Bytes free;
  int index = 0;
  std::string device;        // uuid
  std::uint32_t number = 0;  // the device's, no part of the order
  bool operator==(const DeviceFree&) const = default;
  bool operator<(const DeviceFree& other) const {
    if (free != other.free) return free < other.free;
    return index != other.index ? index < other.index : device < other.device;
  }
};

// Orders the leases of a device by what they are charged, most first.
struct ChargedLease {
  Bytes charged;
  LeaseId lease;
  bool operator<(const ChargedLease& other) const {
    return charged != other.charged ? charged > other.charged : lease < other.lease;
  }
};

// Room that is held for one who has waited long: those who stand behind it go ahead on these devices only with what it
// leaves over, or if they are back before it can start.
struct Nomination {
  LeaseId waiter;
  std::vector<std::string> devices;
  Time until;     // devices are chosen anew if it has not started by then
  int tries = 0;  // how often they were
};

struct Device {
  std::uint32_t number = 0;           // no two of one state have the same, none is used again
  DeviceReading reading;              // the last plausible one
  std::optional<Time> read_at;        // when that one was begun; unset: never
  std::string problem;                // why the newest reading is not usable, "" if it is
  bool lost = false;                  // was there (or is named by a lease), is not listed
  int missing = 0;                    // snapshots in a row that did not list it
  std::optional<Time> missing_since;  // the first of those
  std::set<LeaseId> leases;           // reserving or settling here
  std::set<ChargedLease> by_charge;   // the same leases, the largest first
  Bytes charged;                      // Σ over leases of max(reserved, used)
  Bytes leased_used;                  // Σ over leases of used
  Bytes settling;                     // the part of `charged` of leases that have ended
  Bytes unleased;                     // Σ of the listed processes without a lease
  Bytes unlisted;  // used, of no listed process, and not what the driver keeps of parked ones or has `arrived`
  // The leases that reserve here and on which others may have a claim, by tier (core/methods.h).
  struct Claimable {
    int leases = 0;
    Bytes charged;
  };
  std::array<Claimable, tier_count> might_yield{};
  int pausing = 0;         // so many leases are on their way to yield
  int parked = 0;          // and so many have
  Bytes shrinking;         // Σ over leases of what they have given back, and may have taken before that
  Bytes residues;          // Σ over leases that are parked of what they may keep here
  Bytes residues_to_come;  // the same of those on their way to yield
  Bytes kept_unseen;       // Σ over leases of what they may hold parked beyond what they are listed with
  Bytes arrived;           // of no listed process yet: what came while leases are brought back here, and is theirs
  // max(unleased, used − leased_used − kept_unseen − arrived): hidden and dying processes hold bytes too. The bytes in
  // kept_unseen and arrived are part of `charged`, so that `charged` + `other` is never less than `used`.
  Bytes other;

  // As it stands in the indices over all devices.
  struct Indexed {
    bool moved = false;  // something changed since
    std::optional<DeviceFree> room;
    std::optional<Time> age;
    std::optional<Bytes> capacity;
  };
  Indexed indexed;
};

// How a consumer behaved before; the basis of estimates. Durations of its last runs, newest last.
inline constexpr std::size_t runs_kept = 16;
struct ConsumerHistory {
  std::vector<Duration> runs;
  Bytes peak_used;
  Time last_used = {};                  // for load: whose last use is the oldest goes first
  std::optional<Duration> median = {};  // of the runs; the state keeps it up to date
};

class State {
 public:
  // --- reading ---
  // Live; or ended, while its bytes are not measured gone or its keeper's program is not reported as ended.
  const Lease* find(LeaseId id) const;
  const Lease* find_tag(std::uint32_t uid, std::string_view tag) const;  // live only
  const ByName<Device>& devices() const { return devices_; }             // by uuid
  // The device of this uuid, or of this name or index ("gpu0", "0"); null if there is none.
  const Device* find_device(std::string_view name) const;
  const std::unordered_map<LeaseId, Lease>& leases() const { return leases_; }
  const Queue& queue() const { return queue_; }
  const ConsumerHistory* history(const Consumer& consumer) const;
  // The charge of the lease on one of its devices; empty where it is not booked.
  const Charge& charge(LeaseId id, std::string_view device) const;
  Use use(LeaseId id) const;
  // All histories by consumer, each with the sequence of its last use.
  const std::map<Consumer, std::pair<ConsumerHistory, std::uint64_t>>& histories() const { return history_; }
  // How its pauses by that method went; null: there were none.
  const MethodRecord* record(const Consumer& consumer, PauseMethod method) const;
  // Programs of that user's consumer may be parked although Sublet did not start them.
  bool granted(const Consumer& consumer) const { return grants_.contains(consumer); }
  const std::set<Consumer>& grants() const { return grants_; }
  // Why the last attempt at a snapshot gave nothing at all; "" if it gave something.
  const std::string& snapshot_problem() const { return snapshot_problem_; }
  std::uint64_t last_id() const { return last_id_; }
  std::uint64_t steps() const { return steps_; }  // taken since it was loaded: nothing else changes it

  // Known: the newest reading is usable and not older than rules.max_age.
  bool known(const Device& device, const Rules& rules, Time now) const;
  // Missing for so long, and so often, that it is not just the driver that forgot it for a moment.
  static bool given_up(const Device& device, const Rules& rules, Time now);
  // The first of its devices that is; null: none.
  const Device* given_up(const Lease& lease, const Rules& rules, Time now) const;
  // Bytes that may still be promised; 0 while not known. Negative if more is taken than there is.
  Bytes effective_free(const Device& device, const Rules& rules, Time now) const;
  // The same by the last reading, known or not.
  static Bytes unclaimed(const Device& device, const Rules& rules);
  // The most that one lease could ever get on the device: total − driver's reserve − headroom.
  static Bytes capacity(const Device& device, const Rules& rules);
  // The part of these residues that the headroom takes: no lease loses these bytes.
  Bytes in_headroom(Bytes residues) const;
  // The part of a lease's residue that was in the headroom, and no loss to waiters: a loss once the lease is back.
  Bytes leaves_headroom(const Lease& lease, std::string_view device) const;
  // All that one lease could have there while those that are parked beside it stay so.
  Bytes most_beside_others(const Lease& lease, const Device& device) const;
  // Bytes a lease that reserves, or still settles, is charged on the device: max(reserved, used).
  Bytes charged(const Lease& lease, std::string_view device) const;
  // Known devices, the one with the least room first. As of the last step: what has grown too old since is still
  // there, and known() says so.
  const std::set<DeviceFree>& rooms() const { return rooms_; }
  // The device with the `count`th largest capacity of those that were ever read; null: there are not so many.
  const Device* capacity_for(int count) const;
  // As of the last step that could have granted something; in the order of their waiters.
  const std::vector<Nomination>& nominations() const { return nominations_; }
  // Bytes that a waiter needs on one of its devices: less than it asks for where it holds some already, more where its
  // processes took some while they were paused.
  Bytes need(const Lease& lease, std::string_view device) const;
  // So much of what it is charged there it was given after `since`: granted, back from a pause, or by which it grew. A
  // restart forgets the last two.
  Bytes given_since(const Lease& lease, std::string_view device, Time since) const;
  // Bytes that the return of a paused lease takes beyond its size, on the device where that is most.
  Bytes beyond_size(const Lease& lease) const;
  // Devices that were named but never read.
  std::size_t unread() const { return devices_.size() - capacities_.size(); }

  // --- the ledger: host memory that holds parked bytes ---
  Bytes ledger_entries() const { return ledger_entries_; }      // Σ over leases that are parked, or on the way
  Bytes ledger_unsettled() const { return ledger_unsettled_; }  // the part of it that is promised, not yet taken
  Bytes ledger_of(std::uint32_t uid) const;                     // of this user's programs
  // The most of it that may be one user's, unless that one is alone: nobody else has leases.
  static Bytes ledger_share(const Rules& rules);
  bool alone(std::uint32_t uid) const;
  // Bytes that may still be entered for a program of that user; unset: for a user who may take all.
  Bytes ledger_free(const Rules& rules, const HostMemory& host, std::optional<std::uint32_t> uid = {}) const;

  // --- yielding, parked, coming back ---
  // Paused, or told in vain so far to go on.
  bool is_away(const Lease& lease) const;
  // It is charged with more on a device than was measured, until it is read again.
  bool measured_later(LeaseId id) const;
  // For how long it has been told to go on, again and again, and does not answer; unset: it may only be a moment.
  std::optional<Duration> told_in_vain(const Lease& lease, Time now) const;
  const std::set<LeaseId>& away() const { return away_; }  // those with Lease::parking
  // A move between a device and host memory, and its expected time; nothing while nothing is moved.
  struct Moving {
    Move move = Move::pause;  // settle: it has yielded, and is not measured gone yet
    Bytes bytes;              // in all
    Time since;
    Prediction takes;  // from `since`
  };
  std::optional<Moving> moving(LeaseId id) const;
  // The bytes that a pause or a resume moves: measured use, or the bytes held at the pause order. For a lease that has
  // no memory yet: its size.
  Bytes to_move(const Lease& lease) const;
  // The bytes that must be free on one of its devices before the driver restores there what it may have parked. `all`
  // is for all processes, `of` for each process whose bytes at the pause order are known.
  struct ToRestore {
    Bytes all;
    std::map<ProcessRef, Bytes> of;
    Bytes beside;  // what it took while it was paused leaves so much less of its own room
  };
  ToRestore to_restore(const Lease& lease, std::string_view device) const;
  bool lacks_room(LeaseId id) const;  // resuming: its last restore was not tried for want of room
  // Pausing or resuming, and the driver has not returned for longer than it should take. Waiters look elsewhere
  // meanwhile; the result counts when the driver returns.
  bool stuck(LeaseId id) const;
  // Pausing, and their methods say that they have yielded: since then nothing but a measurement is missing.
  const std::set<LeaseId>& verifying() const { return verifying_; }
  std::optional<Time> yielded_at(LeaseId id) const;
  // True for a pause if its program was told of it, or the driver was to lock a process. Otherwise nothing has to be
  // undone.
  bool begun(LeaseId id) const;
  // By how much what no listed process holds of its devices has grown since it was asked to yield, on that of them
  // where it has grown most. All of it may be its own where nothing was read before.
  Bytes unlisted_since_asked(const Lease& lease) const;
  // Resuming: why its last restore did not come through, one sentence; "" while none has failed.
  const std::string& not_back(LeaseId id) const;
  std::optional<bool> inhabited(
      LeaseId id) const;  // the last fact LivenessReport; unset: it was not told since it is away

  // --- who yields to whom ---
  const CostModel& costs() const { return costs_; }
  Standing standing(LeaseId id) const;
  const LeftAlone& left_alone(LeaseId id) const;  // what was in the way of its last pause of which nothing came
  // The lasting obstacle to a pause of the lease by this method; null: none is known.
  const Barred* barred(LeaseId id, PauseMethod method, Time now) const;
  const std::vector<PreemptionPlan>& plans() const { return plans_; }
  const PreemptionPlan* plan_on(std::string_view device) const;  // null: none is made there
  const PreemptionPlan* plan_for(LeaseId preemptor) const;       // null: none is made for it
  // As of the last step that looked for room.
  const Preemptors& preemptors() const { return preemptors_; }
  const std::map<std::string, NextSlice>& slices() const { return slices_; }  // the next on each device, by uuid
  // The service time of the lease in the slice group that the device has now, counted or assumed.
  Duration had(LeaseId id, const std::string& device) const;
  std::optional<PreemptionRequest> preemption_request(LeaseId waiter) const;  // room for it was ordered
  // Whether anybody of this tier, or of one below it, is there on whom there might be a claim.
  bool somebody_might_yield(Tier tier) const;
  // The devices where somebody of just this tier is, on whom there might be a claim; uuids.
  const std::set<std::string>& where_might_yield(Tier tier) const { return where_[static_cast<std::size_t>(tier)]; }

  // --- restart ---
  // What the store held; ended leases that must still settle are given too. Owners get rules.reconnect from `now`;
  // every lease's bytes count as reserved at once. A device that a lease names is listed, without a reading, until a
  // snapshot knows better. Call step with a Tick next.
  static State load(std::vector<Lease> leases, std::map<Consumer, ConsumerHistory> history, std::uint64_t last_id,
                    const Rules& rules, Time now, const std::vector<LearnedMove>& moves = {},
                    std::set<Consumer> grants = {}, const std::vector<LearnedRecord>& records = {});

 private:
  friend class Stepper;

  // How long a member of a slice group had its memory on a device.
  struct ServiceTime {
    Duration had{};             // up to `since`
    std::optional<Time> since;  // it has its room and counts since then
  };

  // Knowledge about a lease that needs no store: it is measured or observed again after a restart.
  struct LeaseRuntime {
    std::vector<Charge> charges;  // in the order of the lease's devices; none before it was booked
    bool held = false;            // a connection or wait of its owner is open
    Time grace_until;             // after a restart or a standstill: nobody is gone for want of a connection before
    bool killed = false;          // SIGKILL was ordered
    bool program_ended = false;   // its keeper's program is known to have ended
    Time gone_at;                 // then; or when it was killed: no reading that began before shows that bytes are gone
    // Yielding or coming back, as far as it is observed:
    std::optional<Time> yielded_at;  // its method says that it has yielded; verified since then
    Time proven_at;                  // began then: the last snapshot that shows it
    int proofs = 0;                  // how many did in a row
    bool acting = false;             // Park or Unpark is ordered and not answered, …
    Time acting_since;               // … since
    int retries = 0;                 // of Unpark
    int unanswered = 0;              // of those, the last in a row in which its program was told to go on, and did not
    Time restored_at;                // what it holds was not measured before a snapshot that began later
    Time settled_in;                 // given its room then, or before: so much later as the machine has slept since
    Time shrunk_at;                  // what it uses was not measured before one that began after that
    Time used_until;                 // nothing of it has been seen on a device since, if nothing is
    Time silent_since;               // nothing has said how it yields since, if nothing has
    Time look_at = Time::never();    // for the next proof, or the next try
    Bytes moved;                     // what its processes held when it was asked to yield
    Time moving_since;               // Park or Unpark was ordered then
    std::optional<Time> late_since = {};         // a Park was, which the driver was not waited for any more
    std::optional<Time> held_at;                 // began then: the last snapshot that shows it holding on
    std::vector<std::optional<Bytes>> unlisted;  // of each of its devices, before it yields: not its own
    Time overdue_at = Time::never();             // Park or Unpark should have been answered by then …
    bool overdue = false;                        // … and was not
    bool seemed_unfit = false;                   // the driver's last pause of it failed as of one that it cannot park
    bool unverified = false;                     // it was told of this pause that nobody can tell whether it yielded
    bool begun = true;                           // of this pause: its program was told of it, or some of it locked
    LeaseId yields_for;                          // of this pause: for whom it was asked; none: its owner wanted it
    unsigned tried = 0;                          // methods of this pause, by their bits
    std::optional<PauseMethod> next;    // of those that are not: would come next, once what was tried is undone
    std::optional<PauseMethod> on_top;  // is to park what it took while it was paused; ordered and not answered
    int tops_failed = 0;                // such orders, in a row
    bool relapsed = false;              // paused, and holds more than it promised to keep …
    Time top_at = Time::never();        // … which is then to be parked again, if it still does
    bool no_room = false;               // the last Unpark found none
    std::string not_back;               // why the last Unpark failed, …
    std::string not_back_code;          // … and the word for it
    std::int32_t blocked_by = 0;    // the pid of the largest unleased process that it was told of; -1: its card is gone
    std::optional<bool> inhabited;  // as far as it was told since it is away
    // As one that may be asked to yield:
    bool weighed = false;             // WeighHost is ordered and not answered
    Bytes parked;                     // by the driver, the last time
    int failures = 0;                 // of pauses, in a row
    std::optional<LeftAlone> undone;  // why its pause is being undone: it is left alone when it runs again
    LeftAlone left_alone;             // the last time
    std::optional<Barred> barred;     // from its pauses
    Time tried_at, ineligible_until;  // since, until
    // When it was given its room again after a pause, and by how much it grew since then on each of its devices.
    Time back_at;
    Time told_since;  // resuming: nothing but the program has kept it from going on since, if that does
    std::vector<std::pair<Time, Bytes>> grown;  // the newest last
    Time due = Time::never();                   // as it stands in timers_
    bool touched = false;                       // by the step under way
    bool given = false;                         // room, by the step under way
  };

  // Each keeps all indices in step with the change it makes.
  Lease& add(Lease lease);
  void drop(LeaseId id);
  void retire(const Lease& lease);  // it is live no more
  void book(Lease& lease);          // lease.devices is set: its bytes count there from now on
  void unbook(const Lease& lease);  // what its processes are listed with counts as `other` again
  void unbook(const Lease& lease, Device& device);
  // Ended: charged until measured gone. `measured`: what it was last seen to hold was proven to be all that it holds.
  void settle(LeaseId id, bool measured);
  void resize(Lease& lease, Bytes vram, Time now);
  void set_owner(Lease& lease, Owner owner);
  void set_cooperation(Lease& lease, std::optional<Cooperation> how, Time now);
  void requeue_in_place(const Lease& lease);  // it waits for more where it is; what it needs may have changed
  // These functions note how the processes met a pause order, by the measurements. Each changes `parking`, which
  // becomes the lease's.
  void note_asked(const Lease& lease, Parking& parking, const Rules& rules, Time now) const;
  void note_yielded(const Lease& lease, Parking& parking) const;
  void note_asked_on_top(const Lease& lease, Parking& parking) const;
  static void note_parked_on_top(Parking& parking);
  void note_beside(const Lease& lease, Parking& parking) const;
  Bytes gone_since_top(const Lease& lease) const;
  void expect_return(const Lease& lease);
  void expect_all_back(const Lease& lease);
  void enter(const Lease& lease, int sign);
  void set_parking(Lease& lease, std::optional<Parking> parking, LeaseState state);  // with what it reserves and enters
  void measure(const Lease& lease, Device& device, const Charge& seen, bool after_end);
  void refresh_other(Device& device);
  bool forgive(Lease& lease, const Rules& rules, Time now);
  void stand_still(const Lease& lease, Duration stood_still);
  bool sleep_through(Lease& lease, Duration asleep);
  void schedule(const Lease& lease, const Rules& rules);
  Time deadline(const Lease& lease, const LeaseRuntime& runtime, const Rules& rules) const;
  void remember(const Consumer& consumer, Bytes peak, std::optional<Duration> run);
  void load_histories(std::map<Consumer, ConsumerHistory> histories);
  void include(Device& device, const Lease& lease, const Charge& charge, int sign);
  // Makes a change to the lease, or to its charges, and keeps the sums of its devices in step with it.
  template <typename Change>
  void rebook(Lease& lease, const Change& change);
  Charge* charge_at(const Lease& lease, std::string_view device);
  Device& device_entry(const std::string& uuid);
  void forget(const std::string& uuid);  // of a device on which nothing is booked
  // The indices over all devices follow what changed when they are next asked: a snapshot changes a device many times.
  void moved(Device& device);
  void reindex(const Rules& rules, Time now);
  void reindex(Device& device, const Rules& rules, Time now);

  std::unordered_map<LeaseId, Lease> leases_;
  std::unordered_map<LeaseId, LeaseRuntime> runtime_;  // the same keys
  ByName<Device> devices_;
  std::set<DeviceFree> rooms_;                          // known devices
  std::set<std::pair<Time, std::string>> ages_;         // the same, by the age of their reading
  std::set<std::pair<Bytes, std::string>> capacities_;  // devices that were ever read; headroom not taken off
  std::uint32_t last_number_ = 0;                       // of a device
  std::vector<Nomination> nominations_;
  std::vector<std::string> moved_;                           // not reindexed yet
  std::vector<std::string> opened_;                          // have more room than when all waiters were last looked at
  std::optional<std::pair<Bytes, Duration>> indexed_under_;  // the rules that the indices rest on
  Queue queue_;
  std::map<std::pair<std::uint32_t, std::string>, LeaseId> tags_;
  std::map<std::uint32_t, std::size_t> live_of_;                           // leases of each user that have not ended
  std::set<std::pair<Time, LeaseId>> timers_;                              // each lease that has a deadline, once
  std::map<Consumer, std::pair<ConsumerHistory, std::uint64_t>> history_;  // with the sequence of its last use
  std::map<std::uint64_t, Consumer> history_order_;
  std::uint64_t history_sequence_ = 0;
  std::uint64_t steps_ = 0;
  std::uint64_t last_id_ = 0;
  Bytes ledger_entries_, ledger_unsettled_;
  std::map<std::uint32_t, Bytes> ledger_of_;  // Σ of it is ledger_entries_; by uid
  std::set<LeaseId> away_;                    // with a Parking
  std::set<LeaseId> verifying_;               // yielded, as they say
  std::set<LeaseId> relapsing_;               // paused, and held more than promised in the newest snapshot
  std::map<std::pair<Consumer, PauseMethod>, MethodRecord> records_;  // by consumer and method
  std::set<Consumer> grants_;
  std::vector<LeaseId> half_done_;  // loaded while yielding or coming back: nobody knows how far that came
  Time last_queued_at_;             // no two leases are queued at the same time
  Time snapshot_began_;             // of the newest snapshot
  std::string snapshot_problem_;
  CostModel costs_;
  std::vector<PreemptionPlan> plans_;        // on devices of their own; as of the last step
  std::map<std::string, NextSlice> slices_;  // the same
  std::map<std::pair<LeaseId, std::vector<std::string>>, AnnouncedSlice> said_;  // to whom, of which devices, by uuid
  std::map<std::string, std::map<LeaseId, ServiceTime>>
      slice_groups_;                                     // on each device, among those who take turns there
  std::set<LeaseId> requested_;                          // room was ordered for them
  Preemptors preemptors_;                                // those who were looked at last
  bool room_stale_ = true;                               // something changed since, that may matter anywhere
  std::vector<std::string> room_changed_;                // or on these devices alone
  std::optional<Barred> driver_barred_;                  // from everybody's pauses
  Time room_look_at_ = Time::never();                    // then more may be had
  std::array<std::set<std::string>, tier_count> where_;  // uuids; somebody might yield
  std::vector<LeaseId> unsignalled_;                     // loaded while being stopped: the order may have been lost
};

template <typename Change>
void State::rebook(Lease& lease, const Change& change) {
  for (const std::string& uuid : lease.devices) include(devices_.at(uuid), lease, *charge_at(lease, uuid), -1);
  change();
  for (const std::string& uuid : lease.devices) include(devices_.at(uuid), lease, *charge_at(lease, uuid), 1);
}

}  // namespace sublet::core
