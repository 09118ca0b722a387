// SPDX-License-Identifier: Apache-2.0
// Duration of one decision while N leases wait for a thousand cards: step() for each kind of fact. The raw measure is
// one insert and one erase in a std::map of N entries, in the same run. Both are processor times. Prints a table;
// asserts no times.
// step_bench [EVENTS [MOST_QUEUED [CARDS [TENANTS]]]]
#include "core/step.h"
#include "explain/explain.h"
#include "explain/dry_run.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace sublet;
using namespace sublet::core;

// The processor time of this thread, so that other programs on the machine are not measured.
struct Clock {
  static std::chrono::nanoseconds now() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
  }
};

int cards = 1000;
int tenants = 0;  // entries of the tree, below a hundred organisations; 0: none, so that each user is a tenant
constexpr Bytes card_size = 80 * GiB;

class Timings {
 public:
  template <typename Work>
  auto operator()(const Work& work) {
    const auto begun = Clock::now();
    auto result = work();
    ns_.push_back((Clock::now() - begun).count());
    return result;
  }
  double microseconds(double quantile) {
    std::sort(ns_.begin(), ns_.end());
    return static_cast<double>(ns_[static_cast<std::size_t>(quantile * static_cast<double>(ns_.size() - 1))]) / 1000;
  }

 private:
  std::vector<std::int64_t> ns_;
};

std::string card(int index) { return fmt::format("GPU-{:08x}-0000-0000-0000-000000000000", index); }

// Full cards, and `queued` leases that wait for them. When a lease ends, the waiting leases that fit are granted.
class Machine {
 public:
  explicit Machine(std::size_t queued) : queued_(queued) {
    step(snapshot());
    if (tenants > 0) step(SetTenants{tree()});
    Timings unused;
    refill(unused);
  }

  // Adds leases until the queue is as long as before; leases that find free memory at once are active.
  void refill(Timings& timings) {
    while (state_.queue.size() < queued_) {
      const Submit fact{wish(), true, true};
      const Plan plan = timings([&] { return step(fact); });
      if (core::find(state_, *plan.outcome)->reserves()) active_.push_back(*plan.outcome);
    }
  }

  void end_one(Timings& timings) {
    LeaseId id;
    do {
      std::swap(active_[random_() % active_.size()], active_.back());
      id = active_.back();
      active_.pop_back();
    } while (!reserves(id));
    const Plan plan = timings([&] { return step(Release{id, 0, true}); });
    for (const Lease& lease : plan.changed)
      if (lease.reserves()) active_.push_back(lease.id);
  }

  void cancel_one(Timings& timings) {
    const LeaseId id = some_waiter();
    timings([&] { return step(Release{id}); });
  }

  void renew_one(Timings& timings) {
    const Renew fact{active_[random_() % active_.size()], 0, std::chrono::hours(1)};
    timings([&] { return step(fact); });
  }

  // Every active lease has one process on each of its cards.
  void measure(Timings& timings) {
    forget_ended();
    const Fact fact = snapshot();
    timings([&] { return step(fact); });
  }

  // From now on every lease has waited so long that memory is reserved for the first.
  void grow_old() {
    now_ = now_ + rules_.reserve_after * 2;
    forget_ended();
    Timings unused;
    active_processes_ = false;
    measure(unused);
    active_processes_ = true;
    active_.clear();
    for (const auto& [id, lease] : state_.leases.by_id)
      if (lease.reserves()) active_.push_back(id);
    std::sort(active_.begin(), active_.end());
  }

  void explain_one(Timings& timings) {
    const Lease& lease = *core::find(state_, some_waiter());
    timings([&] { return explain::queue_info(state_, rules_, lease, now_); });
  }

  // Makes a projection for a new lease.
  void dry_run_one(Timings& timings) {
    const Submit fact{wish(), true, true};
    timings([&] { return explain::dry_run(state_, rules_, fact, now_); });
  }

  std::size_t active() const { return active_.size(); }

 private:
  Plan step(const Fact& fact) {
    now_ = now_ + std::chrono::microseconds(10);
    return core::step(state_, rules_, fact, now_);
  }

  // Some leases end without a request: spot leases, for higher tiers.
  void forget_ended() {
    std::erase_if(active_, [this](LeaseId id) { return !reserves(id); });
  }

  bool reserves(LeaseId id) const {
    const Lease* lease = core::find(state_, id);
    return lease != nullptr && lease->reserves();
  }

  Lease wish() {
    Lease lease;
    lease.uid = static_cast<std::uint32_t>(1000 + random_() % 100);
    lease.user = "user" + std::to_string(lease.uid);
    lease.tenant = tenants > 0 ? "tenant" + std::to_string(random_() % static_cast<unsigned>(tenants)) : lease.user;
    lease.consumer = "consumer" + std::to_string(random_() % 50);
    lease.command = "python3 train.py --batch 64 --epochs 20";
    lease.token = "0123456789abcdef0123456789abcdef";
    lease.priority = static_cast<int>(random_() % 201) - 100;
    lease.tier = static_cast<Tier>(random_() % 4);
    lease.vram = static_cast<std::int64_t>(1 + random_() % 64) * GiB;
    if (random_() % 8 == 0) lease.wanted_devices = {card(static_cast<int>(random_() % static_cast<unsigned>(cards)))};
    else if (random_() % 8 == 0) lease.device_count = static_cast<int>(2 + random_() % 7);
    // Half of the leases give a duration, so that estimates have many known ends.
    lease.owner.kind = random_() % 2 == 0 ? OwnerKind::token : OwnerKind::connection;
    lease.ttl = std::chrono::seconds(1200 + random_() % 3600);
    return lease;
  }

  // The waiting leases change with every fact; ids near the newest are mostly waiting.
  LeaseId some_waiter() {
    for (;;) {
      const LeaseId id{1 + random_() % state_.leases.last_id};
      if (state_.queue.contains(id)) return id;
    }
  }

  static std::vector<Tenant> tree() {
    std::vector<Tenant> all;
    for (int i = 0; i < 100; ++i) all.emplace_back().name = "org" + std::to_string(i);
    for (int i = 0; i < tenants; ++i) {
      Tenant& tenant = all.emplace_back();
      tenant.name = "tenant" + std::to_string(i);
      tenant.parent = "org" + std::to_string(i % 100);
      tenant.quota.bytes = 4 * GiB;
      tenant.limit.bytes = 1024 * GiB;
    }
    return all;
  }

  Snapshot snapshot() {
    Snapshot snapshot{.began = now_, .host = {.available = 1024 * GiB}};
    for (int i = 0; i < cards; ++i) {
      DeviceReading reading;
      reading.uuid = card(i);
      reading.name = "Card";
      reading.index = i;
      reading.total = card_size;
      snapshot.devices.push_back(std::move(reading));
    }
    for (const LeaseId id : active_processes_ ? active_ : std::vector<LeaseId>()) {
      const Lease& lease = *core::find(state_, id);
      for (const std::string& uuid : lease.devices) {
        DeviceReading& reading = snapshot.devices[std::stoul(uuid.substr(4, 8), nullptr, 16)];
        const Bytes used{static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(lease.vram.count))};
        reading.used += used;
        reading.processes.push_back({{static_cast<std::int32_t>(id.number), 1}, used, id});
      }
    }
    return snapshot;
  }

  State state_;
  Rules rules_;
  Time now_{1'800'000'000'000'000'000};
  std::mt19937_64 random_{42};
  std::size_t queued_;
  std::vector<LeaseId> active_;
  bool active_processes_ = true;
};

// One card that many equal leases share in time slices: each change on the card leads to a new search for the next
// slice. If leases of lower tiers are there, the waiting leases need so much more memory that some of those must leave
// too.
class Crowd {
 public:
  Crowd(int residents, int below, Bytes ledger) {
    const std::int64_t each = (card_size - rules_.headroom).count * 2 / (2 * residents + 1);
    rules_.ledger_limit = ledger;
    rules_.ledger_user_share = 1;
    measure();
    for (int i = 0; i < below; ++i) add({each / below * (2 + i % 5) / 8}, i, Tier::spot);
    for (int i = 0; i < 2 * residents; ++i) add({i < residents || below == 0 ? each : each * 5 / 4}, i, Tier::standard);
    measure();
  }

  // The number of leases that leave with the next time slice; 0 if no next time slice is found.
  std::size_t leave() const {
    return state_.preemption.slices.empty() ? 0 : state_.preemption.slices.begin()->second.leaves.size();
  }

  // A reading in which active leases use a little less, or more.
  void look(Timings& timings) {
    now_ = now_ + std::chrono::milliseconds(1);
    const Fact fact = reading();
    timings([&] { return core::step(state_, rules_, fact, now_); });
  }

 private:
  void step(const Fact& fact) {
    now_ = now_ + std::chrono::milliseconds(20);
    core::step(state_, rules_, fact, now_);
  }
  void measure() { step(reading()); }

  void add(Bytes vram, int i, Tier tier) {
    Lease lease;
    lease.uid = 1000;
    lease.user = lease.tenant = "user";
    lease.consumer = std::string(to_string(tier)) + std::to_string(i);
    lease.tier = tier;
    lease.vram = vram;
    lease.priority = i % 7;
    lease.owner.kind = OwnerKind::connection;
    step(Submit{lease, true, true});
    const LeaseId id{state_.leases.last_id};
    if (!core::find(state_, id)->reserves()) return;
    const std::int32_t pid = 100 + 2 * i;
    step(Attach{id, 0, {OwnerKind::process, {pid, 1}, {pid - 1, 1}, "/run/exit"}, true, {}});
    programs_.emplace_back(id, pid);
    now_ = now_ + std::chrono::seconds(7);  // they came one after the other, and have had it for as long
    measure();
  }

  Snapshot reading() {
    Snapshot snapshot{.began = now_, .host = {.available = 1024 * GiB}};
    DeviceReading& reading = snapshot.devices.emplace_back();
    reading.uuid = card(0);
    reading.name = "Card";
    reading.total = card_size;
    for (const auto& [id, pid] : programs_) {
      const Bytes used{core::find(state_, id)->vram.count / 2 + static_cast<std::int64_t>(random_() % 1000)};
      reading.used += used;
      reading.processes.push_back({{pid, 1}, used, id});
    }
    return snapshot;
  }

  State state_;
  Rules rules_;
  Time now_{1'800'000'000'000'000'000};
  std::mt19937_64 random_{42};
  std::vector<std::pair<LeaseId, std::int32_t>> programs_;
};

// The raw measure of the machine.
Timings map_reference(std::size_t entries, int events) {
  std::mt19937_64 random(7);
  std::map<std::uint64_t, std::uint64_t> map;
  while (map.size() < entries) map.emplace(random(), 0);
  Timings timings;
  for (int i = 0; i < events; ++i) {
    const std::uint64_t key = random();
    timings([&] { return map.emplace(key, 1).second && map.erase(key) == 1; });
  }
  return timings;
}

void run(std::size_t queued, int events) {
  Timings reference = map_reference(queued, events);
  Machine machine(queued);
  Timings submit, end, cancel, renew, measure, explain, dry_run, old_submit, old_end;
  for (int i = 0; i < events; ++i) {
    machine.end_one(end);
    machine.cancel_one(cancel);
    machine.refill(submit);
    machine.renew_one(renew);
    if (i % 64 == 0) machine.explain_one(explain);
    // Measurements come last: they book processes to the leases, and such leases end only after another measurement.
  }
  machine.grow_old();
  for (int i = 0; i < events; ++i) {
    machine.end_one(old_end);
    machine.refill(old_submit);
  }
  const std::size_t active = machine.active();
  for (int i = 0; i < std::max(events / 64, 1); ++i) machine.measure(measure);
  for (int i = 0; i < std::max(events / 256, 1); ++i) machine.dry_run_one(dry_run);
  const double raw = reference.microseconds(0.5);
  const auto row = [queued, raw](const std::string& event, Timings& timings) {
    const double half = timings.microseconds(0.5);
    fmt::print("{:>8}  {:<32} {:>10.2f} {:>10.2f} {:>12.1f}\n", queued, event, half, timings.microseconds(0.99),
               half / raw);
  };
  row("std::map insert + erase", reference);
  row("submit", submit);
  row("release (active), with grants", end);
  row("submit, all have waited long", old_submit);
  row("release, all have waited long", old_end);
  row("release (queued)", cancel);
  row("renew", renew);
  row(fmt::format("snapshot: {} cards, {} leases", cards, active), measure);
  row("queue_info (place, estimate)", explain);
  row("dry run of a submit", dry_run);
}

}  // namespace

int main(int argc, char** argv) {
  const int events = argc > 1 ? std::max(static_cast<int>(std::strtol(argv[1], nullptr, 10)), 16) : 2000;
  const std::size_t most = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 100'000;
  if (argc > 3) cards = std::max(static_cast<int>(std::strtol(argv[3], nullptr, 10)), 8);
  if (argc > 4) tenants = static_cast<int>(std::strtol(argv[4], nullptr, 10));
  fmt::print("{:>8}  {:<32} {:>10} {:>10} {:>12}\n", "queued", "event", "p50 us", "p99 us", "p50 / map");
  for (std::size_t queued = 100; queued <= most; queued *= 10) run(queued, events);
  const auto turns = [events](const char* title, int residents, int below, Bytes ledger) {
    Crowd crowd(residents, below, ledger);
    Timings look;
    for (int i = 0; i < events; ++i) crowd.look(look);
    fmt::print("{:>8}  {:<32} {:>10.2f} {:>10.2f}\n", residents, fmt::format("{}: {} leave", title, crowd.leave()),
               look.microseconds(0.5), look.microseconds(0.99));
  };
  for (const int residents : {2, 8, 32}) turns("snapshot, turns", residents, 0, 1024 * GiB);
  for (const int residents : {2, 8, 32}) turns("the same, 20 spot", residents, 20, 1024 * GiB);
  for (const int residents : {2, 8, 32}) turns("20 spot, tight ledger", residents, 20, Bytes{card_size.count / 4});
  return 0;
}
