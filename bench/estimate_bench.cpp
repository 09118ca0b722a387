// SPDX-License-Identifier: Apache-2.0
// How good the estimates of a start are: seeded runs of the core in simulated time, where programs of several consumers
// come, run for as long as theirs do, and end. What was estimated when a lease began to wait is compared with when it
// started. An unknown is an answer; a wrong certainty is not one. Prints a table; asserts nothing.
//   estimate_bench [RUNS [LEASES]]
#include "core/explain.h"
#include "core/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace sublet;
using namespace sublet::core;

// Programs of one name: how much they take, how long they run (the median), and how much that varies.
struct Kind {
  const char* consumer;
  std::int64_t gib;
  double median_seconds;
  double spread;  // of the logarithm
  bool limited;   // has a time limit instead of a history
};
constexpr Kind kinds[] = {{"train", 20, 1800, 0.15, false},
                          {"tune", 12, 600, 0.4, false},
                          {"infer", 6, 120, 0.8, false},
                          {"notebook", 8, 900, 1.2, false},
                          {"nightly", 16, 1200, 0.3, true}};

struct Waited {
  std::optional<Duration> estimate;
  Duration real{};
};

class Run {
 public:
  explicit Run(std::uint64_t seed) : random_(seed) {
    // A notebook runs for as long as somebody looks at it; the others have run before, half of the time.
    step(snapshot());
  }

  void go(int leases, std::vector<Waited>& out) {
    std::exponential_distribution<double> gap(1.0 / 260);
    Time next = now_;
    Time look = now_;
    int left = leases;
    while (left > 0 || !waiting_.empty()) {
      if (left == 0 && ends_.empty()) break;  // nobody could ever start
      Time at = look;
      if (left > 0) at = std::min(at, next);
      if (!ends_.empty()) at = std::min(at, ends_.begin()->first);
      now_ = std::max(now_, at);
      if (!ends_.empty() && ends_.begin()->first <= now_) {
        const LeaseId id = ends_.begin()->second;
        ends_.erase(ends_.begin());
        step(ProgramEnded{id, 0, false});
      } else if (left > 0 && next <= now_) {
        submit();
        --left;
        next = now_ + std::chrono::nanoseconds(static_cast<std::int64_t>(gap(random_) * 1e9));
      } else {
        step(snapshot());
        look = now_ + std::chrono::seconds(5);
      }
    }
    for (const auto& [id, waited] : done_) out.push_back(waited);
  }

 private:
  Snapshot snapshot() const {
    Snapshot snapshot{now_, {}};
    for (int i = 0; i < 3; ++i) {
      DeviceReading reading;
      reading.uuid = fmt::format("GPU-{}", i);
      reading.name = "Card";
      reading.index = i;
      reading.total = 24 * GiB;
      snapshot.devices.push_back(std::move(reading));
    }
    return snapshot;
  }

  void submit() {
    const Kind& kind = kinds[random_() % std::size(kinds)];
    Lease lease;
    lease.user = lease.tenant = "user";
    lease.consumer = kind.limited ? "" : kind.consumer;
    lease.vram = kind.gib * GiB;
    if (random_() % 12 == 0) lease.device_count = 2;
    std::lognormal_distribution<double> seconds(std::log(kind.median_seconds), kind.spread);
    const auto run = std::chrono::nanoseconds(static_cast<std::int64_t>(seconds(random_) * 1e9));
    // A limit is set by people: round, and rather too long.
    if (kind.limited) lease.ttl = std::chrono::seconds(1200);
    lease.owner.kind = OwnerKind::process;
    lease.owner.process = {++pid_, 1};
    const Plan plan = step(Submit{lease, true, true});
    const LeaseId id = *plan.outcome;
    runs_[id] = run;
    if (state_.find(id)->state == LeaseState::queued) {
      waiting_[id] = {queue_info(state_, rules_, *state_.find(id), now_).eta, now_};
    } else {
      started(id);
    }
  }

  void started(LeaseId id) {
    const Lease& lease = *state_.find(id);
    const Time end = now_ + runs_.at(id);
    ends_.emplace(lease.expires_at ? std::min(end, *lease.expires_at) : end, id);
    const auto waited = waiting_.find(id);
    if (waited == waiting_.end()) return;
    done_[id] = {waited->second.first, now_ - waited->second.second};
    waiting_.erase(waited);
  }

  Plan step(const Fact& fact) {
    Plan plan = core::step(state_, rules_, fact, now_);
    for (const Lease& lease : plan.changed) {
      if (lease.state == LeaseState::offered) step(Claim{lease.id});
      else if (lease.state == LeaseState::active && waiting_.contains(lease.id)) started(lease.id);
    }
    return plan;
  }

  std::mt19937_64 random_;
  State state_;
  Rules rules_;
  Time now_{1'800'000'000'000'000'000};
  std::int32_t pid_ = 1000;
  std::map<LeaseId, Duration> runs_;
  std::multimap<Time, LeaseId> ends_;
  std::map<LeaseId, std::pair<std::optional<Duration>, Time>> waiting_;
  std::map<LeaseId, Waited> done_;
};

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

void row(const std::string& what, const std::vector<Waited>& all) {
  std::vector<double> error, relative, waits;
  std::size_t late = 0;
  for (const Waited& waited : all) {
    waits.push_back(seconds(waited.real));
    if (!waited.estimate) continue;
    const double off = std::abs(seconds(waited.real - *waited.estimate));
    error.push_back(off);
    relative.push_back(off / std::max(seconds(waited.real), 1.0));
    // Said with certainty, and it took more than twice as long and five minutes more.
    late += seconds(waited.real) > 2 * seconds(*waited.estimate) + 300;
  }
  const auto percent = [](std::size_t part, std::size_t of) {
    return of == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(of);
  };
  fmt::print("{:<26} {:>7} {:>9.0f} {:>9.1f} {:>9.0f} {:>9.0f} {:>8.2f} {:>8.2f} {:>8.1f}\n", what, all.size(),
             quantile(waits, 0.5), percent(all.size() - error.size(), all.size()), quantile(error, 0.5),
             quantile(error, 0.9), quantile(relative, 0.5), quantile(relative, 0.9), percent(late, error.size()));
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::max(static_cast<int>(std::strtol(argv[1], nullptr, 10)), 1) : 200;
  const int leases = argc > 2 ? std::max(static_cast<int>(std::strtol(argv[2], nullptr, 10)), 1) : 120;
  std::vector<Waited> all, shorter, longer;
  for (int seed = 1; seed <= runs; ++seed) Run(static_cast<std::uint64_t>(seed)).go(leases, all);
  for (const Waited& waited : all) (waited.real < std::chrono::minutes(10) ? shorter : longer).push_back(waited);
  fmt::print("{} runs of {} leases on 3 cards of 24 GiB\n", runs, leases);
  fmt::print("{:<26} {:>7} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8}\n", "who waited", "waits", "median s", "unknown %",
             "error p50", "error p90", "rel p50", "rel p90", "late %");
  row("all", all);
  row("for less than 10 min", shorter);
  row("for 10 min or more", longer);
  return 0;
}
