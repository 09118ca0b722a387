// SPDX-License-Identifier: Apache-2.0
#include "engine/commits.h"

#include "base/log.h"
#include "base/mutants.h"
#include "store/secret.h"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <utility>

namespace sublet::engine {
namespace {

namespace asio = boost::asio;

constexpr auto reopen_interval = std::chrono::seconds(2);
constexpr Duration long_commit = std::chrono::seconds(2);
// Warning limit of free space on the store's disk: with less, it may be full before an admin looks.
constexpr Bytes little_room = 64 * MiB;

// Distinguishes the event numbers of a store from those of a store that replaced it.
std::string new_life() { return store::random_hex(4); }

// Without the free bytes, which change all the time. On a full disk the store fails and returns repeatedly: a failure
// frees enough space for a few commits.
Warning disk_warning(const store::DiskRoom& room, Time now) {
  return {"disk",
          fmt::format("less than {} are free in {}, the store's directory: no lease is granted once the disk is full",
                      format_size(little_room), room.directory),
          "free space on that disk", now};
}

}  // namespace

Warning store_warning(const std::string& problem, Time since) {
  return {"store", "the store is not usable, no lease is granted: " + problem,
          "running programs continue; acknowledged changes are kept", since};
}

Commits::Commits(asio::io_context& io, store::Store& store, const Machine& machine, const Options& options,
                 Events events)
    : io_(io),
      store_(store),
      clock_(*machine.clock),
      options_(options),
      events_(std::move(events)),
      reopen_alarm_(machine.alarm()),
      slow_alarm_(machine.alarm()) {}

// --- life ---

store::Events Commits::store_events() {
  const std::uint64_t epoch = ++epoch_;
  return {.committed =
              [this, epoch](std::uint64_t sequence) {
                asio::post(io_, [this, epoch, sequence] {
                  if (epoch == epoch_) came(sequence);
                });
              },
          .failed =
              [this, epoch](const Error& error) {
                asio::post(io_, [this, epoch, error] {
                  if (epoch == epoch_) failed(error);
                });
              }};
}

Result<store::Loaded> Commits::open() { return store_.open(store_events()); }

std::optional<Warning> Commits::go_on_from(const store::Loaded& loaded) {
  committed_ = intended_ = 0;
  boot_id_stored_ = false;
  life_stored_ = !loaded.life.empty();
  log_.open(loaded.last_event, life_stored_ ? loaded.life : new_life());
  if (problem_.empty()) return std::nullopt;
  return store_warning(std::exchange(problem_, {}), problem_since_);
}

void Commits::fail_open(const Error& error) {
  if (problem_.empty()) {  // at the start
    problem_since_ = clock_.now();
    problem_ = error.detail + (error.hint.empty() ? "" : " (" + error.hint + ")");
    log::error("the store cannot be used: {}. No leases are granted.", problem_);
  } else {
    problem_ = error.detail;
  }
  reopen_alarm_->set(reopen_interval, [this] { events_.reopen(); });
}

void Commits::stop() {
  reopen_alarm_->cancel();
  slow_alarm_->cancel();
  store_.close();
}

// --- the state of the store ---

Status Commits::may_decide() const {
  if (!problem_.empty()) {
    return unavailable("no change is possible while the store is not usable: " + problem_,
                       "'sublet status' shows when the store is back");
  }
  if (const auto backlog = store_.backlog(); backlog.full()) {
    return unavailable(fmt::format("{} changes wait to be written, which is the limit", backlog.batches),
                       "retry in a moment");
  }
  return {};
}

std::vector<Warning> Commits::warnings(Time now) const {
  std::vector<Warning> all;
  if (!problem_.empty()) all.push_back(store_warning(problem_, problem_since_));
  if (const auto room = store_.disk_room(); room && room->left < little_room) all.push_back(disk_warning(*room, now));
  if (auto slow = slow_warning()) all.push_back(std::move(*slow));
  return all;
}

std::optional<Warning> Commits::slow_warning() const {
  if (!is_slow_ || !problem_.empty()) return std::nullopt;
  const auto room = store_.disk_room();
  const std::string where = room ? " in " + room->directory : "";
  return Warning{"store-slow",
                 fmt::format("a change has waited for more than {} for the disk of the store{}: calls wait for it too",
                             format_duration(long_commit), where),
                 "running programs continue, and ceilings hold; look at the load and the health of that disk",
                 waits_since_};
}

// Looks once in a while, since a commit takes milliseconds.
void Commits::watch(Duration later) {
  slow_alarm_->set(later, [this] {
    watches_ = false;
    if (committed_ >= intended_ || !problem_.empty()) return;
    const Duration waited = clock_.now() - waits_since_;
    watches_ = true;
    if (waited >= long_commit && !std::exchange(is_slow_, true)) {
      const Warning warning = *slow_warning();
      log::warn("{} ({})", warning.text, warning.hint);
      events_.warned();
    }
    watch(waited >= long_commit ? long_commit : long_commit - waited);
  });
}

// --- writing ---

std::uint64_t Commits::write(store::Batch batch, const std::vector<EventLog::Event>& events,
                             std::span<const LeaseId> changed) {
  // A batch of a decision may name processes of this boot.
  if (!std::exchange(boot_id_stored_, true)) {
    batch.boot_id = options_.boot_id;
    batch.clock_offset_ns = clock_.offset_ns();
  }
  if (!events.empty() && !std::exchange(life_stored_, true)) batch.life = log_.life();
  batch.events = events;
  if (committed_ >= intended_) waits_since_ = clock_.now();
  intended_ = store_.intend(std::move(batch));
  if (!std::exchange(watches_, true)) watch(long_commit);
  log_.intended(intended_, events);
  for (const LeaseId id : changed) changed_in_[id] = intended_;
  return intended_;
}

void Commits::write_events(const std::vector<EventLog::Event>& events, Time now) {
  if (!events.empty()) write({.now = now}, events);
}

void Commits::then(AfterCommit effects) {
  effects.sequence = intended_;
  if (committed_ >= intended_ || mutant(Mutant::done_before_durable)) events_.ready(effects);
  else if (!effects.nothing()) after_.push_back(std::move(effects));
}

void Commits::reach(std::span<const std::string_view> transitions, std::string_view step) const {
  if (options_.failpoints != nullptr) options_.failpoints->at(transitions, step);
}

// Some batches are durable now. The others wait from here on.
void Commits::stop_waiting(Time now) {
  const Duration waited = now - std::exchange(waits_since_, now);
  if (!std::exchange(is_slow_, false)) return;
  log::info("the store has written again, after {}", format_duration(waited));
  events_.warned();
}

void Commits::came(std::uint64_t sequence) {
  committed_ = std::max(committed_, sequence);
  stop_waiting(clock_.now());
  while (!after_.empty() && after_.front().sequence <= committed_) {
    const AfterCommit ready = std::move(after_.front());
    after_.pop_front();
    for (const LeaseId id : ready.changed) {
      const auto last = changed_in_.find(id);
      if (last != changed_in_.end() && last->second <= ready.sequence) changed_in_.erase(last);
    }
    events_.ready(ready);
  }
  events_.committed(committed_);
  if (log_.committed(mutant(Mutant::told_before_durable) ? intended_ : committed_)) wake_followers();
  while (!waiters_.empty() && waiters_.front().sequence <= committed_) {
    const Waiter ready = std::move(waiters_.front());
    waiters_.pop_front();
    ready.resume(true);
  }
}

// The fate of the intended batches is unknown. None is acknowledged, and the state is read again.
void Commits::failed(const Error& error) {
  problem_ = error.detail;
  problem_since_ = clock_.now();
  is_slow_ = false;
  log::error("the store failed: {}. No lease is granted until it works again.", error.detail);
  std::vector<LeaseId> in_doubt;
  for (const AfterCommit& next : after_) in_doubt.insert(in_doubt.end(), next.ended.begin(), next.ended.end());
  after_.clear();
  changed_in_.clear();
  events_.failed(in_doubt);
  for (auto waiters = std::exchange(waiters_, {}); Waiter & waiter : waiters) waiter.resume(false);
  events_.reopen();
}

// --- waiting ---

std::uint64_t Commits::last_of(LeaseId lease) const {
  const auto last = changed_in_.find(lease);
  return last == changed_in_.end() || mutant(Mutant::changes_look_durable) ? 0 : last->second;
}

asio::awaitable<bool> Commits::durable(std::uint64_t sequence) {
  const std::uint64_t epoch = epoch_;
  if (!problem_.empty()) co_return false;
  if (committed_ >= sequence || mutant(Mutant::answered_before_durable)) co_return true;
  const bool done = co_await asio::async_initiate<const asio::use_awaitable_t<>, void(bool)>(
      [this, sequence](auto handler) {
        auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        // Nearly always the last place. A waiter for an earlier batch must not stand behind a waiter for a later one.
        const auto place =
            std::upper_bound(waiters_.begin(), waiters_.end(), sequence,
                             [](std::uint64_t number, const Waiter& waiter) { return number < waiter.sequence; });
        waiters_.insert(place,
                        {sequence, [shared](bool committed_in_time) { std::move (*shared)(committed_in_time); }});
      },
      asio::use_awaitable);
  co_return done&& epoch == epoch_;
}

// --- the event stream ---

Commits::Followers::iterator Commits::follow(std::shared_ptr<asio::steady_timer> timer) {
  return followers_.insert(followers_.end(), std::move(timer));
}

void Commits::wake_followers() {
  for (const auto& timer : followers_) timer->cancel();
}

asio::awaitable<void> Commits::new_events(std::chrono::steady_clock::time_point deadline) {
  auto timer = std::make_shared<asio::steady_timer>(io_, deadline);
  const auto entry = followers_.insert(followers_.end(), timer);
  co_await timer->async_wait(asio::as_tuple(asio::use_awaitable));
  followers_.erase(entry);
}

// --- reading ---

void Commits::read(std::function<std::function<void()>(store::Reader&)> work) {
  store_.read([this, work = std::move(work)](store::Reader& reader) { asio::post(io_, work(reader)); });
}

bool Commits::maybe_remembered(std::uint32_t uid, const std::string& key) const {
  return store_.maybe_remembered(uid, key);
}

void Commits::remembered(std::uint32_t uid, const std::string& key,
                         std::function<void(Result<std::optional<store::Remembered>>)> done) {
  read([uid, key, done = std::move(done)](store::Reader& reader) {
    return [done, found = reader.remembered(uid, key)] { done(found); };
  });
}

}  // namespace sublet::engine
