// SPDX-License-Identifier: Apache-2.0
#include "meter/meter.h"

#include "base/log.h"
#include "base/text.h"
#include "engine/activity.h"
#include "engine/event_reader.h"
#include "explain/over_limit.h"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <utility>

namespace sublet::meter {

namespace asio = boost::asio;
using nlohmann::json;

namespace {

constexpr std::size_t page = 256;              // events of one step
constexpr std::size_t much = 20'000;           // entries that are written before more events are read
constexpr std::size_t most_pending = 400'000;  // entries that wait for a disk
constexpr int prune_slice = 2000;              // rows
constexpr Ms flush_every = 5'000;              // readings of this time are lost if the daemon is killed
constexpr Ms flush_each = 5;                   // more, for each lease beyond a thousand: it is written whole each time
constexpr std::size_t most_reports = 16;       // that wait or are being read

Ms ms_of(Time time) { return time.ns / 1'000'000; }
Ms ms_of(Duration time) { return time.count() / 1'000'000; }
Time time_of(Ms ms) { return {ms * 1'000'000}; }

// GPU work of the lease on the device. Unset: the driver does not tell, or does not list its processes.
std::optional<int> busy_percent(const core::DeviceReading& reading, LeaseId lease, const core::Charge& charge) {
  using State = engine::LeaseActivity::State;
  const State activity = engine::activity_on(reading, lease);
  if (activity == State::unknown || (charge.processes == 0 && charge.used > Bytes{})) return std::nullopt;
  if (activity == State::idle) return 0;
  int sum = 0;
  for (const core::ProcessUse& use : reading.processes)
    if (use.lease == lease) sum += use.busy_percent.value_or(reading.busy_percent.value_or(0));
  return std::min(sum, 100);
}

Error not_open(const std::string& problem) {
  return unavailable(fmt::format("the meter cannot be read{}{}", problem.empty() ? "" : ": ", problem),
                     problem.empty() ? "try again in a moment" : "`sublet status` tells more");
}

}  // namespace

Meter::Meter(asio::io_context& io, engine::Engine& engine, Options options)
    : io_(io),
      engine_(engine),
      options_(std::move(options)),
      timer_(std::make_shared<asio::steady_timer>(io)),
      writer_(io.get_executor(), options_.path, options_.has_thread) {}

Meter::~Meter() = default;

// -------------------------------------------------------------------------------- events and readings

void Meter::loaded(const store::Loaded&, Time) {
  if (follower_) return wake();  // read again after a failure: the place in the log stays
  follower_ = engine_.commits().follow(timer_);
  open();
  asio::co_spawn(io_, run(), asio::detached);
}

void Meter::wake() {
  if (std::exchange(woken_, true)) return;
  asio::post(io_, [this] {
    woken_ = false;
    timer_->cancel();
  });
}

// An exception, such as one of too little memory, is told and costs a minute; the mark in the file stays where it was.
asio::awaitable<void> Meter::run() {
  while (!stopped_) {
    bool more = false;
    try {
      more = co_await step();
    } catch (const std::exception& wrong) {
      log::error("the meter stands still: {}", wrong.what());
    }
    if (!more) co_await asleep();
  }
}

asio::awaitable<void> Meter::asleep() {
  timer_->expires_at(std::chrono::steady_clock::time_point::max());
  co_await timer_->async_wait(asio::as_tuple(asio::use_awaitable));
}

// Returns whether there may be more to do at once.
asio::awaitable<bool> Meter::step() {
  const engine::EventLog& log = engine_.commits().log();
  if (!feed_ || (in_flight_ && feed_->unflushed() > much)) co_return false;
  if (feed_->life() != log.life() || feed_->after() > log.last()) feed_->replace_store(log.life());
  if (feed_->after() < log.last()) {
    const std::uint64_t after = feed_->after();
    const auto events = co_await engine::read_events(engine_, after, page);
    if (!events || events->empty() || !feed_ || feed_->after() != after) co_return false;
    for (const auto& event : *events) feed_->event(event->number, event->type, event->data);
    if (feed_->unflushed() > much) flush();
    co_return true;
  }
  if (const std::uint64_t last = engine_.intended(); !engine_.commits().is_durable(last))
    co_return (feed_->has_readings() || !asked_.empty()) && co_await engine_.commits().durable(last);
  catch_up(ms_of(engine_.now()));
  co_return false;
}

// Nothing is decided that the feed does not know.
void Meter::catch_up(Ms now) {
  feed_->caught_up(now, feed_->needs_living() ? living(now) : std::vector<Living>());
  if (in_flight_) return;
  if (now >= next_flush_ || !asked_.empty()) flush();
  answer();
}

void Meter::measured(Time now) {
  if (!feed_) return;
  feed_->reading(reading_now(now));
  wake();
}

void Meter::add_work(LeaseId lease, const Work& work) {
  if (feed_) pending_.work[{ms_of(engine_.now()) / minute * minute, lease.number}].add(work);
}

Time Meter::due(Time now) {
  const Ms at = ms_of(now);
  if (!feed_ && !opening_ && at >= next_open_) open();
  if (feed_ && at >= next_flush_) wake();
  return time_of(std::max(feed_ ? next_flush_ : next_open_, at + 1000));
}

Ms Meter::flush_after(Ms now) const {
  const Ms leases = feed_ ? static_cast<Ms>(feed_->live()) : 0;
  return now + std::clamp(flush_each * leases, flush_every, minute);
}

Reading Meter::reading_now(Time now) const {
  Reading reading;
  reading.at = ms_of(now);
  for (const auto& [uuid, device] : engine_.state().devices.by_uuid) {
    if (!core::is_known(engine_.state(), device, engine_.rules(), now)) {
      if (device.read_at && !device.lost) reading.unread.insert(device.reading.id());
      continue;
    }
    const core::DeviceReading& read = device.reading;
    reading.devices[uuid] = {read.total.count, read.used.count, read.busy_percent};
    for (const LeaseId lease : device.leases) {
      const core::Charge& charge = core::charge_on(engine_.state(), lease, uuid);
      if (!charge.untold) reading.uses[{uuid, lease.number}] = {charge.used.count, busy_percent(read, lease, charge)};
    }
  }
  for (const explain::Stray& stray : explain::stray_uses(engine_.state()))
    if (reading.devices.contains(stray.device)) reading.strays[stray.device][stray.lease.number] = stray.used.count;
  return reading;
}

std::vector<Living> Meter::living(Ms now) const {
  std::vector<Living> all;
  for (const auto& [id, lease] : engine_.state().leases.by_id) {
    if (lease.ended()) continue;
    Living one;
    one.fact.lease = id;
    one.fact.at = now;
    one.fact.state = lease.state;
    one.fact.account = {lease.user, lease.tenant, lease.consumer};
    one.fact.vram = lease.vram.count;
    one.fact.devices = lease.devices;
    one.fact.held_back = lease.held_back_at.has_value();
    one.created = ms_of(lease.created_at);
    if (lease.granted_at) one.granted = ms_of(*lease.granted_at);
    all.push_back(std::move(one));
  }
  std::ranges::sort(all, {}, [](const Living& one) { return one.fact.lease; });
  return all;
}

// -------------------------------------------------------------------------------- the file

void Meter::open() {
  opening_ = true;
  writer_.open([this](Result<Writer::Opened> done) { opened(std::move(done)); });
}

void Meter::opened(Result<Writer::Opened> opened) {
  opening_ = false;
  const Time now = engine_.now();
  next_open_ = ms_of(now) + minute;
  if (!opened) return note(opened.error().detail);
  note("");
  const Ms patience = ms_of(options_.patience);
  const bool begun = !opened->mark.life.empty();
  auto feed =
      begun ? Feed::resume(opened->mark, patience) : Result<Feed>(Feed(engine_.commits().log().life(), patience));
  if (!feed) return note(feed.error().detail);
  feed_ = std::move(*feed);
  written_until_ = feed_->now();
  if (!opened->set_aside.empty()) {
    set_aside_ = opened->set_aside;
    set_aside_at_ = now;
    log::warn("the file of the meter was damaged: it is now {}", set_aside_);
    feed_->lose_readings(0, "the file with earlier amounts was damaged");
  }
  next_flush_ = flush_after(ms_of(now));
  wake();
}

void Meter::flush() {
  Feed::Flushed flushed = feed_->flush();
  pending_.add(std::move(flushed.deltas));
  mark_ = std::move(flushed.mark);
  const Ms now = ms_of(engine_.now());
  next_flush_ = flush_after(now);
  write();
}

void Meter::write() {
  if (in_flight_) return;
  in_flight_ = std::make_shared<Deltas>(std::exchange(pending_, {}));
  in_flight_until_ = mark_.at;
  writer_.put(in_flight_, mark_, false, [this](Writer::Put put) { written(std::move(put)); });
}

void Meter::written(Writer::Put put) {
  const std::shared_ptr<Deltas> tried = std::exchange(in_flight_, nullptr);
  if (put.damaged) {
    note(put.status.error().detail);
    feed_.reset();  // all events are read again
    pending_ = {};
    return open();
  }
  if (put.status) {
    written_until_ = in_flight_until_;
    prune(ms_of(engine_.now()));
  } else {
    Deltas later = std::exchange(pending_, std::move(*tried));
    pending_.add(std::move(later));
    if (pending_.size() > most_pending) {
      Deltas kept;
      kept.leases = std::move(pending_.leases);  // else leases that have ended would live for ever in the reports
      pending_ = std::move(kept);
      pending_.gaps.push_back({written_until_, mark_.at, "leased", "the disk was full for too long"});
    }
  }
  note(put.status ? "" : put.status.error().detail);
  wake();
}

void Meter::prune(Ms now) {
  if (now < next_prune_) return;
  next_prune_ = now + hour;
  writer_.prune(now, now - ms_of(options_.keep_minutes), now - ms_of(options_.keep_hours), prune_slice,
                [this](const Result<bool>& more) {
                  if (more && *more) next_prune_ = 0;  // after the next flush
                });
}

void Meter::note(std::string problem) {
  if (problem != problem_) {
    if (problem.empty()) log::info("the meter writes again");
    else log::warn("the meter cannot write: {}", problem);
    if (problem_.empty()) problem_since_ = engine_.now();
    problem_ = std::move(problem);
  }
  if (problem_.empty() || feed_) return;
  for (Asked& asked : std::exchange(asked_, {})) asked.done(not_open(problem_));
}

// Without figures: a text that changes would be a new warning, and so an event, each time.
std::vector<engine::Warning> Meter::warnings(Time) const {
  std::vector<engine::Warning> all;
  if (!problem_.empty())
    all.push_back({"meter", fmt::format("the meter cannot write {}: reports lack the newest amounts", options_.path),
                   "leases are not affected; make room on the disk, and look into the daemon's log", problem_since_});
  if (!set_aside_.empty())
    all.push_back({"meter", fmt::format("the file of the meter was damaged, and is now {}", set_aside_),
                   "reports lack earlier use; remove that file if you do not need it", set_aside_at_});
  return all;
}

// -------------------------------------------------------------------------------- reports

void Meter::report(By by, const Period& period, bool whole, Done done) {
  if (!feed_ && !opening_) return done(not_open(problem_));
  if (asked_.size() + reading_ >= most_reports)
    return done(unavailable(fmt::format("{} reports are being made, which is the limit", asked_.size() + reading_),
                            "try again in a moment"));
  asked_.push_back({by, period, whole, std::move(done)});
  wake();
}

// All that is known is written, or could not be written.
void Meter::answer() {
  const Ms now = ms_of(engine_.now());
  if (asked_.empty()) return;
  std::vector<std::uint64_t> waiting_in_place;
  for (const auto& [id, lease] : engine_.state().leases.by_id)
    if (lease.waits_in_place()) waiting_in_place.push_back(id.number);
  for (Asked& asked : std::exchange(asked_, {})) {
    Query query;
    query.now = now;
    query.to = asked.period.to.value_or(now);
    query.from = query.to - asked.period.length;
    query.by = asked.by;
    query.whole = asked.whole;
    query.waiting_in_place = waiting_in_place;
    for (const auto& [uuid, device] : engine_.state().devices.by_uuid) query.names[uuid] = device.reading.id();
    ++reading_;
    writer_.report(std::move(query), [this, done = std::move(asked.done)](Result<nlohmann::json> read) {
      --reading_;
      done(std::move(read));
    });
  }
}

void Meter::stop() {
  stopped_ = true;
  if (feed_) {
    const Ms now = ms_of(engine_.now());
    if (feed_->after() == engine_.commits().log().last() && engine_.commits().is_durable(engine_.intended()))
      feed_->caught_up(now, feed_->needs_living() ? living(now) : std::vector<Living>());
    Feed::Flushed flushed = feed_->flush(true);
    pending_.add(std::move(flushed.deltas));
    writer_.put(std::make_shared<Deltas>(std::move(pending_)), std::move(flushed.mark), in_flight_ != nullptr,
                [](const Writer::Put&) {});
  }
  writer_.finish();
}

}  // namespace sublet::meter
