// SPDX-License-Identifier: Apache-2.0
// All that the core knows: one value that owns its indices. Only step() and load() change it; everybody else
// reads. Not thread-safe: it belongs to the engine's loop thread.
#pragma once

#include "core/by_name.h"
#include "core/cost.h"
#include "core/facts.h"
#include "core/lasting_use.h"
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

// The driver reads the figures of one reading one after the other, so that a program may allocate a little between
// them.
inline constexpr Bytes reading_slack = 64 * MiB;

// The charge of a lease on one of its devices beyond its size: measured use, and bytes that still settle after its end.
struct Charge {
  Bytes used{};           // of its processes, by the last plausible snapshot
  bool untold = false;    // a process is listed without its bytes
  int processes = 0;      // number of listed processes
  bool settling = false;  // ended, and not yet measured gone
  bool measured = false;  // settling: `used` was measured after the end, and nothing else counts
  // Bytes that its processes will hold here once they are back, if more than its size. The bytes are charged from the
  // pause order until the next measurement, except while the lease is paused. For a lease that can never be restored:
  // the bytes that were charged on its way back.
  Bytes coming{};
  // The size before it shrank, until its processes are measured again: they may have taken more than the last
  // measurement.
  Bytes shrunk_from{};
  Bytes needed{};  // the part of `coming` that must be free before its resume
  // Bytes of processes that left the list while the device still has them taken. The bytes may belong to others; they
  // are no proof that the processes freed them.
  Bytes hidden{};
};

// The charge of a lease over all of its devices.
struct Use {
  Bytes used;
  bool untold = false;
  bool settling = false;
};

// A known device, ordered by its free memory, then by its index, then by its uuid.
struct DeviceFree {
  Bytes free;
  int index = 0;
  std::string device;        // uuid
  std::uint32_t number = 0;  // the device's number, not compared
  bool operator==(const DeviceFree&) const = default;
  bool operator<(const DeviceFree& other) const {
    if (free != other.free) return free < other.free;
    return index != other.index ? index < other.index : device < other.device;
  }
};

// Orders the leases of a device by their charge, the largest first.
struct ChargedLease {
  Bytes charged;
  LeaseId lease;
  bool operator<(const ChargedLease& other) const {
    return charged != other.charged ? charged > other.charged : lease < other.lease;
  }
};

// Memory reserved for a lease that has waited long. Leases behind it get only what it leaves over on these devices, or
// memory that they give back before its start.
struct Nomination {
  LeaseId waiter;
  std::vector<std::string> devices;
  Time until;     // when devices are chosen anew, if it has not started by then
  int tries = 0;  // how often devices were chosen anew
};

struct Device {
  std::uint32_t number = 0;           // unique in a state, never used again
  DeviceReading reading;              // the last plausible reading
  std::optional<Time> read_at;        // when that reading began; unset: never read
  std::string problem;                // why the newest reading is not usable, "" if it is
  bool lost = false;                  // known or named by a lease, and not listed any more
  int missing = 0;                    // number of snapshots in a row without it
  std::optional<Time> missing_since;  // when the first of those snapshots began
  std::set<LeaseId> leases;           // reserving or settling here
  std::set<ChargedLease> by_charge;   // the same leases, the largest first
  Bytes charged;                      // Σ over leases of max(reserved, used)
  Bytes leased_used;                  // Σ over leases of used
  Bytes settling;                     // the part of `charged` of leases that have ended
  Bytes unleased;                     // Σ of the listed processes without a lease
  Bytes unlisted;  // used bytes that are of no listed process, not kept by the driver and not `arrived`
  // The leases that reserve here and on which others may have a claim, by tier (core/methods.h).
  struct Claimable {
    int leases = 0;
    Bytes charged;
  };
  std::array<Claimable, tier_count> might_yield{};
  int pausing = 0;         // number of leases that are pausing here
  int parked = 0;          // number of leases that are parked here
  Bytes shrinking;         // Σ over leases of bytes given back since the last measurement
  Bytes residues;          // Σ of the residues of parked leases
  Bytes residues_to_come;  // Σ of the residues of pausing leases
  Bytes kept_unseen;       // Σ over leases of bytes that they may hold here unlisted
  Bytes arrived;           // unlisted bytes that came while leases resume here, and are theirs
  // max(unleased, used − leased_used − kept_unseen − arrived): hidden and dying processes hold bytes too. The bytes in
  // kept_unseen and arrived are part of `charged`, so that `charged` + `other` is never less than `used`.
  Bytes other;
  LastingUse lasting;  // the part of `other` that has been there for a minute, as of the last plausible reading

  // Its entries in the indices over all devices.
  struct Indexed {
    bool moved = false;  // the device changed since the last reindex
    std::optional<DeviceFree> room;
    std::optional<Time> age;
    std::optional<Bytes> capacity;
  };
  Indexed indexed;
};

// The history of a consumer, the basis of estimates.
inline constexpr std::size_t runs_kept = 16;
struct ConsumerHistory {
  std::vector<Duration> runs;  // durations of its last runs, the newest last
  Bytes peak_used;
  Time last_used = {};                  // for load(): the history with the oldest use is dropped first
  std::optional<Duration> median = {};  // of `runs`; kept up to date by the state
};

class State {
 public:
  // --- reading ---
  // A lease that is live; or one that has ended, until its bytes are measured gone and its program is reported as
  // ended.
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
  // The results of its pauses by that method; null: there were none.
  const MethodRecord* record(const Consumer& consumer, PauseMethod method) const;
  // All results, by consumer and method.
  const std::map<std::pair<Consumer, PauseMethod>, MethodRecord>& records() const { return records_; }
  // Programs of that user's consumer may be parked although Sublet did not start them.
  bool granted(const Consumer& consumer) const { return grants_.contains(consumer); }
  const std::set<Consumer>& grants() const { return grants_; }
  // Why the last attempt at a snapshot failed; "" if it succeeded.
  const std::string& snapshot_problem() const { return snapshot_problem_; }
  std::uint64_t last_id() const { return last_id_; }
  std::uint64_t steps() const { return steps_; }  // number of steps since load(); only a step changes the state

  // True if the newest reading is usable and not older than rules.max_age.
  bool known(const Device& device, const Rules& rules, Time now) const;
  // True if the device has been missing for so long, and so often, that the driver did not just miss it for a moment.
  static bool given_up(const Device& device, const Rules& rules, Time now);
  // The first of its devices that is given up; null: none.
  const Device* given_up(const Lease& lease, const Rules& rules, Time now) const;
  // Bytes that may still be promised; 0 while not known. Negative if more is taken than there is.
  Bytes effective_free(const Device& device, const Rules& rules, Time now) const;
  // The free memory by the last reading, known or not.
  static Bytes unclaimed(const Device& device, const Rules& rules);
  // The most that one lease could ever get on the device: total − driver's reserve − headroom.
  static Bytes capacity(const Device& device, const Rules& rules);
  // The part of these residues that the headroom takes: no lease loses these bytes.
  Bytes in_headroom(Bytes residues) const;
  // The part of a lease's residue that was in the headroom, and no loss to waiters: a loss once the lease is back.
  Bytes leaves_headroom(const Lease& lease, std::string_view device) const;
  // The most that the lease could have there while the leases parked beside it stay parked.
  Bytes most_beside_others(const Lease& lease, const Device& device) const;
  // The charge of a lease that reserves or still settles on the device: max(reserved, used).
  Bytes charged(const Lease& lease, std::string_view device) const;
  // Known devices, the one with the least free memory first, as of the last step. A device whose reading is too old
  // since is still listed; known() tells.
  const std::set<DeviceFree>& rooms() const { return rooms_; }
  // The device with the `count`th largest capacity of those that were ever read; null: there are not so many.
  const Device* capacity_for(int count) const;
  // In the order of their waiters, as of the last step that could have granted something.
  const std::vector<Nomination>& nominations() const { return nominations_; }
  // Bytes that a waiter needs on one of its devices. The need is less than its size if it holds some already, and more
  // if its processes allocated while paused.
  Bytes need(const Lease& lease, std::string_view device) const;
  // The part of its charge that it got after `since`: by its grant, by its return from a pause, or by growth. A restart
  // forgets the last two.
  Bytes given_since(const Lease& lease, std::string_view device, Time since) const;
  // Bytes that the return of a paused lease takes beyond its size, on the device where that is most.
  Bytes beyond_size(const Lease& lease) const;
  // Devices that were named but never read.
  std::size_t unread() const { return devices_.size() - capacities_.size(); }

  // --- the ledger: host memory that holds parked bytes ---
  Bytes ledger_entries() const { return ledger_entries_; }      // Σ over leases that are pausing or parked
  Bytes ledger_unsettled() const { return ledger_unsettled_; }  // the part that is promised and not yet taken
  Bytes ledger_of(std::uint32_t uid) const;                     // the entries of this user's programs
  // The most that one user may have, unless no other user has leases.
  static Bytes ledger_share(const Rules& rules);
  bool alone(std::uint32_t uid) const;
  // Bytes that may still be entered for a program of that user; unset: for a user who may take all.
  Bytes ledger_free(const Rules& rules, const HostMemory& host, std::optional<std::uint32_t> uid = {}) const;

  // --- yielding, parked, coming back ---
  // True if the lease is paused, or has not answered its resume order yet.
  bool is_away(const Lease& lease) const;
  // True if its charge on a device is above the measurement until the next reading.
  bool measured_later(LeaseId id) const;
  // How long it has not answered repeated resume orders; unset: the silence may be brief.
  std::optional<Duration> told_in_vain(const Lease& lease, Time now) const;
  const std::set<LeaseId>& away() const { return away_; }  // those with Lease::parking
  // A move between a device and host memory, and its expected time; nothing while nothing is moved.
  struct Moving {
    Move move = Move::pause;  // settle: the method reports the bytes freed, and no reading shows it yet
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
    Bytes beside;  // bytes allocated while paused, which reduce the free memory of the lease
  };
  ToRestore to_restore(const Lease& lease, std::string_view device) const;
  bool held(LeaseId id) const;        // a connection or wait of its owner is open
  bool lacks_room(LeaseId id) const;  // resuming: its last restore was not tried, because memory was not free
  // Pausing or resuming, and the driver has not returned for longer than it should take. Waiters look elsewhere
  // meanwhile; the result counts when the driver returns.
  bool stuck(LeaseId id) const;
  // Pausing leases whose method reports the bytes freed, and that only wait for a measurement.
  const std::set<LeaseId>& verifying() const { return verifying_; }
  std::optional<Time> yielded_at(LeaseId id) const;
  // True for a pause if its program was told of it, or the driver was to lock a process. Otherwise nothing has to be
  // undone.
  bool begun(LeaseId id) const;
  // How much the unlisted bytes on its devices have grown since the pause order, on the device where that is most.
  // Without a reading before the order, all of them may be its own.
  Bytes unlisted_since_asked(const Lease& lease) const;
  // Resuming: why its last restore failed, one sentence; "" while none has failed.
  const std::string& not_back(LeaseId id) const;
  std::optional<bool> inhabited(LeaseId id) const;  // the last LivenessReport since its pause; unset: there was none

  // --- who yields to whom ---
  const CostModel& costs() const { return costs_; }
  Standing standing(LeaseId id) const;
  const LeftAlone& left_alone(LeaseId id) const;  // the obstacle to its last pause that failed
  // The lasting obstacle to a pause of the lease by this method; null: none is known.
  const Barred* barred(LeaseId id, PauseMethod method, Time now) const;
  const std::vector<PreemptionPlan>& plans() const { return plans_; }
  const PreemptionPlan* plan_on(std::string_view device) const;  // null: there is none
  const PreemptionPlan* plan_for(LeaseId preemptor) const;       // null: there is none
  // As of the last step that looked for victims.
  const Preemptors& preemptors() const { return preemptors_; }
  const std::map<std::string, NextSlice>& slices() const { return slices_; }  // the next slice on each device, by uuid
  // The service time of the lease in the slice group that the device has now, counted or assumed.
  Duration had(LeaseId id, const std::string& device) const;
  std::optional<PreemptionRequest> preemption_request(LeaseId waiter) const;  // set if memory was requested for it
  // True if a lease of this tier or a lower one may be a victim for anybody (might_yield()).
  bool somebody_might_yield(Tier tier) const;
  // The devices with a lease of just this tier that may be a victim; uuids.
  const std::set<std::string>& where_might_yield(Tier tier) const { return where_[static_cast<std::size_t>(tier)]; }

  // --- restart ---
  // Loads the content of the store, with the ended leases that must still settle. Owners get rules.reconnect from
  // `now`; the bytes of every lease count as reserved at once. A device that a lease names is listed without a reading
  // until a snapshot shows it. Call step with a Tick next.
  static State load(std::vector<Lease> leases, std::map<Consumer, ConsumerHistory> history, std::uint64_t last_id,
                    const Rules& rules, Time now, const std::vector<LearnedMove>& moves = {},
                    std::set<Consumer> grants = {}, const std::vector<LearnedRecord>& records = {});

 private:
  friend class Stepper;
  friend struct StateCorruption;  // validate_test.cpp

  // How long a member of a slice group had its memory on a device.
  struct ServiceTime {
    Duration had{};             // up to `since`
    std::optional<Time> since;  // since when it has its memory and is counted; unset: it is not
  };

  // Knowledge about a lease that needs no store: it is measured or observed again after a restart.
  struct LeaseRuntime {
    std::vector<Charge> charges;  // in the order of the lease's devices; empty before it is booked
    bool held = false;            // a connection or wait of its owner is open
    std::int32_t waiter = 0;      // pid of the process that opened the last one; 0: unknown
    Time grace_until;             // after a restart or a clock gap: no owner counts as gone before this
    // The obstacles to its preemption that were noted last: the leases, and the codes of their obstacles.
    std::vector<std::string> obstacle_leases, obstacle_codes;
    Time obstacles_at;           // when they were last looked for
    bool killed = false;         // SIGKILL was ordered
    bool program_ended = false;  // the program of its keeper is known to have ended
    Time gone_at;                // when it ended or was killed; earlier readings do not show its bytes gone
    // Pausing or resuming, as far as that is observed:
    std::optional<Time> yielded_at;       // when its method reported the bytes freed; verification runs since then
    Time proven_at;                       // when the last snapshot that proves the pause began
    int proofs = 0;                       // how many snapshots in a row prove the pause
    bool acting = false;                  // Park or Unpark is ordered and not answered
    Time acting_since;                    // when it was ordered
    int retries = 0;                      // of Unpark: number of repetitions
    int unanswered = 0;                   // resume orders in a row that the program did not answer
    Time restored_at;                     // when it was restored; only later snapshots measure what it holds
    Time settled_in;                      // when it got its memory, later by the time that the machine slept since
    Time shrunk_at;                       // when it shrank; only later snapshots measure what it uses
    Time used_until;                      // when something of it was last seen on a device
    Time silent_since;                    // since when no process has registered how it yields
    Time look_at = Time::never();         // when to look for the next proof or attempt
    Bytes moved;                          // bytes of its processes at the pause order
    Time moving_since;                    // when Park or Unpark was ordered
    std::optional<Time> late_since = {};  // when a Park was ordered whose driver call was given up
    std::optional<Time> held_at;          // when the last snapshot that shows it holding its bytes began
    std::vector<std::optional<Bytes>> unlisted;  // unlisted bytes of each device before the pause, not its own
    Time overdue_at = Time::never();             // when Park or Unpark should have been answered
    bool overdue = false;                        // that time passed without an answer
    bool seemed_unfit = false;          // the driver's last attempt failed as for a program that it cannot park
    bool unverified = false;            // this pause was reported as unverified
    bool begun = true;                  // this pause: its program was told, or a process was locked
    LeaseId yields_for;                 // this pause: its preemptor; none: its owner asked for it
    unsigned tried = 0;                 // methods tried in this pause, by their bits
    std::optional<PauseMethod> next;    // the next method, once the one before is undone
    std::optional<PauseMethod> on_top;  // the method that parks bytes allocated while paused; ordered, not answered
    int tops_failed = 0;                // such orders that failed in a row
    bool relapsed = false;              // paused, and holds more than its residue
    Time top_at = Time::never();        // when that is parked again, if it still holds more
    bool no_room = false;               // the last Unpark found too little free memory
    std::string not_back;               // why the last Unpark failed, one sentence
    std::string not_back_code;          // its code
    std::int32_t blocked_by = 0;    // pid of the largest unleased process that was reported to it; -1: its card is gone
    std::optional<bool> inhabited;  // the last LivenessReport since its pause
    // As a possible victim:
    bool weighed = false;             // WeighHost is ordered and not answered
    Bytes parked;                     // bytes that the driver parked in its last pause
    int failures = 0;                 // pauses that failed in a row
    std::optional<LeftAlone> undone;  // why its pause is being undone; it becomes ineligible when it runs again
    LeftAlone left_alone;             // why it became ineligible the last time
    std::optional<Barred> barred;     // the lasting obstacle to its pauses
    Time tried_at, ineligible_until;  // since when, and until when, it is ineligible
    // When it got its memory back after a pause, and how much it grew on each device since.
    Time back_at;
    Time told_since;                            // resuming: since when only the program itself delays it
    std::vector<std::pair<Time, Bytes>> grown;  // the newest last
    Time due = Time::never();                   // its entry in timers_
    bool touched = false;                       // by the present step
    bool given = false;                         // got memory in the present step
  };

  // Each function keeps all indices in step with its change.
  Lease& add(Lease lease);
  void drop(LeaseId id);
  void retire(const Lease& lease);  // the lease is not live any more
  void charge_to(Lease& lease, const Charged& who);
  void book(Lease& lease);          // lease.devices is set; its bytes count there from now on
  void unbook(const Lease& lease);  // the bytes of its processes count as `other` again
  void unbook(const Lease& lease, Device& device);
  // The lease has ended and is charged until measured gone. `measured`: its last measurement was proven to be all that
  // it holds.
  void settle(LeaseId id, bool measured);
  void resize(Lease& lease, Bytes vram, Time now);
  void set_owner(Lease& lease, Owner owner);
  void set_cooperation(Lease& lease, std::optional<Cooperation> how, Time now);
  void requeue_in_place(const Lease& lease);  // it waits for more on its devices, and its need may have changed
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
  void set_parking(Lease& lease, std::optional<Parking> parking,
                   LeaseState state);  // updates reserved and entered bytes, too
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
  void forget(const std::string& uuid);  // only for a device without bookings
  // The indices over all devices are updated on the next query, because a snapshot changes a device many times.
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
  std::vector<std::string> moved_;   // uuids of devices that are not reindexed yet
  std::vector<std::string> opened_;  // uuids of devices with more free memory than when all waiters were last looked at
  std::optional<std::pair<Bytes, Duration>> indexed_under_;  // headroom and max_age that the indices rest on
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
  std::map<std::uint32_t, Bytes> ledger_of_;  // by uid; the sum is ledger_entries_
  std::set<LeaseId> away_;                    // with a Parking
  std::set<LeaseId> verifying_;               // pausing leases whose method reports the bytes freed
  std::set<LeaseId> relapsing_;               // paused leases that held more than their residue in the newest snapshot
  std::map<std::pair<Consumer, PauseMethod>, MethodRecord> records_;  // by consumer and method
  std::set<Consumer> grants_;
  std::vector<LeaseId> half_done_;  // loaded while pausing or resuming, with unknown progress
  Time last_queued_at_;             // no two leases are queued at the same time
  Time snapshot_began_;             // of the newest snapshot
  std::string snapshot_problem_;
  CostModel costs_;
  std::vector<PreemptionPlan> plans_;        // on devices of their own; as of the last step
  std::map<std::string, NextSlice> slices_;  // the same
  std::map<std::pair<LeaseId, std::vector<std::string>>, AnnouncedSlice>
      said_;  // by the lease that enters and the uuids of the devices
  std::map<std::string, std::map<LeaseId, ServiceTime>> slice_groups_;  // by uuid, then by lease
  std::set<LeaseId> requested_;                                         // waiters with a preemption request
  Preemptors preemptors_;                                               // as of the last look
  bool room_stale_ = true;                               // something changed that may matter on any device
  std::vector<std::string> room_changed_;                // uuids of devices with a change that matters only there
  std::optional<Barred> driver_barred_;                  // the lasting obstacle to all pauses by the driver
  Time room_look_at_ = Time::never();                    // when to look for victims again
  std::array<std::set<std::string>, tier_count> where_;  // uuids of devices with possible victims, by tier
  std::vector<LeaseId> unsignalled_;  // loaded while being stopped, so that the order may have been lost
};

template <typename Change>
void State::rebook(Lease& lease, const Change& change) {
  for (const std::string& uuid : lease.devices) include(devices_.at(uuid), lease, *charge_at(lease, uuid), -1);
  change();
  for (const std::string& uuid : lease.devices) include(devices_.at(uuid), lease, *charge_at(lease, uuid), 1);
}

}  // namespace sublet::core
