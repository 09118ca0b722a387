// SPDX-License-Identifier: Apache-2.0
// The engine: turns events into facts, lets the core decide, and commits the plan. Only durable plans are acknowledged
// or carried out. The engine owns the daemon's state. It lives on one event-loop thread, on which every method is
// called.
#pragma once

#include "base/clock.h"
#include "base/failpoints.h"
#include "core/step.h"
#include "engine/activity.h"
#include "engine/capability.h"
#include "engine/counters.h"
#include "engine/event_log.h"
#include "engine/machine.h"
#include "engine/move_progress.h"
#include "engine/peer.h"
#include "engine/tenants.h"
#include "explain/explain.h"
#include "pause/driver_away.h"
#include "store/store.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace sublet::engine {

struct Options {
  core::Rules rules;
  std::string exit_dir;  // directory of the users' directories (user_directory.h), with exit records and answers
  std::string boot_id;
  std::string mode;                                // "system", "user" or "dir"
  std::string dir;                                 // directory of a private daemon, else ""
  std::string config_file;                         // absolute path of the file that was read at the start; "": none
  std::string tcp;                                 // HOST:PORT of the TCP listener, else ""
  std::string gpu_names = "uuid";                  // gpu.names
  std::map<std::string, std::string> program_env;  // environment that programs need to see the simulated cards
  Failpoints* failpoints = nullptr;                // outlives the engine; null: none
  int leases_per_user = 2000;                      // limit of leases that have not ended
  TenantRules tenants;                             // tenants that users may charge
  std::vector<std::string> agents{};               // users, uids and @groups that ask for leases of others
};

// A reply: HTTP status and body, in the form in which it is remembered.
struct Answered {
  int status = 200;
  std::string body;  // JSON
  // Sequence that must be durable before the answer is sent; unset: all that was intended until then.
  std::optional<std::uint64_t> after = {};
};

// The Idempotency-Key under which an answer is remembered.
struct Remember {
  std::uint32_t uid = 0;
  std::string key;  // "": the answer is not remembered
  std::string fingerprint;
};

Warning store_warning(const std::string& problem, Time since);

class Engine {
 public:
  Engine(boost::asio::io_context& io, store::Store& store, Machine machine, Options options);
  ~Engine();

  // Opens the store, loads it, adopts living programs, and starts to watch the devices. An error means that the daemon
  // must not run, because another daemon holds the store. With an unreadable store the daemon runs, but grants nothing.
  Status start();
  void stop();

  // One request, reading or alarm. While it lives, decisions, rows of capabilities and the answer gather, and are one
  // batch; an answer to a call ends the batch. Transactions nest, and the outermost one counts. On the loop thread, for
  // as long as nothing is waited for.
  class Transaction {
   public:
    explicit Transaction(Engine& engine);
    ~Transaction();
    Transaction(const Transaction&) = delete;
    Transaction& operator=(const Transaction&) = delete;

   private:
    Engine& engine_;
  };

  // --- requests: decided at once; the caller must wait for durable() before it answers ---
  // Gives a request to the core. `answer` makes the reply from the lease after the decision. The reply is remembered if
  // there is a key.
  using Answer = std::function<Answered(const core::Lease&)>;
  Result<Answered> request(const core::Fact& fact, const Remember& remember, const Answer& answer);
  // The number of the batch with all that was decided so far. An answer from data that was read now may be sent when
  // `durable` is true for it.
  std::uint64_t intended() const { return intended_ + (pending_.stores ? 1 : 0); }
  std::uint64_t intended_of(LeaseId lease) const;  // the same, for an answer about this lease only
  bool is_durable(std::uint64_t sequence) const { return store_problem_.empty() && committed_ >= sequence; }
  boost::asio::awaitable<bool> durable(std::uint64_t sequence);

  // --- idempotency, see store::Store ---
  bool maybe_remembered(std::uint32_t uid, const std::string& key) const;
  void remembered(std::uint32_t uid, const std::string& key,
                  std::function<void(Result<std::optional<store::Remembered>>)> done);

  // Stores the answer to a call that changes nothing else in the store.
  void remember(const Remember& remember, const Answered& answer);

  // --- waiting ---
  // The connection of process `pid` (0: unknown) holds the lease until it closes or calls unhold().
  void hold(LeaseId lease, SessionId session, std::int32_t pid = 0);
  void unhold(LeaseId lease, SessionId session);  // ends hold()
  // The connection showed the access token of this number. `revoked` is called if the token is revoked while the
  // connection is open.
  void shows(SessionId session, std::uint64_t token, std::function<void()> revoked);
  void session_closed(SessionId session);
  // Looks at the control groups that own leases. Leases end whose group is empty or gone.
  void watch_groups();
  void not_held(LeaseId lease);  // the call that submitted the lease was answered, and no connection waits
  // Returns once a snapshot is decided on that was requested after the call, or at most 10 ms before it. Returns too if
  // the devices cannot be read, or a snapshot is late. One snapshot serves all callers.
  boost::asio::awaitable<void> look();
  // Returns a timer that is cancelled at each durable change of the lease, until unwatch().
  using Watchers = std::multimap<LeaseId, std::shared_ptr<boost::asio::steady_timer>>;
  Watchers::iterator watch(LeaseId lease);
  void unwatch(Watchers::iterator watcher);

  // Returns the host memory that is left for the bytes of this lease; null: of any lease. Reads a few small files.
  core::HostMemory host_memory(const core::Lease* lease = nullptr) const;

  // Returns the progress of a pause or resume; nothing if there is none. Reads a few small files.
  using Progress = MoveProgress;
  std::optional<Progress> progress(const core::Lease& lease) const;
  // Bytes of parked programs on a swap device, as last seen, by lease.
  const std::map<LeaseId, Bytes>& swapped() const { return swapped_; }
  struct Stopped {
    Time since;  // first scan that saw it
    bool by_debugger = false;
  };
  // Programs that a signal or a debugger stopped, as last seen, by lease.
  const std::map<LeaseId, Stopped>& stopped() const { return stopped_; }

  // Gives cooperative programs their orders, and takes their answers.
  pause::Cooperation& cooperation() { return cooperation_; }
  const pause::Cooperation& cooperation() const { return cooperation_; }
  // Returns the link of a process to the lease. Scans again if there is none, because the process may be new.
  const proc::Member* member_of(ProcessRef process, LeaseId lease);
  // Stores a pause grant: whether programs of that user's consumer may be parked although Sublet did not start them.
  Result<Answered> set_grant(const core::Grant& grant, const Remember& remember, Answered answer);

  // An error while no change can be stored.
  Status may_decide() const;

  // When the program of an ended lease was asked to end. Time::never(): its signal still waits for the disk.
  Time asked_to_end_at(const core::Lease& lease) const;
  // Whether the daemon itself sent SIGTERM to the program, instead of its keeper.
  bool has_signalled(LeaseId lease) const;

  // --- capabilities ---
  // Adds a capability, which must outlive the engine's run. Call it before start().
  void add(Capability& capability);
  // Adds the records of a capability, which must outlive the engine's run.
  void add(RowSource& source) { row_sources_.push_back(&source); }
  // Gives a capability's fact to the core. The outcome is that of the decision, which is not durable yet. A fact that
  // ends a program is taken without a usable store too: the program gets its signals, and the end is stored later.
  Result<LeaseId> decide(const core::Fact& fact);
  // Why the end of this lease is not acknowledged: its program got a signal, and the store cannot be used.
  Error not_stored(LeaseId lease) const;
  // The end of its program was decided and is not stored yet. Its signals do not wait long for that.
  bool has_unstored_end(LeaseId lease) const { return unstored_ends_.contains(lease); }
  // Stores the changed rows of all capabilities with the answer to the call that changed them. `answer` makes it once
  // the capabilities have heard of what was decided for the call.
  Result<Answered> store_rows(std::string_view transition, const Remember& remember,
                              const std::function<Answered()>& answer);
  void rows_changed();           // records have changed: they are stored with the present transaction, or soon
  void tell(Rows::Event event);  // the same for an event
  void call_capabilities();      // calls Capability::due soon, as each transaction does
  // The field of a capability in the API's form of a lease, as JSON; "null": no capability has it.
  std::string lease_field(std::string_view name, const core::Lease& lease) const;
  std::string device_field(std::string_view name, const std::string& uuid) const;  // the same for a device
  void take_snapshot() { probe_.take_now(); }  // see Capability::measured
  // The condition of the device as of the last snapshot that named it; null: none has.
  const gpu::Facts* condition(const std::string& uuid) const;

  // --- the work of leases' programs ---
  // As of the last reading and the last call of its owner. Unknown while its devices cannot be read.
  LeaseActivity activity(LeaseId lease) const;
  void touch(LeaseId lease);  // its owner made a call that counts as activity

  // --- access tokens ---
  const std::map<std::uint64_t, store::AccessToken>& tokens() const { return tokens_; }
  // Returns the token with this secret ("sublet_3_…"); null if there is none or it has expired.
  const store::AccessToken* token_of(std::string_view text) const;
  // Stores the token under a new number, with the answer that `answer` makes from it. Removes expired tokens.
  Result<Answered> add_token(store::AccessToken token, const Remember& remember,
                             const std::function<Answered(const store::AccessToken&)>& answer);
  Result<Answered> revoke_token(std::uint64_t number, const Remember& remember, Answered answer);

  // --- the event stream ---
  const EventLog& log() const { return log_; }
  // The timer is cancelled at new durable events, when a token was revoked, and by wake_followers(), until unfollow().
  using Followers = std::list<std::shared_ptr<boost::asio::steady_timer>>;
  Followers::iterator follow(std::shared_ptr<boost::asio::steady_timer> timer);
  void unfollow(Followers::iterator follower) { followers_.erase(follower); }
  void wake_followers();
  // Returns at new durable events, when a token was revoked, or at the deadline.
  boost::asio::awaitable<void> new_events(std::chrono::steady_clock::time_point deadline);

  // --- reading ---
  const core::State& state() const { return state_; }
  const core::Rules& rules() const { return options_.rules; }
  const Options& options() const { return options_; }
  Time now() const;
  Time started_at() const { return started_at_; }
  // Since when the daemon has run without a gap in its clock: its start, or the end of the last clock gap.
  Time undisturbed_since() const { return undisturbed_since_; }
  // Time since the start that counts for nobody: the clock gaps.
  Duration lost_time() const { return lost_time_; }
  // The part in which the machine slept, with all programs.
  Duration time_asleep() const { return time_asleep_; }
  // Returns a living lease or one that ended recently. The store has older leases.
  const core::Lease* find(LeaseId id) const;
  // Runs `work` on the store's thread, and then its result on the loop.
  void read_store(std::function<std::function<void()>(store::Reader&)> work);
  std::vector<Warning> warnings();  // the current warnings; remembers their start
  // "" while leases can be granted and changes stored; else the reason.
  const std::string& store_problem() const { return store_problem_; }
  const machine::Probe& probe() const { return probe_; }
  const machine::Actor& actor() const { return actor_; }
  const Counters& counters() const { return counters_; }

  const machine::Programs& programs() const { return programs_; }
  // Limits the processor time of a lease's program, on behalf of a capability (programs.h).
  void limit_cpu(LeaseId lease, int percent, std::function<void(const machine::CpuLimited&)> done) {
    programs_.limit_cpu(lease, percent, std::move(done));
  }

 private:
  void tick(const core::Fact& fact);
  void intend(core::Plan plan, Time now);
  std::uint64_t answer_with(const Remember& remember, const Answered& answer);
  std::uint64_t hand_over();
  void tell_capabilities();
  void tell_changes();
  void tell_opened(const std::optional<Warning>& was_down, Time now);
  std::uint64_t hand_to_store(store::Batch batch);
  void commit_came();
  void watch_commits(Duration later);
  std::optional<Warning> slow_store_warning() const;
  void await_first_reading();
  std::optional<Warning> unread_warning() const;
  void note_reading(const std::string& problem);
  void write_events(const std::vector<EventLog::Event>& events, Time now);
  struct AfterCommit;
  static void what_follows(core::Plan& plan, AfterCommit& next);
  void add_plan(core::Plan plan, store::Batch& batch, std::vector<EventLog::Event>& events);
  void write(store::Batch batch, std::vector<EventLog::Event> events, Rows rows, const AfterCommit& next);
  void start(const AfterCommit& next);
  void reach(std::span<const std::string_view> transitions, std::string_view step) const;
  void committed(std::uint64_t sequence);
  void store_failed(Error error);
  void reconcile();
  void reopen_later();
  Status open_store();
  void adopt(Time now);
  void perform(const core::Action& action);
  core::ProgramEnded with_time(core::ProgramEnded ended) const;
  bool lives(LeaseId lease) const;
  void park(const core::Park& order);
  pause::Parker::Program program_of(LeaseId id) const;
  void touching(const core::LockIntent& fact, std::function<void(bool)> may);
  void may_lock(LeaseId lease, bool may);
  // The end of a program that is not stored yet.
  struct UnstoredEnd {
    core::Fact fact;  // decided again when the store is back
    std::uint32_t asked_by = 0;
    std::uint64_t sequence = UINT64_MAX;  // the batch that stores it; the largest: none is on its way
    int sent = 0;                         // the last signal; 0: none
    int signal = 0;                       // the next one
    Time signal_at;                       // when that is sent, stored or not; never: all were sent
    Time kill_at;                         // when the grace is over
  };
  Status may_take(const core::Fact& fact) const;
  bool ends_program(const core::Fact& fact) const;
  std::map<LeaseId, UnstoredEnd> kills_in(const core::Plan& plan, Time now) const;
  std::optional<UnstoredEnd> end_in(const core::Fact& fact, const core::Plan& plan, Time now) const;
  void await_end(LeaseId lease, std::optional<UnstoredEnd> end);
  Result<LeaseId> decide_end(const core::Fact& fact, const Error& refusal);
  void send_unstored_signals();
  bool was_sent(const core::SignalProgram& order) const;
  void end_is_stored(std::uint64_t sequence);
  void ends_were_not_stored();
  void decide_ends_again(Time now);
  // Locked processes of a lease whose bytes are being measured, until the engine decides whether they may be parked.
  struct Weighing {
    Time since;
    std::vector<ProcessRef> processes;
    std::function<void(std::string)> say;
  };
  void weigh(LeaseId lease, Weighing weighing);
  void measure_weighed(Time began);
  std::optional<core::Parked> refusal(LeaseId id, const std::string& not_kept);
  void fail_measurements(const std::string& problem);
  // A process, and the control group that could be kept from swap; "": none.
  struct MaySwap {
    ProcessRef process;
    std::string group;
  };
  void keep_from_swap(LeaseId lease, const std::vector<ProcessRef>& processes, std::function<void(std::string)> done);
  void keep_next_from_swap(LeaseId lease, std::vector<MaySwap> left, std::function<void(std::string)> done);
  std::string who_may_swap(const std::vector<ProcessRef>& processes) const;
  void let_swap(LeaseId lease);
  void keep_all_from_swap();
  std::vector<ProcessRef> charged_of(const core::Lease& lease) const;
  bool is_asked(LeaseId lease) const;
  void park_by_driver(const core::Park& order);
  void ask_to_yield(const core::Park& order);
  void unpark(const core::Unpark& order);
  void send_resume_order(const core::Unpark& order);
  void parked(LeaseId lease, core::PauseMethod method, const pause::ParkOutcome& outcome);
  void unparked(LeaseId lease, const pause::ParkOutcome& outcome);
  void withdraw_if_gone(LeaseId lease);
  std::vector<ProcessRef> tree_of(LeaseId lease);
  void begin_moving(LeaseId lease);
  void begin_copying(LeaseId lease);
  void watch_away();
  void watch_sizes();
  void watch_swap(const core::Lease& lease);
  void watch_stopped();
  bool any_moves() const;
  std::vector<pause::Room> room_for(LeaseId lease) const;
  void not_killed(LeaseId lease, const std::string& why);
  void announce(LeaseId lease);
  void on_snapshot(gpu::GpuSnapshot raw, std::int64_t asked_ns);
  void scan_for(const gpu::GpuSnapshot& snapshot);
  core::DeviceReading reading(const gpu::GpuDevice& device);
  void follow_changes(const core::Plan& plan);
  void keep_ended(const core::Lease& lease);
  void forget_holders(LeaseId lease);
  void arm(Time wake_at);
  Time notice();
  void fell_asleep(Duration asleep, Time now);
  void beat();
  void watch_safe_mode();
  void pace_probe(Time now);
  store::Events events();
  std::vector<EventLog::Event> add_rows(Rows rows, store::Batch& batch);
  void run_capabilities();
  std::optional<store::Remembered> remembered_answer(const Remember& remember, const Answered& answer, Time now) const;
  void write(std::string_view transition, store::Batch batch, const Remember& remember, const Answered& answer);

  // The effects of a durable plan.
  struct AfterCommit {
    std::uint64_t sequence = 0;
    std::vector<LeaseId> changed = {};
    std::vector<LeaseId> ended = {};             // the ended leases of `changed`
    std::vector<std::string> done_records = {};  // exit records of ended leases, to be removed
    std::vector<core::Action> actions = {};
    std::vector<std::string_view> transitions = {};
    bool nothing() const { return changed.empty() && actions.empty() && transitions.empty(); }
  };
  struct DurableWaiter {
    std::uint64_t sequence;
    std::function<void(bool)> resume;
  };

  boost::asio::io_context& io_;
  store::Store& store_;
  Options options_;
  const Machine machine_;
  Clock& clock_;  // clock_ and the references below belong to machine_
  machine::Host& host_;
  machine::Probe& probe_;
  machine::Actor& actor_;
  machine::Programs& programs_;
  pause::Parker& parker_;
  pause::Cooperation& cooperation_;
  const std::unique_ptr<machine::Alarm> timer_{machine_.alarm()}, reopen_timer_{machine_.alarm()},
      heartbeat_{machine_.alarm()}, safe_mode_over_{machine_.alarm()}, capability_alarm_{machine_.alarm()},
      signals_alarm_{machine_.alarm()}, commit_alarm_{machine_.alarm()}, first_reading_alarm_{machine_.alarm()};
  Time started_at_;
  Time earlier_until_;  // the last stored time of the daemon before
  Time undisturbed_since_;
  Duration lost_time_{}, time_asleep_{};
  core::State state_;

  std::uint64_t intended_ = 0;     // last number given by the store
  std::uint64_t committed_ = 0;    // last number known to be durable
  std::uint64_t store_epoch_ = 0;  // grows with each open, so that late reports of an earlier one are ignored
  Time store_waits_since_;         // since when nothing became durable, while a batch waits
  bool store_is_slow_ = false;     // that was told
  bool watches_commits_ = false;   // `commit_alarm_` is set
  bool has_read_ = false;          // a reading of the cards was usable
  std::string unread_;             // why the newest reading was not usable; "": it was
  std::string store_problem_;
  Time store_problem_since_;
  // The part of the present transaction that is not handed to the store yet.
  struct Pending {
    std::deque<core::Plan> plans = {};
    std::size_t told = 0;  // how many of them the capabilities have heard of
    std::optional<store::Remembered> remembered = {};
    std::vector<Rows::Event> events = {};
    std::string_view transition = {};  // of rows that a call changed
    Time now = {};                     // of the newest plan
    bool stores = false;               // there is something to store
  };
  Pending pending_;
  int transactions_ = 0;  // that nest now
  std::deque<AfterCommit> after_commit_;
  std::map<LeaseId, UnstoredEnd> unstored_ends_;
  struct Asked {
    bool from_here = false;  // by a signal of the daemon, so that its keeper sends no second one
    Time at;
  };
  std::map<LeaseId, Asked> asked_to_end_;  // leases whose program was asked to end
  std::set<LeaseId> ends_in_doubt_;        // leases whose end may or may not be stored; known when the store is back
  std::deque<DurableWaiter> durable_waiters_;              // by sequence
  std::unordered_map<LeaseId, std::uint64_t> changed_in_;  // sequence of a lease's last change, while it is not durable
  bool boot_id_stored_ = false;
  bool stopping_ = false;

  std::unordered_map<LeaseId, std::unordered_set<SessionId>> holders_;
  std::unordered_map<SessionId, std::unordered_set<LeaseId>> held_by_;
  Watchers watchers_;

  struct Bearer {
    std::set<std::uint64_t> tokens;
    std::function<void()> revoked;
  };
  std::map<std::uint64_t, store::AccessToken> tokens_;
  std::unordered_map<SessionId, Bearer> bearers_;
  std::uint64_t last_token_ = 0;
  EventLog log_;
  Counters counters_;
  Activities activities_;
  struct Look {
    std::int64_t since_ns;  // CLOCK_MONOTONIC
    std::shared_ptr<boost::asio::steady_timer> done;
  };
  void end_looks(std::int64_t asked_ns);  // of callers that a snapshot requested at that time answers
  std::list<Look> looks_;                 // callers of look(), oldest first
  std::map<std::string, gpu::Facts> conditions_;  // by uuid
  std::set<ProcessRef> scanned_for_;      // the processes of the snapshot of the last scan
  Time scanned_at_;
  std::int64_t looked_ns_ = 0;  // CLOCK_MONOTONIC when the last usable snapshot was requested
  Followers followers_;         // timers of the readers of the event stream, and of others that wait for events
  bool life_stored_ = false;
  bool told_start_ = false;

  std::map<std::string, Time> warned_since_;  // by code and text
  // Resume orders that wait for the parker to finish an earlier order.
  std::map<LeaseId, core::Unpark> unparks_waiting_;
  std::map<LeaseId, std::function<void(bool)>> locks_waiting_;  // answers to the parker that wait for a commit
  std::map<LeaseId, std::uint64_t> parking_;  // number of the newest order to park, while memory is kept from swap
  std::uint64_t last_park_ = 0;
  pause::DriverAway driver_away_;
  std::uint64_t naming_ = 0;  // how often keep_all_from_swap() was called
  std::map<LeaseId, Weighing> weighing_;
  std::map<LeaseId, Time> copying_since_;     // start of copying in the current move by the driver
  std::map<LeaseId, Bytes> resident_before_;  // host memory of the program at the start of the current move
  std::map<LeaseId, Bytes> swapped_;
  std::map<LeaseId, Stopped> stopped_;
  // Lease and device with more bytes in use than leased, as of the last snapshot.
  std::set<std::pair<LeaseId, std::string>> over_;
  std::unordered_set<LeaseId> settling_;
  // Reason why a program that should end cannot be ended; "": no proof of the process.
  std::map<LeaseId, std::string> unkillable_;
  std::unordered_map<LeaseId, core::Lease> recently_ended_;
  std::deque<LeaseId> recently_ended_order_;

  std::vector<Capability*> capabilities_;
  std::vector<RowSource*> row_sources_;
  bool capabilities_called_ = false;  // their next call is posted

  Time alive_at_;                // last time at which the loop ran
  std::int64_t woke_at_ns_ = 0;  // CLOCK_MONOTONIC in ns when a sleep of the machine was last noticed
  Time armed_for_ = Time::never();
  Time busy_until_;
};

}  // namespace sublet::engine
