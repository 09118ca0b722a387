// SPDX-License-Identifier: Apache-2.0
#include "simulate/run.h"

#include "core/step.h"
#include "explain/dry_run.h"
#include "explain/explain.h"
#include "simulate/devices.h"
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
    TenantSums::Sum* tenant = nullptr;
    std::optional<Duration> promised = {};  // wait; set for a job that arrived within the guarantee of its tenant
    bool lacks_ledger = false;              // with a larger park ledger it had victims when it arrived
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
  void promise(LeaseId lease, std::size_t job);
  void note_start(Program& program);
  void handle(const Event& event);
  void note(const Lease& lease);
  void expect_reading(const Lease& lease);
  void count_use();
  void order(LeaseId lease);
  void claim();
  void measure();
  DeviceReading reading_of(const std::string& uuid) const;
  void pass_until(Time at);
  void sample(Duration at);
  Bytes fragmented() const;

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
  std::set<std::string> unread_;  // devices where a program came or went; uuids
  std::unordered_map<std::string, std::uint32_t> uids_;
  std::unordered_map<LeaseId, Bytes> reserved_;
  Bytes allocated_;
  Time used_at_ = begin;
  placement::Mix mix_;
  Samples samples_;
  double waited_ = 0;  // jobs × nanoseconds in the queue
  TenantSums tenants_;
  StatedBounds bounds_;
  Outcome outcome_;
};

World::World(const std::vector<Job>& jobs, const Setting& setting)
    : jobs_(jobs), setting_(setting), tenants_(setting.tenants, sum_of(setting.devices), setting.devices.size()) {
  setting_.rules.max_age = ever;
  setting_.rules.safe_mode.reset();
  outcome_.jobs.resize(jobs.size());
  outcome_.capacity = sum_of(setting_.devices);
  const Snapshot first{.began = now_,
                       .devices = readings_of(setting_.devices, {setting_.link}),
                       .host = {setting_.rules.ledger_limit + setting_.rules.ledger_reserve, {}}};
  std::vector<placement::Request> requests;
  for (const Job& job : jobs) {
    requests.push_back({job.devices, job.vram.count});
    (void)tenants_.of(job.whose());
  }
  const Bytes largest = setting_.devices.empty() ? Bytes{} : *std::ranges::max_element(setting_.devices);
  if (!requests.empty()) mix_ = placement::mix_of(requests, largest.count);
  if (!setting_.tenants.empty()) (void)take(SetTenants{setting_.tenants});
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
    if (idle && !measure_ && offers_.empty() && (state_.queue.size() == 0 || wake_at_ > now_ + ever / 2)) {
      if (setting_.until) pass_until(begin + *setting_.until);
      break;
    }
    const Time next = measure_ || !offers_.empty() ? now_ : std::min({arrives, ends, wake_at_});
    if (setting_.until && next > begin + *setting_.until) {
      pass_until(begin + *setting_.until);
      break;
    }
    pass_until(next);
    if (!offers_.empty()) claim();
    else if (measure_) measure();
    else if (ends <= now_) handle(events_.top());
    else if (arrives <= now_) submit(arrived_++);
    else (void)take(Tick{});
  }
  sample(now_ - begin);
  outcome_.samples = samples_.take();
  outcome_.lasted = now_ - begin;
  outcome_.events = state_.steps;
  for (const auto& [id, program] : programs_) {
    const Duration left = program.since ? program.left - (now_ - *program.since) : program.left;
    outcome_.jobs[program.job].got = jobs_[program.job].runs - left;
  }
  for (const auto& [id, program] : programs_)
    if (program.lacks_ledger && !outcome_.jobs[program.job].started) ++outcome_.without_ledger;
  outcome_.tenants = tenants_.all();
  outcome_.has_parts = tenants_.has_parts();
  outcome_.bounds = bounds_.finish(now_);
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
  lease.tenant = job.whose();
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
  const LeaseId id{state_.leases.last_id + 1};
  const std::int64_t bytes = job.devices * job.vram.count;
  TenantSums::Sum& tenant = tenants_.of(lease.tenant);
  const bool within = tenants_.within(lease.tenant, bytes);
  tenant.wants += bytes;
  programs_[id] = {.job = at, .left = job.runs, .since = {}, .parked_since = {}, .tenant = &tenant};
  const auto taken = take(Submit{std::move(lease), true, true});
  if (taken) {
    bounds_.came(state_, setting_.rules, id, now_);
    if (within) promise(id, at);
    return;
  }
  if (outcome_.refusal.empty())
    outcome_.refusal = fmt::format("{} of {} at {}: {}", job.name.empty() ? "a job" : "'" + job.name + "'", job.user,
                                   format_duration(job.arrives), taken.error().detail);
  tenant.wants -= bytes;
  programs_.erase(id);
  outcome_.jobs[at].how = Ran::How::refused;
}

// There are victims for the lease that may be paused now.
bool yield_at_once(const State& state, const Rules& rules, const Lease& lease, Time now) {
  VictimPlan plan = explain::victim_plan(state, rules, lease, {}, now);
  explain::limit_to_host(plan, state, rules, lease.uid);
  return plan.found && plan.wait == Duration();
}

// The job arrived within the guarantee of its tenant: it is to start once the pauses for it are over, as predicted.
void World::promise(LeaseId id, std::size_t at) {
  const auto found = programs_.find(id);
  if (found == programs_.end()) return;
  Program& program = found->second;
  ++program.tenant->asked;
  if (outcome_.jobs[at].started) return void(++program.tenant->served);
  const Lease& lease = *find(state_, id);
  program.promised = explain::Estimates(state_, setting_.rules, now_).of(lease).eta.value_or(Duration());
  if (yield_at_once(state_, setting_.rules, lease, now_)) return;
  State plenty = state_;
  Rules rules = setting_.rules;
  plenty.host.memory.available = rules.ledger_limit = {std::int64_t{1} << 60};
  rules.ledger_user_share = 1;
  program.lacks_ledger = yield_at_once(plenty, rules, lease, now_);
}

void World::note_start(Program& program) {
  Ran& ran = outcome_.jobs[program.job];
  ran.started = now_ - begin;
  if (!program.promised) return;
  const Duration late = *ran.started - jobs_[program.job].arrives - *program.promised;
  if (late <= std::chrono::seconds(1)) ++program.tenant->served;
  else outcome_.without_ledger += program.lacks_ledger;
  program.tenant->latest = std::max(program.tenant->latest, late);
}

Result<LeaseId> World::take(const Fact& fact) {
  Plan plan = step(state_, setting_.rules, fact, now_);
  for (const Lease& lease : plan.changed) {
    note(lease);
    bounds_.changed(state_, lease, now_);
  }
  for (const Action& action : plan.actions) {
    measure_ |= std::holds_alternative<TakeSnapshot>(action);
    if (const auto* park = std::get_if<Park>(&action)) order(park->lease);
    if (const auto* unpark = std::get_if<Unpark>(&action)) order(unpark->lease);
  }
  bounds_.look_at_plans(state_, setting_.rules, now_);
  wake_at_ = std::max(plan.wake_at, now_ + Duration(1));
  return std::move(plan.outcome);
}

// Its bytes move at the speed of the links, from all of its devices at once.
void World::order(LeaseId id) {
  const Lease* lease = find(state_, id);
  if (lease == nullptr) return;
  const double seconds = static_cast<double>(lease->vram.count) / static_cast<double>(setting_.link);
  outcome_.moved += static_cast<std::int64_t>(lease->devices.size()) * lease->vram;
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

// Without pauses nothing depends on the use of memory.
void World::expect_reading(const Lease& lease) {
  if (!setting_.rules.automatic) return;
  unread_.insert(lease.devices.begin(), lease.devices.end());
  measure_ |= !lease.devices.empty();
}

void World::note(const Lease& lease) {
  count_use();
  Bytes& reserved = reserved_[lease.id];
  const Bytes more = lease.reserved() - reserved;
  allocated_ += more;
  reserved = lease.reserved();
  if (lease.ended()) reserved_.erase(lease.id);
  const auto found = programs_.find(lease.id);
  if (found == programs_.end()) return;
  Program& program = found->second;
  TenantSums::hold(*program.tenant, more.count, now_ - begin);
  Ran& ran = outcome_.jobs[program.job];
  const bool runs = lease.state == LeaseState::active;
  if (lease.state == LeaseState::offered) offers_.push_back(lease.id);
  if (runs && !ran.started) note_start(program);
  if (runs && !program.since) {
    program.since = now_;
    expect_reading(lease);
    if (ran.pauses > 0) ran.parked += now_ - program.parked_since;
    events_.push({now_ + program.left, ++orders_, lease.id, ++program.stamp, false});
  } else if (!runs && program.since) {
    program.left = std::max(program.left - (now_ - *std::exchange(program.since, std::nullopt)), Duration());
    program.parked_since = now_;
    ++program.stamp;
    if (lease.state == LeaseState::pausing) ++ran.pauses, ++outcome_.pauses;
  }
  if (!lease.ended()) return;
  expect_reading(lease);
  ran.ended = now_ - begin;
  ran.how = lease.end_reason == EndReason::released   ? Ran::How::done
            : lease.end_reason == EndReason::rejected ? Ran::How::refused
                                                      : Ran::How::ended;
  if (ran.how == Ran::How::done) ran.got = jobs_[program.job].runs;
  program.tenant->wants -= jobs_[program.job].devices * jobs_[program.job].vram.count;
  programs_.erase(found);
}

void World::claim() {
  for (const LeaseId id : std::exchange(offers_, {})) (void)take(Claim{id});
}

// The readings show the memory of active programs, by which pauses are predicted.
DeviceReading World::reading_of(const std::string& uuid) const {
  const Device& device = state_.devices.by_uuid.at(uuid);
  DeviceReading reading = device.reading;
  reading.processes.clear();
  reading.used = {};
  for (const LeaseId id : device.leases) {
    const Lease* lease = find(state_, id);
    if (lease == nullptr || lease->state != LeaseState::active) continue;
    // No real process has such a pid.
    const ProcessRef process{static_cast<std::int32_t>((1 << 30) + id.number % (1 << 30)), 1};
    reading.processes.push_back({process, lease->vram, id});
    reading.used += lease->vram;
  }
  return reading;
}

// Readings show what has come, and that what was paused is gone.
void World::measure() {
  measure_ = false;
  Snapshot snapshot{.began = now_, .devices = {}, .host = state_.host.memory, .partial = true};
  std::set<std::string> devices = std::exchange(unread_, {});
  for (const LeaseId id : state_.pauses.verifying)
    if (const Lease* lease = find(state_, id)) devices.insert(lease->devices.begin(), lease->devices.end());
  for (const std::string& uuid : devices) snapshot.devices.push_back(reading_of(uuid));
  if (snapshot.devices.empty()) (void)take(Tick{});
  else (void)take(snapshot);
}

// The memory was as it is now until this time.
void World::pass_until(Time at) {
  while (begin + samples_.ends() <= at) sample(samples_.ends());
  if (at <= now_) return;
  waited_ += static_cast<double>(state_.queue.size()) * static_cast<double>((at - now_).count());
  now_ = at;
}

void World::sample(Duration at) {
  const Time then = begin + at;
  const double allocated =
      outcome_.used + static_cast<double>(allocated_.count) * static_cast<double>((then - used_at_).count());
  const double waited =
      waited_ + static_cast<double>(state_.queue.size()) * static_cast<double>((then - now_).count());
  tenants_.entitle(at - samples_.begun());
  bounds_.look_at_turns(state_, setting_.rules, then);
  samples_.add(at, {allocated / 1e9, waited / 1e9, tenants_.held(at, most_drawn_tenants)}, fragmented());
}

Bytes World::fragmented() const {
  double sum = 0;
  std::unordered_map<std::int64_t, std::pair<std::int64_t, double>> known;  // by free memory: total and result
  for (const auto& [uuid, device] : state_.devices.by_uuid) {
    const std::int64_t free = std::max(free_on(state_, device, setting_.rules, now_), Bytes()).count;
    const std::int64_t total = device.reading.total.count;
    auto& [of, result] = known[free];
    if (of != total) of = total, result = placement::fragmented({.free = {free}, .whole = total}, mix_);
    sum += result;
  }
  return {std::llround(sum)};
}

}  // namespace

Outcome run(const std::vector<Job>& jobs, const Setting& setting) { return World(jobs, setting).play(); }

}  // namespace sublet::simulate
