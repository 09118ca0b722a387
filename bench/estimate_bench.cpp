// SPDX-License-Identifier: Apache-2.0
// Quality of the estimated start times. Seeded runs of the core in simulated time: programs of several consumers come,
// run for their typical times, and end. The estimate at the begin of a wait is compared with the start. "Unknown" is a
// valid answer; a wrong certainty is not. A second table has programs that can be paused: higher tiers preempt lower
// tiers, and equal leases take time slices. Prints two tables; asserts nothing.
// estimate_bench [RUNS [LEASES]]
#include "core/step.h"
#include "explain/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

using namespace sublet;
using namespace sublet::core;

// Programs of one name: their bytes, their median run time, and the spread.
struct Kind {
  const char* consumer;
  std::int64_t gib;
  double median_seconds;
  double spread;  // standard deviation of the logarithm
  bool limited;   // has a time limit instead of a history
  Tier tier;      // whether its programs can be paused
};
constexpr Kind kinds[] = {{"train", 20, 1800, 0.15, false, Tier::batch},
                          {"tune", 12, 600, 0.4, false, Tier::standard},
                          {"infer", 6, 120, 0.8, false, Tier::interactive},
                          {"notebook", 8, 900, 1.2, false, Tier::interactive},
                          {"nightly", 16, 1200, 0.3, true, Tier::batch}};
// A pause and a resume at so many bytes a second, with a spread.
constexpr double out_gib_s = 2.0, back_gib_s = 5.0, jitter = 0.2;

struct Waited {
  std::optional<Duration> estimate;
  Duration real{};
  bool made = false;  // the estimate counted on a preemption
};

class Run {
 public:
  Run(std::uint64_t seed, bool yield) : random_(seed), yield_(yield) {
    // A notebook runs while a person uses it; the others have run before, half of the time.
    step(snapshot());
  }

  void go(int leases, std::vector<Waited>& out) {
    std::exponential_distribution<double> gap(1.0 / 260);
    Time next = now_;
    Time look = now_;
    int left = leases;
    while (left > 0 || !waiting_.empty()) {
      if (left == 0 && ends_.empty()) break;  // such a lease could never start
      Time at = look;
      if (left > 0) at = std::min(at, next);
      if (!ends_.empty()) at = std::min(at, ends_.begin()->first);
      if (!later_.empty()) at = std::min(at, later_.begin()->first);
      if (yield_) at = std::min(at, wake_at_);
      now_ = std::max(now_, at);
      if (!later_.empty() && later_.begin()->first <= now_) {
        const Fact fact = later_.begin()->second;
        later_.erase(later_.begin());
        carry_out(fact);
      } else if (yield_ && wake_at_ <= now_) {
        step(Tick{});
      } else if (!ends_.empty() && ends_.begin()->first <= now_) {
        const LeaseId id = ends_.begin()->second;
        ends_.erase(ends_.begin());
        running_.erase(id);
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
    Snapshot snapshot{.began = now_, .host = {.available = 1024 * GiB}};
    for (int i = 0; i < 3; ++i) {
      DeviceReading reading;
      reading.uuid = fmt::format("GPU-{}", i);
      reading.name = "Card";
      reading.index = i;
      reading.total = 24 * GiB;
      for (const auto& [id, process] : running_) {
        const Lease* lease = core::find(state_, id);
        if (!yield_ || lease == nullptr || yielded_.contains(id)) continue;
        if (std::count(lease->devices.begin(), lease->devices.end(), reading.uuid) == 0) continue;
        reading.processes.push_back({process, lease->vram, id});
        reading.used += lease->vram;
      }
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
    // People set limits: round numbers, and usually too long.
    if (kind.limited) lease.ttl = std::chrono::seconds(1200);
    lease.owner.kind = OwnerKind::process;
    lease.owner.process = {++pid_, 1};
    if (yield_) lease.owner.keeper = {++pid_, 1};
    if (yield_) lease.tier = kind.tier;
    const Plan plan = step(Submit{lease, true, true});
    const LeaseId id = *plan.outcome;
    runs_[id] = run;
    const Lease* known = core::find(state_, id);
    if (known == nullptr || known->state != LeaseState::queued) return started(id);
    const explain::QueueInfo info = explain::queue_info(state_, rules_, *known, now_);
    waiting_[id] = {info.eta, now_,
                    info.basis.find("its pause takes") != std::string::npos ||
                        info.basis.find("their pauses take") != std::string::npos};
  }

  void started(LeaseId id) {
    const Lease& lease = *core::find(state_, id);
    running_[id] = lease.owner.process;
    const Time end = now_ + runs_.at(id);
    // Where programs are paused, a limit stands still too: the core reports its end.
    ends_.emplace(lease.expires_at && !yield_ ? std::min(end, *lease.expires_at) : end, id);
    const auto waited = waiting_.find(id);
    if (waited == waiting_.end()) return;
    done_[id] = {waited->second.estimate, now_ - waited->second.since, waited->second.made};
    waiting_.erase(waited);
  }

  // ------------------------------------------------------------------------------ programs that can be paused

  Duration moving(LeaseId id, double gib_s) {
    const Lease& lease = *core::find(state_, id);
    std::normal_distribution<double> factor(1.0, jitter);
    const auto gib = static_cast<double>(lease.vram.count) / static_cast<double>(GiB.count) *
                     static_cast<double>(lease.devices.size());
    const double seconds = (0.5 + gib / gib_s) * std::max(factor(random_), 0.3);
    return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
  }

  // The remaining work of a program stands still while it is parked.
  void stop_clock(LeaseId id) {
    const auto end = std::find_if(ends_.begin(), ends_.end(), [id](const auto& e) { return e.second == id; });
    if (end == ends_.end()) return;
    left_[id] = end->first - now_;
    ends_.erase(end);
  }

  void obey(const Plan& plan) {
    for (const Action& action : plan.actions) {
      if (const auto* park = std::get_if<Park>(&action)) {
        stop_clock(park->lease);
        later_.emplace(now_ + moving(park->lease, out_gib_s), AttemptEvent{park->lease, Parked{true}});
      } else if (const auto* unpark = std::get_if<Unpark>(&action)) {
        later_.emplace(now_ + moving(unpark->lease, back_gib_s), AttemptEvent{unpark->lease, Unparked{}});
      } else if (const auto* signal = std::get_if<SignalProgram>(&action)) {
        later_.emplace(now_, ProgramEnded{signal->lease, std::nullopt, true});
      } else if (std::holds_alternative<TakeSnapshot>(action)) {
        later_.emplace(now_ + std::chrono::milliseconds(20), Tick{});
      }
    }
  }

  void carry_out(const Fact& fact) {
    const auto* back = std::get_if<AttemptEvent>(&fact);
    if (back != nullptr && std::holds_alternative<Parked>(back->what)) {
      yielded_.insert(back->lease);
    } else if (back != nullptr) {
      yielded_.erase(back->lease);
      if (const auto left = left_.find(back->lease); left != left_.end()) {
        ends_.emplace(now_ + left->second, back->lease);
        left_.erase(left);
      }
    }
    if (const auto* ended = std::get_if<ProgramEnded>(&fact)) {
      stop_clock(ended->lease);
      left_.erase(ended->lease);
      running_.erase(ended->lease);
    }
    step(std::holds_alternative<Tick>(fact) ? Fact(snapshot()) : fact);
  }

  Plan step(const Fact& fact) {
    Plan plan = core::step(state_, rules_, fact, now_);
    wake_at_ = std::max(plan.wake_at, now_ + std::chrono::milliseconds(1));
    if (yield_) obey(plan);
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
  struct Waiting {
    std::optional<Duration> estimate;
    Time since;
    bool made;
  };
  std::map<LeaseId, Waiting> waiting_;
  std::map<LeaseId, Waited> done_;
  const bool yield_;
  std::multimap<Time, Fact> later_;  // facts on their way to the core; Tick: a snapshot
  Time wake_at_ = Time::never();
  std::map<LeaseId, ProcessRef> running_;
  std::set<LeaseId> yielded_;
  std::map<LeaseId, Duration> left_;  // remaining run time of the parked programs
};

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1))];
}

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

void row(const std::string& what, const std::vector<Waited>& all) {
  std::vector<double> error, relative, waits;
  double sum = 0;  // of the relative errors
  std::size_t late = 0;
  for (const Waited& waited : all) {
    waits.push_back(seconds(waited.real));
    if (!waited.estimate) continue;
    const double off = std::abs(seconds(waited.real - *waited.estimate));
    error.push_back(off);
    relative.push_back(off / std::max(seconds(waited.real), 1.0));
    sum += relative.back();
    // A certain estimate, and the wait took more than twice as long and five minutes more.
    late += seconds(waited.real) > 2 * seconds(*waited.estimate) + 300;
  }
  const auto percent = [](std::size_t part, std::size_t of) {
    return of == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(of);
  };
  fmt::print("{:<26} {:>7} {:>9.0f} {:>9.1f} {:>9.0f} {:>9.0f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.1f}\n", what, all.size(),
             quantile(waits, 0.5), percent(all.size() - error.size(), all.size()), quantile(error, 0.5),
             quantile(error, 0.9), quantile(relative, 0.5), quantile(relative, 0.9),
             error.empty() ? 0.0 : sum / static_cast<double>(error.size()), percent(late, error.size()));
}

void table(int runs, int leases, bool yield) {
  std::vector<Waited> all, shorter, longer, made;
  for (int seed = 1; seed <= runs; ++seed) Run(static_cast<std::uint64_t>(seed), yield).go(leases, all);
  for (const Waited& waited : all) {
    (waited.real < std::chrono::minutes(10) ? shorter : longer).push_back(waited);
    if (waited.made) made.push_back(waited);
  }
  fmt::print("{} runs of {} leases on 3 cards of 24 GiB{}\n", runs, leases, yield ? "; all can be paused" : "");
  fmt::print("{:<26} {:>7} {:>9} {:>9} {:>9} {:>9} {:>8} {:>8} {:>8} {:>8}\n", "who waited", "waits", "median s",
             "unknown %", "error p50", "error p90", "rel p50", "rel p90", "rel mean", "late %");
  row("all", all);
  row("for less than 10 min", shorter);
  row("for 10 min or more", longer);
  if (yield) row("until others would yield", made);
}

}  // namespace

int main(int argc, char** argv) {
  const int runs = argc > 1 ? std::max(static_cast<int>(std::strtol(argv[1], nullptr, 10)), 1) : 200;
  const int leases = argc > 2 ? std::max(static_cast<int>(std::strtol(argv[2], nullptr, 10)), 1) : 120;
  table(runs, leases, false);
  table(runs, leases, true);
  return 0;
}
