// SPDX-License-Identifier: Apache-2.0
// The tick: what happened becomes a fact, the core decides, the store commits, and only then is anything acknowledged
// or acted on. The engine owns all state of the daemon and lives on one event-loop thread; every method belongs to it.
#pragma once

#include "base/clock.h"
#include "base/failpoints.h"
#include "core/explain.h"
#include "core/step.h"
#include "engine/driver_away.h"
#include "engine/event_log.h"
#include "engine/machine.h"
#include "engine/meter.h"
#include "engine/peer.h"
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
  std::string exit_dir;  // where keepers leave exit records
  std::string boot_id;
  std::string mode;                                // "system", "user" or "dir"
  std::string dir;                                 // of a private daemon, else ""
  std::string config_file;                         // that was read at the start, absolute; "": there is none
  std::string tcp;                                 // HOST:PORT where it serves too, else ""
  std::map<std::string, std::string> program_env;  // what programs need to see the simulated cards
  Failpoints* failpoints = nullptr;                // outlives the engine; null: none
  int leases_per_user = 2000;                      // that have not ended
  std::size_t portion = 256;                       // of a plan that grants to thousands: stored and told at a time
};

// A reply: HTTP status and body, as it is remembered.
struct Answered {
  int status = 200;
  std::string body;  // JSON
  // The commit to wait for before it is told; unset: all that was intended until then.
  std::optional<std::uint64_t> after = {};
};

// An answer to be remembered under an Idempotency-Key, completed when the answer is known.
struct Remember {
  std::uint32_t uid = 0;
  std::string key;  // "" = do not remember
  std::string fingerprint;
};

Warning store_warning(const std::string& problem, Time since);

class Engine {
 public:
  Engine(boost::asio::io_context& io, store::Store& store, Machine machine, Options options);
  ~Engine();

  // Opens the store, loads, adopts what lives, starts to watch the GPUs. An error means that the daemon must not run
  // (another daemon holds the store); an unreadable store is not such an error: then it runs and grants nothing.
  Status start();
  void stop();

  // --- requests: decided at once; whoever answers must first wait for durable() ---
  // `answer` makes the reply from the lease as it is after the decision; it is remembered if a key was given.
  using Answer = std::function<Answered(const core::Lease&)>;
  Result<Answered> request(const core::Fact& fact, const Remember& remember, const Answer& answer);
  // Commits that were intended so far; the answer to anything read now may leave once `durable` of it is true.
  std::uint64_t intended() const { return intended_; }
  std::uint64_t intended_of(LeaseId lease) const;  // the same, for what tells of this lease only
  bool is_durable(std::uint64_t sequence) const { return store_problem_.empty() && committed_ >= sequence; }
  boost::asio::awaitable<bool> durable(std::uint64_t sequence);

  // --- idempotency, see store::Store ---
  bool maybe_remembered(std::uint32_t uid, const std::string& key) const;
  void remembered(std::uint32_t uid, const std::string& key,
                  std::function<void(Result<std::optional<store::Remembered>>)> done);

  // Stores the answer to a call that changes nothing else in the store.
  void remember(const Remember& remember, const Answered& answer);

  // --- waiting ---
  void hold(LeaseId lease, SessionId session);    // the connection holds the lease until it is closed …
  void unhold(LeaseId lease, SessionId session);  // … or lets go
  // The connection showed the access token of this number: `revoked` is called once that is revoked, while it is open.
  void shows(SessionId session, std::uint64_t token, std::function<void()> revoked);
  void session_closed(SessionId session);
  void not_held(LeaseId lease);  // the call that submitted it is answered, and nobody waits
  // A timer that is cancelled whenever the lease has changed (and the change is durable), until unwatch().
  using Watchers = std::multimap<LeaseId, std::shared_ptr<boost::asio::steady_timer>>;
  Watchers::iterator watch(LeaseId lease);
  void unwatch(Watchers::iterator watcher);

  // What host memory takes of this lease's bytes; null: of anybody's. Reads a few small files.
  core::HostMemory host_memory(const core::Lease* lease = nullptr) const;

  // How far a program is that is being parked, or brought back; nothing while none is. Reads a few small files.
  struct Progress {
    core::Move move = core::Move::pause;
    Bytes moved, total;
    Bytes per_second;       // 0: not known
    Duration left{};        // until it is done; 0: any moment
    bool measured = false;  // else only predicted, from what it took before: nothing was seen to move yet
    bool late = false;      // it takes longer than it should; what was not seen to move is not told as moved
  };
  std::optional<Progress> progress(const core::Lease& lease) const;
  // Of parked programs, by lease: what of them was last seen to be on a swap device.
  const std::map<LeaseId, Bytes>& swapped() const { return swapped_; }

  // Programs that yield by themselves ask here for their orders, and answer them.
  Cooperation& cooperation() { return cooperation_; }
  const Cooperation& cooperation() const { return cooperation_; }
  // The link of a process to the lease, looked for anew if there was none: it may have been forked just now.
  const proc::Member* member_of(ProcessRef process, LeaseId lease);
  // Stores whether programs of that user's consumer may be parked although Sublet did not start them.
  Result<Answered> set_grant(const core::Grant& grant, const Remember& remember, Answered answer);

  // --- access tokens ---
  const std::map<std::uint64_t, store::AccessToken>& tokens() const { return tokens_; }
  // The token that this is the secret of ("sublet_3_…"), if it has not expired; null for anything else.
  const store::AccessToken* token_of(std::string_view text) const;
  // Stores the token under a number that was never given before, and the answer that is made of it. Tokens that have
  // expired go at this occasion.
  Result<Answered> add_token(store::AccessToken token, const Remember& remember,
                             const std::function<Answered(const store::AccessToken&)>& answer);
  Result<Answered> revoke_token(std::uint64_t number, const Remember& remember, Answered answer);

  // --- the event stream ---
  const EventLog& log() const { return log_; }
  // Returns when there are new durable events, a token was revoked, or at the deadline.
  boost::asio::awaitable<void> new_events(std::chrono::steady_clock::time_point deadline);

  // --- reading ---
  const core::State& state() const { return state_; }
  const core::Rules& rules() const { return options_.rules; }
  const Options& options() const { return options_; }
  Time now() const;
  Time started_at() const { return started_at_; }
  // Live, or ended a short while ago; older ones are in the store.
  const core::Lease* find(LeaseId id) const;
  // Runs `work` on the store's thread and what it returns on the loop.
  void read_store(std::function<std::function<void()>(store::Reader&)> work);
  std::vector<Warning> warnings();  // what is wrong now; remembers since when
  // "" while new leases can be given out and changes stored; else why not.
  const std::string& store_problem() const { return store_problem_; }
  const Probe& probe() const { return probe_; }
  const Actor& actor() const { return actor_; }
  const Meter& meter() const { return meter_; }

  const Programs& programs() const { return programs_; }

 private:
  void tick(const core::Fact& fact);
  std::uint64_t intend(core::Plan plan, Time now, std::optional<store::Remembered> remembered);
  void write(core::Plan plan, Time now, std::optional<store::Remembered> remembered);
  void tell_changes();
  void tell_opened(const std::optional<Warning>& was_down, Time now);
  void write_events(const std::vector<EventLog::Event>& events, Time now);
  struct AfterCommit;
  static AfterCommit what_follows(core::Plan& plan);
  void start(const AfterCommit& next);
  void reach(std::span<const std::string_view> transitions, std::string_view step) const;
  void committed(std::uint64_t sequence);
  void store_failed(Error error);
  void reconcile();
  void reopen_later();
  Status open_store();
  void adopt(Time now);
  void perform(const core::Action& action);
  bool lives(LeaseId lease) const;
  void park(const core::Park& order);
  Parker::Program program_of(LeaseId id) const;
  void touching(const core::LockIntent& fact, std::function<void(bool)> may);
  void may_lock(LeaseId lease, bool may);
  // Processes of a lease that are locked, until it is known whether they may be parked as they are.
  struct Weighing {
    Time since;
    std::vector<ProcessRef> processes;
    std::function<void(std::string)> say;
  };
  void weigh(LeaseId lease, Weighing weighing);
  void measure_weighed(Time began);
  void nothing_weighed(const std::string& problem);
  // A process, and the control group by which it can be kept from swap; "": none.
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
  void tell_to_go_on(const core::Unpark& order);
  void parked(LeaseId lease, core::PauseMethod method, const ParkOutcome& outcome);
  void pause_again(LeaseId lease);
  void unparked(LeaseId lease, const ParkOutcome& outcome);
  void withdraw_if_gone(LeaseId lease);
  std::vector<ProcessRef> tree_of(LeaseId lease);
  void begin_moving(LeaseId lease);
  void begin_copying(LeaseId lease);
  void watch_away();
  void watch_sizes();
  void watch_swap(const core::Lease& lease);
  bool any_moves() const;
  std::vector<Room> room_for(LeaseId lease) const;
  void not_killed(LeaseId lease, const std::string& why);
  void announce(LeaseId lease);
  void on_snapshot(gpu::GpuSnapshot raw, std::int64_t asked_ns);
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
  Status may_decide() const;
  std::optional<store::Remembered> remembered_answer(const Remember& remember, const Answered& answer, Time now) const;
  void write(std::string_view transition, store::Batch batch, const Remember& remember, const Answered& answer);

  // What is told and done once a plan is durable.
  struct AfterCommit {
    std::uint64_t sequence = 0;
    std::vector<LeaseId> changed = {};
    std::vector<LeaseId> ended = {};             // of those
    std::vector<std::string> done_records = {};  // of ended leases: files to remove
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
  Clock& clock_;  // this and what follows is the machine's
  Host& host_;
  Probe& probe_;
  Actor& actor_;
  Programs& programs_;
  Parker& parker_;
  Cooperation& cooperation_;
  const std::unique_ptr<Alarm> timer_{machine_.alarm()}, reopen_timer_{machine_.alarm()}, heartbeat_{machine_.alarm()},
      safe_mode_over_{machine_.alarm()};
  Time started_at_;
  core::State state_;

  std::uint64_t intended_ = 0;     // last number given out by the store
  std::uint64_t committed_ = 0;    // last one known durable
  std::uint64_t store_epoch_ = 0;  // grows with each open: late news of an earlier one is ignored
  std::string store_problem_;
  Time store_problem_since_;
  std::deque<AfterCommit> after_commit_;
  std::set<LeaseId> ends_in_doubt_;  // whose commits failed: kept or not, which the store tells when it is back
  std::deque<DurableWaiter> durable_waiters_;              // by sequence
  std::unordered_map<LeaseId, std::uint64_t> changed_in_;  // commit of its last change, if that is not durable yet
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
  Meter meter_;
  std::list<std::shared_ptr<boost::asio::steady_timer>> followers_;  // each waits for new events
  bool life_stored_ = false;
  bool told_start_ = false;

  std::map<std::string, Time> warned_since_;         // by code and text
  std::map<LeaseId, core::Unpark> unparks_waiting_;  // ordered while the parker was still busy with an earlier order
  std::map<LeaseId, std::function<void(bool)>> locks_waiting_;  // until it is stored whom the parker is to lock
  std::map<LeaseId, std::uint64_t> parking_;  // the number of its newest order, while its memory is kept from swap
  std::uint64_t last_park_ = 0;
  DriverAway driver_away_;
  std::uint64_t naming_ = 0;  // how often an actor was told of all who are to be kept from swap
  std::map<LeaseId, Weighing> weighing_;
  std::map<LeaseId, Time> copying_since_;     // the present move, where the driver parks: nothing is parked before that
  std::map<LeaseId, Bytes> resident_before_;  // the present move: what its program took of host memory
  std::map<LeaseId, Bytes> swapped_;
  std::set<std::pair<LeaseId, std::string>> over_;  // used more than they leased there, as of the last snapshot
  std::unordered_set<LeaseId> settling_;
  std::map<LeaseId, std::string> unkillable_;  // their programs should end, and do not by us: why; "": no proof
  std::unordered_map<LeaseId, core::Lease> recently_ended_;
  std::deque<LeaseId> recently_ended_order_;

  Time alive_at_;                // the loop ran then
  std::int64_t woke_at_ns_ = 0;  // of CLOCK_MONOTONIC, when the machine was last found to have slept
  Time armed_for_ = Time::never();
  Time busy_until_;
};

}  // namespace sublet::engine
