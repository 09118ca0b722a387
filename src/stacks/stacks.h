// SPDX-License-Identifier: Apache-2.0
// The capability stacks: Docker Compose projects that are started for a lease and brought down with it. Belongs to the
// loop thread.
#pragma once

#include "compose/worker.h"
#include "engine/capability.h"
#include "engine/engine.h"
#include "engine/reclaimable.h"
#include "engine/records.h"
#include "stacks/readiness.h"
#include "stacks/size.h"
#include "stacks/stack.h"
#include "stacks/steps.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace sublet::stacks {

struct Options {
  compose::Sources sources;                             // `adopted` is ignored: the store has the adopted stacks
  Label label;                                          // stacks.label, stacks.label_value
  Duration command_timeout = std::chrono::minutes(10);  // of one call of the Compose program
  Duration ready_timeout = std::chrono::minutes(15);
  Duration ttl = std::chrono::minutes(30);  // of an acquisition that names none
  std::string credit{};                     // folder of the socket for questions of the interposer
};

// A caller's wish to acquire a stack.
struct Wish {
  std::uint32_t uid = 0;
  std::string user;
  std::string tenant;        // account that the lease is charged to
  std::string owner{};       // label; may be ""
  std::string token_hash{};  // of the token that the caller will get
  std::optional<Duration> ttl{};
  int priority = 0;
};

// A stack with all that is known about it.
struct Entry {
  Stack stack;
  std::optional<compose::Description> found{};  // by the last look; unset: it was not found
  std::optional<compose::Observation> seen{};   // its containers, by the last report of the engine
  Readiness readiness{};                        // by `seen`
  std::string trouble{};                        // why the last call of the worker did nothing; "": none

  std::string last_lines{};             // of its containers, read before it was brought down after a failure
  std::uint32_t last_uid = 0;           // the user whose use failed; valid with `last_lines`
  std::optional<Health> last_health{};  // what its containers showed when its use failed by that
  std::string last_state{};             // the engine's State of the container with the label then; "": unknown

  // Whether a container runs.
  bool runs() const;
  // It has failed, and its last lines are still to be read.
  bool reads_lines() const { return stack.phase == Phase::stopping && stack.will_fail && !lines_done; }
  // The word of the API: the phase, or "up" for containers that were started by others.
  std::string_view state() const;

  // --- private to Stacks ---
  bool lines_done = false;                       // `last_lines` is complete
  Time lines_by{};                               // when the engine is no longer waited for; Time{}: it was not asked
  bool fresh = false;                            // `seen` is from after the end of `up`
  std::uint64_t call = 0;                        // number of the call that the worker works on; 0: none
  Time retry_at{};                               // not before this time
  std::string resolved{};                        // as given to `up`; "": unknown after a restart of the daemon
  std::vector<std::string> devices{};            // of its lease
  std::map<std::string, std::int64_t> booked{};  // main process of each container that is booked to the lease
  std::pair<Phase, std::string> told{};          // phase and text of its last event
};

class Stacks final : public engine::Capability {
 public:
  // Keeps references. Call Capabilities::add() with it.
  Stacks(engine::Engine& engine, compose::Worker& worker, Options options);

  // --- reading ---
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }
  const Entry* find(std::string_view name) const;
  const Entry* find(LeaseId lease) const;
  // Since when its lease stands still; unset: it does not.
  std::optional<Time> parked_since(const Stack& stack) const;
  const Options& options() const { return options_; }
  const std::optional<compose::Engine>& container_engine() const { return container_engine_; }
  compose::Worker& worker() { return worker_; }
  bool has_looked() const { return looked_; }  // stacks were looked for at least once
  // Expires with this object, for callers that may outlive it.
  std::weak_ptr<const bool> lives() const { return lives_; }
  // The rule of its readiness. An error: the stack must not be started.
  Result<Rule> rule(const Entry& entry) const;
  // Whether the label is on no container of the file, or on several; unset: on one.
  std::optional<Health> label_fault(const Entry& entry) const;
  // The size of its next lease.
  Result<Size> size(const Entry& entry) const;
  // Good once stacks were looked for; until then, none is known.
  Status known() const;
  // Why no stack can be started now; good while one can.
  Status available() const;
  // Looks for stacks again. `done` is called when that is done, and after `at_most` at the latest.
  // `reading`: after a new reading of the devices, too, or a second.
  void refresh(Duration at_most, std::function<void()> done, bool reading = false);

  // `done` is called once stacks were looked for at least once, and after `at_most` at the latest.
  void when_known(Duration at_most, std::function<void()> done);

  // --- requests; the caller stores the rows (Engine::store_rows) ---
  // Adds a stack that an administrator names. `done` gets an error for a stack that cannot be used.
  void adopt(const compose::Adopted& wanted, std::function<void(Status)> done);
  Status set(std::string_view name, const Settings& changes);  // replaces all settings
  Status remove(std::string_view name);                        // an adopted stack that is down
  // The request for the lease of an acquisition. InUse: somebody else has the stack, or it is being brought down.
  // InUse, too: its Compose project has containers of another directory.
  Result<core::Submit> request(std::string_view name, const Wish& wish) const;
  // The lease was made. Call it before the lease is stored.
  void submitted(std::string_view name, const Wish& wish, const core::Lease& lease);
  // Takes the offer of its lease, for the acquirer who has come back. Nothing happens if there is no offer.
  Status claim(std::string_view name);
  // Acquires a released stack, which stays up. It is ready at once, or once its lease is resumed and it is healthy.
  // InUse: it was not ready any more, and is being brought down.
  Status take_over(std::string_view name, const Wish& wish);
  // Starts its time to live again, and resumes its lease if it is paused.
  Status renew(std::string_view name, std::optional<Duration> ttl);
  // Replaces the containers of an acquired stack, by its Compose file as it is now.
  Status restart(std::string_view name);
  // Pulls the images of a stack. Nothing is started.
  void pull(std::string_view name, std::function<void(Status)> done);
  // Gives the stack back. One that stays up has a spot lease. `revoke`: an admin takes it.
  Status release(std::string_view name, After after, bool revoke = false);
  // Whether the program of its lease is paused, or on its way there or back.
  bool is_away(const Entry& entry) const;
  // Whether the process is in a container that may be one of a stack with the interposer, and is not booked yet.
  bool awaits(std::int32_t pid) const;
  // Whether a released stack would be ready at once for its next user.
  bool is_usable(const Entry& entry) const;

  // --- Capability ---
  void loaded(const store::Loaded& rows, Time now) override;
  void happened(const core::Plan& plan, Time now) override;
  void measured(Time) override;
  Time due(Time now) override;
  std::vector<engine::Warning> warnings(Time now) const override;

 private:
  struct Asked {
    Time until;
    std::function<void()> done;
    std::optional<Time> read_by{};  // set while a new reading of the devices is waited for: until then at the latest
    bool looked = false;            // stacks were looked for
    bool until_known = false;       // it waits for the first look that comes to an end
  };

  Entry* mutable_find(std::string_view name);
  Result<Entry*> of_use(std::string_view name);
  void changed(Entry& entry);
  void describe();
  Time answer_asked(Time now);
  void described(Result<std::vector<compose::Description>> result);
  compose::Sources sources() const;
  void watch(bool again);
  void look_at_all();
  void sleep_through(Duration asleep);
  void observed(const compose::Observation& seen);
  void engine_changed(const compose::Engine& now);
  Status check_containers(const Entry& entry, const std::string& directory) const;
  bool stands_still(const Entry& entry, Time now) const;
  void judge(Entry& entry, Time now);
  void note_last(Entry& entry);
  void make_spot(Entry& entry);
  std::string why_of_no_use(const Entry& entry) const;
  Status resume(const Entry& entry);
  void declare(Entry& entry, Time now);
  void forget_waiter(LeaseId lease);
  Time drive(Entry& entry, Time now);
  Time create(Entry& entry, Time now);
  Time bring_down(Entry& entry, Time now);
  bool read_last_lines(Entry& entry, Time now);
  bool is_settled(const Entry& entry) const;
  static Time next_try(const Entry& entry, Time now);
  bool may_call(Entry& entry, Time now);
  bool others_leave(const Entry& entry) const;
  compose::Start start_of(const Entry& entry) const;
  static std::vector<std::string> interposed_services(const Entry& entry);
  void up_done(const std::string& name, std::uint64_t call, const Status& done);
  void down_done(const std::string& name, std::uint64_t call, const Status& done);
  void try_again(Entry& entry, std::string why);
  void finish(Entry& entry, Time now);
  void book(Entry& entry);
  bool book(Entry& entry, const compose::Container& container);

  engine::Engine& engine_;
  compose::Worker& worker_;
  Options options_;
  std::map<std::string, Entry, std::less<>> entries_;
  std::map<LeaseId, std::string> by_lease_;
  std::optional<compose::Engine> container_engine_;  // unset: nothing was heard yet
  std::string worker_problem_;                       // why the last look for stacks failed; "": it did not
  Duration forgiven_{};                              // of the time that the machine slept
  bool looked_ = false;                              // stacks were looked for at least once
  bool describing_ = false;
  Time describe_at_{};                     // the next try after a failure
  std::vector<Asked> asked_, asked_next_;  // for the look in progress, and for the next one
  std::vector<std::string> watched_;
  engine::Records<std::string> rows_;
  engine::Reclaimable reclaimable_;  // leases of released stacks
  std::uint64_t last_call_ = 0;
  std::shared_ptr<const bool> lives_ = std::make_shared<const bool>(true);
};

std::string tag_of(std::string_view stack);  // of its lease: "stack-NAME"
std::string memory_is_for(LeaseId waiter);   // the beginning of a stack's `why`

}  // namespace sublet::stacks
