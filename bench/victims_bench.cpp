// SPDX-License-Identifier: Apache-2.0
// Duration of the choice of victims. A more urgent lease comes to full cards whose leases may all be paused, and the
// cheapest sufficient set of victims on the best card is chosen. The first table has the search alone, the second the
// whole decision. The raw measure is an exhaustive search of the largest permitted size, in the same run. All are
// processor times. Prints two tables; asserts no times.
// victims_bench [ROUNDS]
#include "core/step.h"
#include "state/cover.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace sublet;
using namespace sublet::core;

// So large that the residues of parked programs matter little, even of a thousand programs.
constexpr int consumers = 50;
constexpr Bytes card_size = 1000 * GiB, most_promised = 990 * GiB;

std::int64_t processor_ns() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

class Timings {
 public:
  template <typename Work>
  auto operator()(const Work& work) {
    const std::int64_t begun = processor_ns();
    auto result = work();
    ns_.push_back(processor_ns() - begun);
    return result;
  }
  double microseconds(double quantile) {
    std::sort(ns_.begin(), ns_.end());
    return static_cast<double>(ns_[static_cast<std::size_t>(quantile * static_cast<double>(ns_.size() - 1))]) / 1000;
  }

 private:
  std::vector<std::int64_t> ns_;
};

// `count` sizes that together fill a card, the largest seven times the smallest.
std::vector<Bytes> sizes(std::size_t count, std::mt19937_64& random) {
  std::vector<std::int64_t> parts;
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += parts.emplace_back(1000 + static_cast<std::int64_t>(random() % 6000));
  std::vector<Bytes> sizes;
  for (const std::int64_t part : parts) sizes.emplace_back(most_promised.count / sum * part);
  return sizes;
}

// A random need between a tenth and nine tenths of a card.
Bytes some_need(std::mt19937_64& random) {
  return Bytes{most_promised.count / 100 * static_cast<std::int64_t>(10 + random() % 81)};
}

Timings search(std::size_t count, int rounds) {
  std::mt19937_64 random(count);
  Timings timings;
  for (int i = 0; i < rounds; ++i) {
    std::vector<Candidate> candidates;
    for (const Bytes size : sizes(count, random)) {
      const auto used = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(size.count));
      candidates.push_back({size, Duration(700'000'000 + used / 4)});  // a quarter of a second for each GiB
    }
    const Bytes need = some_need(random);
    timings([&] { return cheapest_cover(candidates, need); });
  }
  return timings;
}

std::string card(int index) { return fmt::format("GPU-{:08x}-0000-0000-0000-000000000000", index); }

// Full cards, with `candidates` pausable programs on each.
class Machine {
 public:
  Machine(int cards, std::size_t candidates) : random_(candidates) {
    state_ = State::load({}, {}, 0, rules_, now_, earlier_moves());
    for (int i = 0; i < cards; ++i) {
      DeviceReading& reading = snapshot_.devices.emplace_back();
      reading.uuid = card(i);
      reading.name = "Card";
      reading.index = i;
      reading.total = card_size;
    }
    rules_.ledger_limit = 100'000 * GiB;
    measure();
    for (DeviceReading& reading : snapshot_.devices) {
      for (const Bytes size : sizes(candidates, random_)) {
        const LeaseId id = *step(Submit{program(size, reading.uuid), true, true}).outcome;
        const Bytes used{static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(size.count))};
        reading.used += used;
        reading.processes.push_back({{pid_, 1}, used, id});
      }
    }
    measure();
  }

  // A preemptor comes, finds its victims, and goes.
  void ask(Timings& timings) {
    now_ = now_ + std::chrono::minutes(1);  // the last victim is eligible again
    measure();
    Lease preemptor;
    preemptor.user = preemptor.tenant = "user";
    preemptor.consumer = "urgent";
    preemptor.tier = Tier::interactive;
    preemptor.vram = some_need(random_);
    preemptor.owner.kind = OwnerKind::connection;
    const Submit fact{preemptor, true, true};
    const Plan plan = timings([&] { return step(fact); });
    std::vector<LeaseId> asked;
    for (const Action& action : plan.actions)
      if (const auto* park = std::get_if<Park>(&action)) asked.push_back(park->lease);
    if (asked.size() != 1) std::abort();  // a first victim is ordered to pause
    step(Release{*plan.outcome});
    const Parked refused{.done = false, .detail = "it is traced", .undone = true, .code = ObstacleCode::not_begun};
    step(AttemptEvent{asked.front(), refused});
    step(AttemptEvent{asked.front(), Unparked{}});
  }

 private:
  // A full history of each consumer's pauses, from which the core predicts.
  std::vector<LearnedMove> earlier_moves() {
    std::vector<LearnedMove> moves;
    for (int consumer = 0; consumer < consumers; ++consumer) {
      for (std::size_t i = 0; i < moves_kept; ++i) {
        for (const Move move : {Move::pause, Move::settle, Move::resume}) {
          const Bytes bytes = static_cast<std::int64_t>(1 + random_() % 40) * GiB;
          const Duration took(300'000'000 + bytes.count / 8 + static_cast<std::int64_t>(random_() % 100'000'000));
          moves.push_back({{0, "consumer" + std::to_string(consumer)}, PauseMethod::driver, move, {bytes, took}, now_});
        }
      }
    }
    return moves;
  }

  Lease program(Bytes size, const std::string& device) {
    Lease lease;
    lease.user = lease.tenant = "user";
    lease.consumer = "consumer" + std::to_string(random_() % consumers);
    lease.tier = Tier::batch;
    lease.vram = size;
    lease.wanted_devices = {device};
    lease.owner.kind = OwnerKind::process;
    lease.owner.keeper = {++pid_, 1};
    lease.owner.process = {++pid_, 1};
    return lease;
  }

  Plan step(const Fact& fact) {
    now_ = now_ + std::chrono::microseconds(10);
    return core::step(state_, rules_, fact, now_);
  }
  void measure() {
    snapshot_.began = now_;
    step(snapshot_);
  }

  State state_;
  Rules rules_;
  Time now_{1'800'000'000'000'000'000};
  std::mt19937_64 random_;
  Snapshot snapshot_{.host = {.available = 1000 * GiB}};
  std::int32_t pid_ = 1000;
};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(static_cast<int>(std::strtol(argv[1], nullptr, 10)), 4) : 200;
  const std::vector<std::size_t> candidates{searched_whole, 50, 200, 1000};
  double raw = 0;
  fmt::print("{:>10}  {:>10} {:>10} {:>10} {:>10}\n", "candidates", "p50 us", "p99 us", "most us", "p50 / raw");
  for (const std::size_t count : candidates) {
    Timings timings = search(count, rounds);
    const double half = timings.microseconds(0.5);
    if (count == searched_whole) raw = half;
    fmt::print("{:>10}  {:>10.1f} {:>10.1f} {:>10.1f} {:>10.2f}\n", count, half, timings.microseconds(0.99),
               timings.microseconds(1), half / raw);
  }
  fmt::print("\n{:>10}  {:>10} {:>10} {:>10} {:>10} {:>10}\n", "candidates", "cards", "p50 us", "p99 us", "most us",
             "p50 / raw");
  for (const std::size_t count : candidates) {
    for (int cards = 1; cards <= 8; cards *= 2) {
      Machine machine(cards, count);
      Timings timings;
      for (int i = 0; i < rounds; ++i) machine.ask(timings);
      const double half = timings.microseconds(0.5);
      fmt::print("{:>10}  {:>10} {:>10.1f} {:>10.1f} {:>10.1f} {:>10.1f}\n", count, cards, half,
                 timings.microseconds(0.99), timings.microseconds(1), half / raw);
    }
  }
  return 0;
}
