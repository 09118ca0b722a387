// SPDX-License-Identifier: Apache-2.0
// Batches on their way to the store: what waits for each of them, and the events in them. Only what is durable is
// acknowledged, told or carried out. Belongs to the loop thread.
#pragma once

#include "base/failpoints.h"
#include "engine/event_log.h"
#include "engine/machine.h"
#include "engine/options.h"
#include "store/store.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace sublet::engine {

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

Warning store_warning(const std::string& problem, Time since);

class Commits {
 public:
  struct Events {
    std::function<void(const AfterCommit&)> ready;  // these effects may start
    // All batches up to this one are durable. Called before any answer leaves.
    std::function<void(std::uint64_t)> committed;
    // The store failed. The ends of these leases may or may not be stored. Called before any caller hears of it.
    std::function<void(const std::vector<LeaseId>&)> failed;
    std::function<void()> reopen;  // it is time to open the store again
    std::function<void()> warned;  // its warnings have changed
  };

  Commits(boost::asio::io_context& io, store::Store& store, const Machine& machine, const Options& options,
          Events events);

  // --- life ---
  // Opens the store and reads it. An open store is opened again after a failure.
  Result<store::Loaded> open();
  // Goes on from this content: what was intended before is forgotten. Returns the warning that is over.
  std::optional<Warning> go_on_from(const store::Loaded& loaded);
  void fail_open(const Error& error);  // it cannot be opened, and reopen() is called later
  void stop();

  // --- the state of the store ---
  // "" while leases can be granted and changes stored; else the reason.
  const std::string& problem() const { return problem_; }
  Status may_decide() const;  // an error while no change can be stored
  std::vector<Warning> warnings(Time now) const;
  // Grows with each open: a result from before a failure is void.
  std::uint64_t epoch() const { return epoch_; }

  // --- writing ---
  std::uint64_t last() const { return intended_; }  // the newest batch
  // Gives a batch to the store, with its events and those leases of which it has the last change. Returns its number.
  std::uint64_t write(store::Batch batch, const std::vector<EventLog::Event>& events,
                      std::span<const LeaseId> changed = {});
  void write_events(const std::vector<EventLog::Event>& events, Time now);
  // The effects start once all that was given to the store so far is durable; perhaps now.
  void then(AfterCommit effects);
  void store_offset_again() { boot_id_stored_ = false; }                                   // the clock was moved
  void reach(std::span<const std::string_view> transitions, std::string_view step) const;  // see Failpoints

  // --- waiting ---
  std::uint64_t last_of(LeaseId lease) const;  // the batch of its last change; 0: that is durable
  bool is_durable(std::uint64_t sequence) const { return problem_.empty() && committed_ >= sequence; }
  boost::asio::awaitable<bool> durable(std::uint64_t sequence);  // false: the store has failed

  // --- the event stream ---
  EventLog& log() { return log_; }
  const EventLog& log() const { return log_; }
  // The timer is cancelled at new durable events, when a token was revoked, and by wake_followers(), until unfollow().
  using Followers = std::list<std::shared_ptr<boost::asio::steady_timer>>;
  Followers::iterator follow(std::shared_ptr<boost::asio::steady_timer> timer);
  void unfollow(Followers::iterator follower) { followers_.erase(follower); }
  void wake_followers();
  // Returns at new durable events, when a token was revoked, or at the deadline.
  boost::asio::awaitable<void> new_events(std::chrono::steady_clock::time_point deadline);

  // --- reading ---
  // Runs `work` on the store's thread, and then its result on the loop.
  void read(std::function<std::function<void()>(store::Reader&)> work);
  // Idempotency, see store::Store.
  bool maybe_remembered(std::uint32_t uid, const std::string& key) const;
  void remembered(std::uint32_t uid, const std::string& key,
                  std::function<void(Result<std::optional<store::Remembered>>)> done);

 private:
  store::Events store_events();
  void came(std::uint64_t sequence);
  void failed(const Error& error);
  void stop_waiting(Time now);
  void watch(Duration later);
  std::optional<Warning> slow_warning() const;

  struct Waiter {
    std::uint64_t sequence;
    std::function<void(bool)> resume;
  };

  boost::asio::io_context& io_;
  store::Store& store_;
  Clock& clock_;
  const Options& options_;
  Events events_;
  const std::unique_ptr<machine::Alarm> reopen_alarm_, slow_alarm_;
  std::uint64_t intended_ = 0;   // last number given by the store
  std::uint64_t committed_ = 0;  // last number known to be durable
  std::uint64_t epoch_ = 0;
  std::string problem_;
  Time problem_since_;
  Time waits_since_;      // since when nothing became durable, while a batch waits
  bool is_slow_ = false;  // that was told
  bool watches_ = false;  // `slow_alarm_` is set
  bool boot_id_stored_ = false;
  bool life_stored_ = false;
  std::deque<AfterCommit> after_;
  std::deque<Waiter> waiters_;                             // by sequence
  std::unordered_map<LeaseId, std::uint64_t> changed_in_;  // batch of a lease's last change, while it is not durable
  EventLog log_;
  Followers followers_;  // timers of the readers of the event stream, and of others that wait for events
};

}  // namespace sublet::engine
