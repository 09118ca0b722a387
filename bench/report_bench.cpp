// SPDX-License-Identifier: Apache-2.0
// Reports over days of leases, and the cost of the meter while 100 leases live. The integrator gets made-up events and
// readings, and its amounts go into a real file, minute by minute. The raw measure of a report is one statement that
// sums up the same leases. A whole report has series, matrix, neighbours and trend.
//   report_bench [DAYS=30] [LEASES A MINUTE=10] [DIRECTORY: of the file, which stays]
#include "meter/file.h"
#include "meter/integrator.h"
#include "meter/report.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

namespace {

using namespace sublet;
using namespace sublet::meter;

constexpr Ms begin = 1'763'942'400'000;  // a Monday
constexpr std::int64_t gib = 1LL << 30;
constexpr int devices = 2;
constexpr std::array<const char*, 8> users{"ana", "ben", "cleo", "dan", "eva", "finn", "gus", "ida"};

double seconds_of(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](timeval time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::string device(int number) { return "GPU-" + std::to_string(number); }

// Leases that arrive at random, wait, hold memory for some minutes and end.
class Load {
 public:
  explicit Load(double leases_a_minute) : gap_(leases_a_minute / minute), next_(begin) {}

  // The next event, in the order of time.
  LeaseFact take() {
    if (facts_.empty() || facts_.top().at >= next_) add();
    LeaseFact fact = facts_.top();
    facts_.pop();
    return fact;
  }
  Ms next_at() {
    if (facts_.empty() || facts_.top().at >= next_) add();
    return facts_.top().at;
  }
  void follow(const LeaseFact& fact) {
    if (fact.state == core::LeaseState::active) live_[fact.lease.number] = fact.devices[0];
    else live_.erase(fact.lease.number);
  }
  Reading reading(Ms at) const {
    Reading reading{at};
    for (int i = 0; i < devices; ++i) reading.devices[device(i)] = {80 * gib, gib, 0};
    for (const auto& [lease, uuid] : live_) {
      const int busy = lease % 3 == 0 ? 0 : 8;
      reading.uses[{uuid, lease}] = {static_cast<std::int64_t>(1 + lease % 4) * gib * 3 / 4, busy};
      Reading::Device& whole = reading.devices[uuid];
      whole.used += reading.uses[{uuid, lease}].used;
      whole.busy_percent = std::min(*whole.busy_percent + busy, 100);
    }
    return reading;
  }

 private:
  struct Later {
    bool operator()(const LeaseFact& a, const LeaseFact& b) const {
      return std::pair(a.at, a.lease) > std::pair(b.at, b.lease);
    }
  };

  void add() {
    LeaseFact fact;
    fact.lease = LeaseId{++last_};
    fact.at = next_;
    fact.state = core::LeaseState::queued;
    const std::size_t who = std::min(last_ * 7 % 13, last_ % 8);
    fact.account = {users[who], "team-" + std::to_string(who % 5), "job-" + std::to_string(last_ % 100)};
    fact.vram = static_cast<std::int64_t>(1 + last_ % 4) * gib;
    facts_.push(fact);
    fact.at += static_cast<Ms>(std::exponential_distribution<>(1.0 / 20'000)(random_));
    fact.state = core::LeaseState::active;
    fact.devices = {device(static_cast<int>(last_ % devices))};
    facts_.push(fact);
    fact.at += 10'000 + static_cast<Ms>(std::exponential_distribution<>(1.0 / 360'000)(random_));
    fact.state = core::LeaseState::ended;
    fact.end_reason = core::EndReason::released;
    facts_.push(fact);
    // Fewer leases by night.
    const double by_day = 1 - 0.8 * std::cos(static_cast<double>(next_ % (24 * hour)) / (24.0 * hour) * 6.2832);
    next_ += static_cast<Ms>(std::exponential_distribution<>(gap_ * by_day)(random_)) + 1;
  }

  double gap_;  // leases a millisecond
  Ms next_;
  std::uint64_t last_ = 0;
  std::mt19937 random_{7};
  std::priority_queue<LeaseFact, std::vector<LeaseFact>, Later> facts_;
  std::map<std::uint64_t, std::string> live_;
};

void put(File& file, Integrator& meter, Ms at) {
  const Deltas deltas = meter.flush(at);
  if (const auto done = file.put(deltas, {"bench", 1, meter.write().dump(), at}); !done) {
    std::fprintf(stderr, "report_bench: %s\n", done.error().detail.c_str());
    std::exit(1);
  }
}

// Runs until `end`, with a reading and a flush every so often.
void run(File& file, Integrator& meter, Load& load, Ms end, Ms interval, Ms flush) {
  for (Ms at = meter.now(); at < end;) {
    const Ms reading = at - at % interval + interval;
    while (load.next_at() <= reading) {
      const LeaseFact fact = load.take();
      meter.take(fact);
      load.follow(fact);
    }
    meter.take(load.reading(reading));
    at = reading;
    if (at % flush != 0) continue;
    put(file, meter, at);
    if (!file.prune(at, 0, 0, 20'000)) std::exit(1);
  }
}

struct Line {
  const char* name;
  By by;
  Ms length;
  bool whole;
};

void report(File& file, Ms end, int days) {
  std::printf("%-28s %10s %14s\n", "report", "seconds", "ratio to raw");
  const Ms all = days * 24 * hour;
  for (const Line& line :
       {Line{"by user", By::user, all, false}, Line{"by user, whole", By::user, all, true},
        Line{"by consumer, whole", By::consumer, all, true}, Line{"by device", By::device, all, false},
        Line{"by user, 1 day", By::user, 24 * hour, true}}) {
    std::vector<double> ours, raw;
    for (int round = 0; round < 3; ++round) {
      auto start = std::chrono::steady_clock::now();
      const auto sum = file.database().integer("SELECT sum(leased / 1048576 + paused / 1048576 + peak) FROM leases");
      raw.push_back(seconds_of(start));
      start = std::chrono::steady_clock::now();
      const auto answer = read_report(file, {end - line.length, end, end, line.by, line.whole, {}, {}, {}});
      ours.push_back(seconds_of(start));
      if (!sum || !answer || answer->at("rows").empty()) std::exit(1);
    }
    std::ranges::sort(ours);
    std::ranges::sort(raw);
    std::printf("%-28s %10.3f %14.2f\n", line.name, ours[1], ours[1] / raw[1]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const double days = argc > 1 ? std::atof(argv[1]) : 30;
  const double leases = argc > 2 ? std::atof(argv[2]) : 10;
  char temporary[] = "/tmp/sublet-meter-XXXXXX";
  if (::mkdtemp(temporary) == nullptr || days <= 0 || leases <= 0) return 2;
  const std::string place = argc > 3 ? argv[3] : temporary;
  bool unusable = false;
  auto file = File::open(place + "/meter.db", unusable);
  if (!file) return 1;
  Integrator meter(begin);
  Load load(leases);
  const Ms end = begin + static_cast<Ms>(days * 24) * hour;
  auto start = std::chrono::steady_clock::now();
  run(**file, meter, load, end, minute, 10 * minute);
  const auto stored = (*file)->database().integer("SELECT count(*) FROM leases");
  if (!stored) return 1;
  std::printf("%.0f days with %lld leases, %.1f MB, filled in %.1f s\n", days, static_cast<long long>(*stored),
              static_cast<double>(std::filesystem::file_size(place + "/meter.db")) / 1e6, seconds_of(start));
  report(**file, end, std::max(1, static_cast<int>(days)));
  file->reset();

  // Another file: 100 leases live, with a reading each second.
  auto busy = File::open(std::string(temporary) + "/busy.db", unusable);
  if (!busy) return 1;
  Integrator own(begin);
  Load many(9);  // at noon
  run(**busy, own, many, begin + 12 * hour, minute, minute);
  const double before = cpu_seconds();
  run(**busy, own, many, begin + 12 * hour + 10 * minute, 1000, minute);
  std::printf("with %zu leases: %.3f %% of a core\n", own.live(), 100 * (cpu_seconds() - before) / 600);
  busy->reset();
  std::filesystem::remove_all(temporary);
  return 0;
}
