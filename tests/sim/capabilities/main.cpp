// SPDX-License-Identifier: Apache-2.0
// The seeded simulation of the capabilities on the engine, the store and the core that are shipped: users, keepers and
// containers, and a daemon that is killed at any commit. Each run is drawn from its seed alone.
#include "beside.h"
#include "users.h"

#include "base/log.h"

#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <optional>
#include <string_view>

namespace sublet::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t steps_of_a_run = 4000;

// The world of a run: the faults of the cards and of programs that cooperate have a simulation of their own.
Config config_of(std::uint64_t seed) {
  Config config(seed);
  const double store_faults = config.store_faults, crashes = config.crashes, stalls = config.stalls,
               slow = config.slow_commits;
  config.calm();
  config.quiet = false;
  config.store_faults = store_faults / 4;
  config.crashes = std::max(crashes, 0.2);
  config.stalls = stalls / 4;
  config.slow_commits = slow;
  config.cooperative = config.deaf_programs = config.booked = config.late_words = 0;
  config.crowd = false;
  config.honest = true;
  config.capabilities = true;
  return config;
}

class Run {
 public:
  Run(std::uint64_t seed, bool trace)
      : config_(config_of(seed)),
        world_(config_, agenda_, verdict_),
        oracle_(config_, verdict_, world_),
        disk_(config_, agenda_, verdict_, oracle_),
        beside_(world_, agenda_, verdict_, disk_, seed * 7 + 3),
        users_(world_, verdict_),
        random_(seed * 13 + 5),
        trace_(trace) {
    oracle_.trace(trace);
    start_daemon(seed);
  }

  std::uint64_t go(std::uint64_t steps) {
    while (steps_ < steps && !verdict_.failed()) {
      happen();
      after_step();
    }
    if (!verdict_.failed()) wind_down();
    return steps_;
  }
  const Verdict& verdict() const { return verdict_; }
  std::uint64_t lives() const { return lives_; }
  std::uint64_t leases() const { return oracle_.leases_seen(); }
  std::uint64_t pauses() const { return oracle_.pauses_seen(); }
  const House::Met& met() const { return met_; }

 private:
  void start_daemon(std::uint64_t seed) {
    ++lives_;
    daemon_.emplace(
        config_, world_, agenda_, verdict_, oracle_, disk_, seed, Time{agenda_.now_ns() + 1'800'000'000'000'000'000},
        fmt::format("boot-{}", boots_),
        [this](engine::Engine& engine, boost::asio::io_context& io) { house_.emplace(engine, io, beside_, verdict_); });
    beside_.serve(&*house_);
    users_.serve(&*house_);
    daemon_->turn();
  }

  void crash() {
    if (!daemon_) return;
    if (random_.chance(30)) disk_.pump();
    beside_.serve(nullptr);
    users_.serve(nullptr);
    daemon_.reset();
    house_.reset();
    disk_.crash();
    if (random_.chance(5)) ++boots_, world_.end_all(), beside_.reboot();
    agenda_.in(random_.time(0s, 20s), [this, seed = random_.next()] { start_daemon(seed); });
  }

  void happen() {
    const std::uint64_t drawn = random_.below(1000);
    if (drawn < 60) return users_.act(random_);
    if (drawn < 160) return work();
    if (random_.chance(config_.crashes / 2)) return crash();
    if (random_.chance(config_.store_faults / 2)) return disk_.fail_next(random_);
    if (random_.chance(config_.stalls / 2)) return stall(random_.time(100ms, 20s));
    agenda_.happen();
  }

  void work() {
    std::vector<Program*> living;
    for (const auto& [lease, program] : world_.programs())
      if (program.lives) living.push_back(world_.program_of(lease));
    if (living.empty()) return;
    Program& program = *random_.pick(living);
    const core::Lease* lease = disk_.store().find(program.lease);
    const core::Lease* decided = daemon_ ? core::find(daemon_->engine().state(), program.lease) : lease;
    if (lease == nullptr || lease->ended() || lease->owner.process != program.main) return;
    if (decided == nullptr || decided->ended()) return;
    const bool active = lease->state == core::LeaseState::active && lease->vram <= decided->vram;
    if (active) program.within = std::min(lease->vram, decided->vram);
    world_.let_work(program, random_, false, active ? std::optional(program.within) : std::nullopt);
  }

  void stall(Duration d) {
    agenda_.stand_still(d);
    world_.ram().stood_still(d);
    if (!daemon_) return;
    oracle_.lagged();
    if (d > config_.rules.reconnect / 3) oracle_.stood_still(daemon_->engine().now());
  }

  void after_step() {
    ++steps_;
    if (daemon_) {
      daemon_->turn();
      const core::State& state = daemon_->engine().state();
      const Time now = daemon_->engine().now();
      for (const LeaseId id : state.pauses.away)
        if (core::is_stuck(state, id) || core::given_up_device(state, *core::find(state, id), config_.rules, now))
          world_.note_hung(id);
      house_->check(met_);
      users_.check();
    }
    if (trace_) fmt::print("{} {}\n", steps_, agenda_.now_ns() / 1'000'000);
    oracle_.after_step(agenda_.next_ns() < agenda_.now_ns());
  }

  // The faults stop, and everything is given back.
  void wind_down() {
    config_.calm();
    world_.heal();
    disk_.heal();
    beside_.calm();
    const std::int64_t until = agenda_.now_ns() + Duration(2h).count();
    std::int64_t next = 0;
    while (!verdict_.failed() && agenda_.now_ns() < until) {
      if (daemon_ && daemon_->engine().store_problem().empty()) {
        daemon_->no_more_faults();
        if (users_.is_done() && beside_.is_empty() && daemon_->engine().state().leases.by_id.empty()) return;
      }
      if (agenda_.now_ns() >= next) {
        users_.wind_down();
        next = agenda_.now_ns() + Duration(10s).count();
      } else {
        agenda_.happen();
      }
      after_step();
    }
    verdict_.expect(false, "never-came-to-rest", [this] {
      std::string text = daemon_ ? users_.left() + beside_.left() : "the daemon is away";
      if (daemon_)
        for (const auto& [id, lease] : daemon_->engine().state().leases.by_id)
          text += fmt::format("{} ({}) is {}; ", to_string(id), lease.tag, core::to_string(lease.state));
      return text;
    });
  }

  Config config_;
  Verdict verdict_;
  Agenda agenda_;
  World world_;
  Oracle oracle_;
  Disk disk_;
  Beside beside_;
  Users users_;
  Random random_;
  const bool trace_;
  std::optional<Daemon> daemon_;
  std::optional<House> house_;
  House::Met met_;
  std::uint64_t steps_ = 0, lives_ = 0, boots_ = 0;
};

struct Sum {
  std::uint64_t steps = 0, lives = 0, leases = 0, pauses = 0;
  House::Met met;
};

// Returns whether the run holds.
bool run(std::uint64_t seed, std::uint64_t steps, bool trace, Sum& sum) {
  auto one = std::make_unique<Run>(seed, trace);
  sum.steps += one->go(steps);
  sum.lives += one->lives();
  sum.leases += one->leases();
  sum.pauses += one->pauses();
  for (const auto& [name, count] : one->met()) sum.met[name] += count;
  if (!one->verdict().failed()) return true;
  fmt::print("FAILED: {}: {}\n  replay: sim_capabilities --seed {}\n", one->verdict().invariant(),
             one->verdict().detail(), seed);
  return false;
}

int main_of(int count, char** arguments) {
  std::uint64_t from = 1, steps = 200'000;
  std::optional<std::uint64_t> seed;
  bool trace = false;
  for (int i = 1; i < count; ++i) {
    const std::string_view word = arguments[i];
    const std::string_view value = i + 1 < count ? arguments[i + 1] : "";
    std::uint64_t number = 0;
    const bool is_number = std::from_chars(value.begin(), value.end(), number).ec == std::errc();
    if (word == "--trace") trace = true;
    else if (word == "--from" && is_number) from = number, ++i;
    else if (word == "--steps" && is_number) steps = number, ++i;
    else if (word == "--seed" && is_number) seed = number, ++i;
    else return fmt::print(stderr, "usage: sim_capabilities [--from SEED] [--steps N] [--seed N [--trace]]\n"), 2;
  }
  Sum sum;
  bool good = true;
  if (seed) good = run(*seed, steps_of_a_run, trace, sum);
  else
    for (std::uint64_t at = from; good && sum.steps < steps; ++at) good = run(at, steps_of_a_run, false, sum);
  fmt::print("{} steps, {} lives of the daemon, {} leases, {} pauses\n", sum.steps, sum.lives, sum.leases, sum.pauses);
  for (const auto& [name, count] : sum.met) fmt::print("  {:<20} {}\n", name, count);
  return good ? 0 : 1;
}

}  // namespace
}  // namespace sublet::sim

int main(int count, char** arguments) {
  const bool traces = count > 1 && std::string_view(arguments[count - 1]) == "--trace";
  sublet::log::init("sim", traces);
  if (!traces) sublet::log::silence();
  return sublet::sim::main_of(count, arguments);
}
