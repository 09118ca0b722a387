// SPDX-License-Identifier: Apache-2.0
// Decisions on thousands of devices, in processor time: one decision beside a long queue, a whole crowd that pauses
// another one, and the simulator's decisions in a second. Prints figures; asserts no times.
// cluster_bench [DEVICES [QUEUED [EVENTS [PAUSED [TRACE]]]]]: TRACE is a Philly file of docs/placement.md.
#include "core/step.h"
#include "simulate/run.h"
#include "state/leases.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace sublet;
using namespace sublet::core;

constexpr Bytes card_size = 80 * GiB;

// The processor time of this thread.
double seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

Snapshot cards(int count, Time now) {
  Snapshot snapshot{.began = now, .devices = {}, .host = {.available = 1024 * GiB}};
  for (int i = 0; i < count; ++i) {
    DeviceReading& reading = snapshot.devices.emplace_back();
    reading.uuid = fmt::format("GPU-{:08x}-0000-0000-0000-000000000000", i);
    reading.name = "Card";
    reading.index = i;
    reading.total = card_size;
  }
  return snapshot;
}

// Full devices, and a queue for them. Leases end, and the waiting leases that fit are granted.
class Crowd {
 public:
  Crowd(int devices, std::size_t queued) : queued_(queued) {
    rules_.max_age = std::chrono::hours(1000);
    step(cards(devices, now_));
    while (state_.queue.size() < queued_) submit();
  }

  void submit() {
    Lease lease;
    lease.uid = static_cast<std::uint32_t>(1000 + random_() % 100);
    lease.user = lease.tenant = "user" + std::to_string(lease.uid);
    lease.consumer = "consumer" + std::to_string(random_() % 50);
    lease.vram = static_cast<std::int64_t>(1 + random_() % 64) * GiB;
    lease.priority = static_cast<int>(random_() % 201) - 100;
    if (random_() % 8 == 0) lease.device_count = static_cast<int>(2 + random_() % 7);
    lease.owner.kind = OwnerKind::token;
    const Plan plan = step(Submit{std::move(lease), true, true});
    if (plan.outcome && find(state_, *plan.outcome)->reserves()) active_.push_back(*plan.outcome);
  }

  // An end with the grants that follow, and new requests until the queue is as long as before.
  void turn(std::vector<double>& took) {
    std::swap(active_[random_() % active_.size()], active_.back());
    const double begun = seconds();
    const Plan plan = step(Release{active_.back(), 0, true});
    took.push_back(seconds() - begun);
    active_.pop_back();
    for (const Lease& lease : plan.changed)
      if (lease.reserves()) active_.push_back(lease.id);
    while (state_.queue.size() < queued_) {
      const double before = seconds();
      submit();
      took.push_back(seconds() - before);
    }
  }

 private:
  Plan step(const Fact& fact) {
    now_ = now_ + std::chrono::microseconds(10);
    return core::step(state_, rules_, fact, now_);
  }

  State state_;
  Rules rules_;
  Time now_{1'800'000'000'000'000'000};
  std::mt19937_64 random_{42};
  std::size_t queued_;
  std::vector<LeaseId> active_;
};

void decisions(int devices, std::size_t queued, int events) {
  Crowd crowd(devices, queued);
  std::vector<double> took;
  for (int i = 0; i < events; ++i) crowd.turn(took);
  std::ranges::sort(took);
  const auto at = [&took](double part) {
    return 1e6 * took[static_cast<std::size_t>(part * static_cast<double>(took.size() - 1))];
  };
  fmt::print("one decision, {} queued, {} devices: p50 {:.1f} us, p99 {:.1f} us, most {:.1f} us\n", queued, devices,
             at(0.5), at(0.99), at(1));
}

void report(const char* what, const std::vector<simulate::Job>& jobs, const simulate::Setting& setting) {
  const double begun = seconds();
  const simulate::Outcome outcome = simulate::run(jobs, setting);
  const double took = seconds() - begun;
  fmt::print("{}: {:.2f} s, {} decisions, {:.0f} in a second, {} pauses\n", what, took, outcome.events,
             static_cast<double>(outcome.events) / took, outcome.pauses);
}

simulate::Job job(Duration arrives, Duration runs, Bytes vram, Tier tier) {
  simulate::Job job;
  job.arrives = arrives;
  job.runs = runs;
  job.vram = vram;
  job.devices = 1;
  job.tier = tier;
  job.user = "user";
  return job;
}

// As many urgent leases as there are devices, each of which has a lease of a lower tier.
void reclaim(int devices) {
  std::vector<simulate::Job> jobs;
  const Bytes most = card_size - 2 * GiB;
  for (int i = 0; i < devices; ++i) jobs.push_back(job({}, std::chrono::hours(10), most, Tier::batch));
  for (int i = 0; i < devices; ++i)
    jobs.push_back(job(std::chrono::minutes(1), std::chrono::hours(1), most, Tier::interactive));
  simulate::Setting setting;
  setting.devices.assign(static_cast<std::size_t>(devices), card_size);
  setting.rules.ledger_limit = devices * card_size;
  setting.rules.ledger_user_share = 1;
  report(fmt::format("{} leases pause {} others", devices, devices).c_str(), jobs, setting);
}

std::vector<simulate::Job> crowd_of_jobs(std::size_t count) {
  std::mt19937_64 random(42);
  std::vector<simulate::Job> jobs;
  for (std::size_t i = 0; i < count; ++i)
    jobs.push_back(job(std::chrono::seconds(static_cast<std::int64_t>(i) * 2),
                       std::chrono::seconds(60 + static_cast<std::int64_t>(random() % 3600)),
                       static_cast<std::int64_t>(1 + random() % 64) * GiB, Tier::standard));
  return jobs;
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int at, int otherwise) {
    return argc > at ? std::max(static_cast<int>(std::strtol(argv[at], nullptr, 10)), 8) : otherwise;
  };
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const int devices = number(1, 10'000), events = number(3, 2000);
  decisions(devices, static_cast<std::size_t>(number(2, 10'000)), events);
  reclaim(number(4, 100));
  simulate::Setting setting;
  setting.devices.assign(static_cast<std::size_t>(std::min(devices, 600)), card_size);
  const auto jobs = crowd_of_jobs(static_cast<std::size_t>(10 * events));
  report("simulator, time slices", jobs, setting);
  setting.rules.automatic = false;
  report("simulator, no pauses", jobs, setting);
  if (argc <= 5) return 0;
  const auto trace = simulate::read_philly(argv[5], card_size - GiB);
  if (!trace) return fmt::print("SKIPPED: {}\n", trace.error().detail), 0;
  report("Philly, no pauses", *trace, setting);
  return 0;
}
