// SPDX-License-Identifier: Apache-2.0
#include "simulate/run.h"

#include "core/step.h"
#include "state/devices.h"
#include "state/pauses.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <queue>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace sublet::simulate {
namespace {

using namespace core;

constexpr Time begin{1'600'000'000'000'000'000};
constexpr Duration ever = std::chrono::hours(24 * 3650);  // a reading stays true
constexpr std::size_t most_samples = 256;
constexpr std::uint64_t told_each = 512;  // events

class World {
 public:
  World(const std::vector<Job>& jobs, const Setting& setting);
  Outcome play();

 private:
  // A program with a lease.
  struct Program {
    std::size_t job = 0;
    Duration left{};            // to run
    std::optional<Time> since;  // since when it runs
    Time parked_since;
    std::uint64_t stamp = 0;  // an end of an earlier run does not count
  };
  struct Event {
    Time at;
    std::uint64_t order = 0;
    LeaseId lease;
    std::uint64_t stamp = 0;  // of an end
    bool answer = false;      // the answer to an order; else the end of the program
    bool operator>(const Event& other) const { return std::tie(at, order) > std::tie(other.at, other.order); }
  };

  Result<LeaseId> take(const Fact& fact);
  void submit(std::size_t job);
  void handle(const Event& event);
  void note(const Lease& lease);
  void count_use();
  void order(LeaseId lease);
  void claim();
  void measure();
  void sample_until(Time at);
  Sample sample(Time at) const;

  const std::vector<Job>& jobs_;
  Setting setting_;
  State state_;
  Time now_ = begin;
  Time wake_at_ = Time::never();
  bool measure_ = false;
  std::size_t arrived_ = 0;
  std::uint64_t orders_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::unordered_map<LeaseId, Program> programs_;
  std::vector<LeaseId> offers_;
  std::unordered_map<std::string, std::uint32_t> uids_;
  std::unordered_map<LeaseId, Bytes> reserved_;
  Bytes allocated_;
  Time used_at_ = begin;
  placement::Mix mix_;
  Duration interval_ = std::chrono::seconds(1);
  Time sampled_at_ = begin;
  Outcome outcome_;
};

World::World(const std::vector<Job>& jobs, const Setting& setting) : jobs_(jobs), setting_(setting) {
  setting_.rules.max_age = ever;
  setting_.rules.safe_mode.reset();
  outcome_.jobs.resize(jobs.size());
  Snapshot first{
      .began = now_, .devices = {}, .host = {setting_.rules.ledger_limit + setting_.rules.ledger_reserve, {}}};
  Bytes largest;
  for (std::size_t i = 0; i < setting_.devices.size(); ++i) {
    DeviceReading reading;
    reading.uuid = fmt::format("GPU-{:05}", i);
    reading.name = "simulated";
    reading.index = static_cast<int>(i);
    reading.total = setting_.devices[i];
    outcome_.capacity += setting_.devices[i];
    largest = std::max(largest, setting_.devices[i]);
    first.devices.push_back(std::move(reading));
  }
  std::vector<placement::Request> requests;
  for (const Job& job : jobs) requests.push_back({job.devices, job.vram.count});
  if (!requests.empty()) mix_ = placement::mix_of(requests, largest.count);
  (void)take(first);
}

// Time that passes without an event is told to the decisions when they asked for it.
Outcome World::play() {
  for (std::uint64_t round = 0;; ++round) {
    if (round % told_each == 0 && setting_.goes_on && !setting_.goes_on(arrived_)) {
      outcome_.partial = true;
      break;
    }
    const Time arrives = arrived_ < jobs_.size() ? begin + jobs_[arrived_].arrives : Time::never();
    const Time ends = events_.empty() ? Time::never() : events_.top().at;
    const bool idle = arrives == Time::never() && ends == Time::never();
    if (idle && !measure_ && offers_.empty() && (state_.queue.size() == 0 || wake_at_ > now_ + ever / 2)) break;
    const Time next = measure_ || !offers_.empty() ? now_ : std::min({arrives, ends, wake_at_});
    sample_until(next);
    now_ = std::max(now_, next);
    if (!offers_.empty()) claim();
    else if (measure_) measure();
    else if (ends <= now_) handle(events_.top());
    else if (arrives <= now_) submit(arrived_++);
    else (void)take(Tick{});
  }
  sample_until(now_);
  outcome_.lasted = now_ - begin;
  outcome_.events = state_.steps;
  count_use();
  if (now_ > begin) outcome_.used /= static_cast<double>((now_ - begin).count());
  return std::move(outcome_);
}

void World::submit(std::size_t at) {
  const Job& job = jobs_[at];
  if (job.devices == 0) {
    outcome_.jobs[at] = {Ran::How::done, job.arrives, job.arrives + job.runs};
    return;
  }
  Lease lease;
  lease.user = job.user;
  lease.tenant = job.tenant.empty() ? job.user : job.tenant;
  lease.uid = uids_.try_emplace(job.user, 1000 + static_cast<std::uint32_t>(uids_.size())).first->second;
  lease.consumer = job.name.empty() ? "job" : job.name;
  lease.nameless = job.name.empty();
  lease.vram = job.vram;
  lease.device_count = job.devices;
  lease.tier = job.tier;
  lease.priority = job.priority;
  lease.pausable = job.pausable ? Pausable::automatic : Pausable::no;
  lease.owner.kind = OwnerKind::token;
  Cooperation how;
  how.way = CooperationWay::webhook;
  how.address = "simulated";
  lease.cooperation = how;
  const std::uint64_t last = state_.leases.last_id;
  programs_[{last + 1}] = {.job = at, .left = job.runs, .since = {}, .parked_since = {}};
  if (take(Submit{std::move(lease), true, true})) return;
  programs_.erase({last + 1});
  outcome_.jobs[at].how = Ran::How::refused;
}

Result<LeaseId> World::take(const Fact& fact) {
  Plan plan = step(state_, setting_.rules, fact, now_);
  for (const Lease& lease : plan.changed) note(lease);
  for (const Action& action : plan.actions) {
    measure_ |= std::holds_alternative<TakeSnapshot>(action);
    if (const auto* park = std::get_if<Park>(&action)) order(park->lease);
    if (const auto* unpark = std::get_if<Unpark>(&action)) order(unpark->lease);
  }
  wake_at_ = std::max(plan.wake_at, now_ + Duration(1));
  return std::move(plan.outcome);
}

// Its bytes move at the speed of the link.
void World::order(LeaseId id) {
  const Lease* lease = find(state_, id);
  if (lease == nullptr) return;
  const Bytes bytes = static_cast<std::int64_t>(lease->devices.size()) * lease->vram;
  const double seconds = static_cast<double>(bytes.count) / static_cast<double>(setting_.link);
  outcome_.moved += bytes;
  events_.push({now_ + Duration(std::llround(seconds * 1e9)), ++orders_, id, 0, true});
}

void World::handle(const Event& event) {
  const Event its = event;
  events_.pop();
  const Lease* lease = find(state_, its.lease);
  if (lease == nullptr) return;
  if (!its.answer) {
    if (programs_.at(its.lease).stamp == its.stamp) (void)take(Release{.lease = its.lease, .force = true});
  } else if (lease->state == LeaseState::pausing) {
    const Bytes bytes = static_cast<std::int64_t>(lease->devices.size()) * lease->vram;
    (void)take(AttemptEvent{its.lease, Parked{.done = true, .bytes = bytes}});
  } else if (lease->state == LeaseState::resuming) {
    (void)take(AttemptEvent{its.lease, Unparked{}});
  }
}

// The memory was allocated as it is now since the last change.
void World::count_use() {
  outcome_.used += static_cast<double>(allocated_.count) * static_cast<double>((now_ - used_at_).count());
  used_at_ = now_;
}

void World::note(const Lease& lease) {
  count_use();
  Bytes& reserved = reserved_[lease.id];
  allocated_ += lease.reserved() - reserved;
  reserved = lease.reserved();
  if (lease.ended()) reserved_.erase(lease.id);
  const auto found = programs_.find(lease.id);
  if (found == programs_.end()) return;
  Program& program = found->second;
  Ran& ran = outcome_.jobs[program.job];
  const bool runs = lease.state == LeaseState::active;
  if (lease.state == LeaseState::offered) offers_.push_back(lease.id);
  if (runs && !ran.started) ran.started = now_ - begin;
  if (runs && !program.since) {
    program.since = now_;
    if (ran.pauses > 0) ran.parked += now_ - program.parked_since;
    events_.push({now_ + program.left, ++orders_, lease.id, ++program.stamp, false});
  } else if (!runs && program.since) {
    program.left = std::max(program.left - (now_ - *std::exchange(program.since, std::nullopt)), Duration());
    program.parked_since = now_;
    ++program.stamp;
    if (lease.state == LeaseState::pausing) ++ran.pauses, ++outcome_.pauses;
  }
  if (!lease.ended()) return;
  ran.ended = now_ - begin;
  ran.how = lease.end_reason == EndReason::released   ? Ran::How::done
            : lease.end_reason == EndReason::rejected ? Ran::How::refused
                                                      : Ran::How::ended;
  programs_.erase(found);
}

void World::claim() {
  for (const LeaseId id : std::exchange(offers_, {})) (void)take(Claim{id});
}

// Readings show that what was paused is gone.
void World::measure() {
  measure_ = false;
  Snapshot snapshot{.began = now_, .devices = {}, .host = state_.host.memory, .partial = true};
  std::set<std::string> devices;
  for (const LeaseId id : state_.pauses.verifying)
    if (const Lease* lease = find(state_, id)) devices.insert(lease->devices.begin(), lease->devices.end());
  for (const std::string& uuid : devices) snapshot.devices.push_back(state_.devices.by_uuid.at(uuid).reading);
  if (snapshot.devices.empty()) (void)take(Tick{});
  else (void)take(snapshot);
}

// The memory was as it is now until this time. There are never many samples: every second one is left out then.
void World::sample_until(Time at) {
  for (; sampled_at_ <= at; sampled_at_ = sampled_at_ + interval_) {
    outcome_.samples.push_back(sample(sampled_at_));
    if (outcome_.samples.size() < most_samples) continue;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < outcome_.samples.size(); i += 2) outcome_.samples[kept++] = outcome_.samples[i];
    outcome_.samples.resize(kept);
    sampled_at_ = begin + outcome_.samples.back().at;
    interval_ *= 2;
  }
}

Sample World::sample(Time at) const {
  Sample its{at - begin, {}, {}, state_.queue.size()};
  double fragmented = 0;
  for (const auto& [uuid, device] : state_.devices.by_uuid) {
    const Bytes free = std::max(free_on(state_, device, setting_.rules, now_), Bytes());
    its.allocated += device.charged;
    fragmented += placement::fragmented({.free = {free.count}, .whole = device.reading.total.count}, mix_);
  }
  its.fragmented = {std::llround(fragmented)};
  return its;
}

}  // namespace

Outcome run(const std::vector<Job>& jobs, const Setting& setting) { return World(jobs, setting).play(); }

}  // namespace sublet::simulate
