// SPDX-License-Identifier: Apache-2.0
// The engine: turns events into facts, lets the core decide, and gathers what was decided into transactions. Its parts
// commit them, observe the machine, carry out orders, and keep connections and capabilities. It owns the daemon's
// state, and lives on one event-loop thread, on which every method is called.
#pragma once

#include "core/step.h"
#include "engine/access.h"
#include "engine/capabilities.h"
#include "engine/commits.h"
#include "engine/counters.h"
#include "engine/executor.h"
#include "engine/loop_clock.h"
#include "engine/observer.h"
#include "engine/pending.h"
#include "explain/explain.h"

#include <set>

namespace sublet::engine {

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

  // --- requests: decided at once; the caller must wait for Commits::durable() before it answers ---
  // Gives a request to the core. `answer` makes the reply from the lease after the decision. The reply is remembered if
  // there is a key.
  using Answer = std::function<Answered(const core::Lease&)>;
  Result<Answered> request(const core::Fact& fact, const Remember& remember, const Answer& answer);
  // Stores a pause grant: whether programs of that user's consumer may be parked although Sublet did not start them.
  Result<Answered> set_grant(const core::Grant& grant, const Remember& remember, Answered answer);
  // Stores the changed rows of all capabilities with the answer to the call that changed them. `answer` makes it once
  // the capabilities have heard of what was decided for the call.
  Result<Answered> store_rows(std::string_view transition, const Remember& remember,
                              const std::function<Answered()>& answer);
  // Stores the answer to a call that changes nothing else in the store.
  void remember(const Remember& remember, const Answered& answer);
  // The number of the batch with all that was decided so far. An answer from data that was read now may be sent when
  // this batch is durable.
  std::uint64_t intended() const { return commits_.last() + (pending_.stores ? 1 : 0); }
  Status may_decide() const { return commits_.may_decide(); }  // an error while no change can be stored

  // --- capabilities ---
  // Gives a capability's fact to the core. The outcome is that of the decision, which is not durable yet. A fact that
  // ends a program is taken without a usable store too: the program gets its signals, and the end is stored later.
  Result<LeaseId> decide(const core::Fact& fact);
  void rows_changed();           // records have changed: they are stored with the present transaction, or soon
  void tell(Rows::Event event);  // the same for an event
  void call_capabilities() { capabilities_.call_soon(); }

  // --- reading ---
  const core::State& state() const { return state_; }
  const core::Rules& rules() const { return options_.rules; }
  const Options& options() const { return options_; }
  Time now() const { return clock_.now(); }
  // Places and expected starts, valid until the next decision. Their projection is made once for each state.
  explain::Estimates estimates() const { return {state_, options_.rules, now(), &projections_}; }
  // Returns a living lease or one that ended recently. The store has older leases.
  const core::Lease* find(LeaseId id) const;
  std::vector<Warning> warnings();  // the current warnings; remembers their start
  const std::string& store_problem() const { return commits_.problem(); }
  const Machine& machine() const { return machine_; }
  const machine::Programs& programs() const { return *machine_.programs; }
  const LoopClock& clock() const { return clock_; }
  const Counters& counters() const { return counters_; }

  // --- its parts ---
  Commits& commits() { return commits_; }
  const Commits& commits() const { return commits_; }
  Executor& executor() { return executor_; }
  const Executor& executor() const { return executor_; }
  Observer& observer() { return observer_; }
  const Observer& observer() const { return observer_; }
  Access& access() { return access_; }
  Capabilities& capabilities() { return capabilities_; }
  const Capabilities& capabilities() const { return capabilities_; }

  // --- for its parts ---
  // Notices a clock gap, and moves all deadlines by it. Returns the time to decide at. Call it before each decision:
  // the daemon may stand still in the middle of a transaction too.
  Time notice();
  void tick(const core::Fact& fact);  // a fact that nobody waits for
  // Decides a fact. `look` sees the plan before it is taken, and may add actions.
  Result<LeaseId> take(const core::Fact& fact, const std::function<void(core::Plan&)>& look = {});
  void tell_plans();    // tells the capabilities of the plans that they have not heard of
  void tell_changes();  // makes events of the changes of devices and warnings since the last call
  void went_over(const std::string& device) { counters_.went_over(device); }
  // Stores a batch that is no decision, with the answer to the call that made it.
  void write(std::string_view transition, store::Batch batch, const Remember& remember, const Answered& answer);

 private:
  void beat();
  void arm(Time wake_at);
  void intend(core::Plan plan, Time now);
  void follow_changes(const core::Plan& plan);
  std::uint64_t answer_with(const Remember& remember, const Answered& answer);
  std::uint64_t hand_over();
  void add_plan(core::Plan plan, store::Batch& batch, std::vector<EventLog::Event>& events);
  void start(const AfterCommit& next);
  Status open_store();
  void reopen();
  void adopt();
  core::ProgramEnded with_time(core::ProgramEnded ended) const;
  void watch_safe_mode();

  Options options_;
  const Machine machine_;
  LoopClock clock_;
  core::State state_;
  mutable explain::Projections projections_;
  Counters counters_;
  Commits commits_;
  Executor executor_;
  Observer observer_;
  Access access_;
  Capabilities capabilities_;
  const std::unique_ptr<machine::Alarm> timer_, heartbeat_, safe_mode_alarm_;
  Pending pending_;
  int transactions_ = 0;  // that nest now
  Time armed_for_ = Time::never();
  bool stopping_ = false, told_start_ = false;
  std::set<LeaseId> ends_in_doubt_;  // leases whose end may or may not be stored; known when the store is back
  RecentlyEnded recently_ended_;
  std::map<std::string, Time> warned_since_;  // by code and text
};

}  // namespace sublet::engine
