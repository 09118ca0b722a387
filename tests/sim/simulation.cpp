// SPDX-License-Identifier: Apache-2.0
#include "simulation.h"

#include <fmt/format.h>

#include <array>
#include <cstdio>

namespace sublet::sim {

using namespace std::chrono_literals;

const char* to_string(Kind kind) {
  static constexpr std::array names{"next",        "submit",   "act",       "work",        "retry",
                                    "blunder",     "unleased", "lose_card", "lose_keeper", "kill_program",
                                    "store_fault", "stall",    "sleep",     "crash"};
  static_assert(names.size() == kinds);
  return names[static_cast<std::size_t>(kind)];
}

std::vector<Event> draw_events(const Config& config, std::size_t count) {
  const std::array<double, kinds> weights{100,
                                          12,
                                          30,
                                          25,
                                          4,
                                          config.dumb_clients,
                                          config.unleased_processes * 2,
                                          config.lost_cards,
                                          0.3,
                                          0.7,
                                          config.store_faults,
                                          config.stalls,
                                          config.stalls / 2,
                                          config.crashes};
  double sum = 0;
  for (const double weight : weights) sum += weight;
  Random random(config.seed);
  std::vector<Event> events(count);
  for (Event& event : events) {
    double at = static_cast<double>(random.next() >> 11) * 0x1.0p-53 * sum;
    int kind = 0;
    while (kind < kinds - 1 && at >= weights[static_cast<std::size_t>(kind)])
      at -= weights[static_cast<std::size_t>(kind++)];
    event = {static_cast<Kind>(kind), random.next()};
  }
  return events;
}

Simulation::Simulation(std::uint64_t seed, bool trace)
    : config_(seed),
      world_(config_, agenda_, verdict_),
      oracle_(config_, verdict_, world_),
      disk_(config_, agenda_, verdict_, oracle_),
      clients_(config_, world_, agenda_, verdict_, oracle_, disk_),
      trace_(trace),
      wall_offset_ns_(1'800'000'000'000'000'000 - agenda_.now_ns()) {
  oracle_.trace(trace);
  start_daemon(seed * 31 + 1);
}

Simulation::~Simulation() = default;

void Simulation::start_daemon(std::uint64_t seed) {
  ++lives_;
  daemon_.emplace(config_, world_, agenda_, verdict_, oracle_, disk_, seed, Time{agenda_.now_ns() + wall_offset_ns_},
                  fmt::format("boot-{}", boots_));
  clients_.serve(&*daemon_);
  daemon_->turn();
}

// The daemon is killed at any moment: batches queued for the store may have been written and reported to nobody, or not
// written at all.
void Simulation::crash(Random& random) {
  if (!daemon_) return;
  if (random.chance(30)) disk_.pump();
  daemon_.reset();
  clients_.serve(nullptr);
  disk_.crash();
  if (random.chance(5)) ++boots_, world_.end_all();  // the machine with it
  if (random.chance(30)) wall_offset_ns_ += random.between(-3600, 3600) * 1'000'000'000;
  agenda_.in(random.time(0s, 40s), [this, seed = random.next()] { start_daemon(seed); });
}

void Simulation::stall(Duration d) {
  agenda_.stand_still(d);
  world_.ram().stood_still(d);
  if (!daemon_) return;
  oracle_.lagged();
  if (d > config_.rules.reconnect / 3) oracle_.stood_still(daemon_->engine().now());
}

void Simulation::happen(const Event& event) {
  Random random(event.salt);
  switch (event.kind) {
    case Kind::next: agenda_.happen(); break;
    case Kind::submit: clients_.submit(random); break;
    case Kind::act: clients_.act(random); break;
    case Kind::work: clients_.work(random); break;
    case Kind::retry: clients_.retry(random); break;
    case Kind::blunder: clients_.blunder(random); break;
    case Kind::unleased: world_.disturb(random); break;
    case Kind::lose_card: {
      const std::size_t card = random.below(config_.cards.size());
      world_.lose_card(card, !world_.lost(card));
      break;
    }
    case Kind::lose_keeper: clients_.lose_keeper(random); break;
    case Kind::kill_program: world_.kill_some_program(random); break;
    case Kind::store_fault: disk_.fail_next(random); break;
    case Kind::stall: stall(random.time(100ms, 60s)); break;
    case Kind::sleep: {
      const Duration asleep = random.time(2s, 3h);
      agenda_.sleep(asleep);
      oracle_.slept(asleep);
      break;
    }
    case Kind::crash: crash(random); break;
  }
}

void Simulation::after_step(const char* what) {
  ++steps_;
  if (counter_ != nullptr) *counter_ = steps_;
  if (daemon_) {
    daemon_->turn();
    const core::State& state = daemon_->engine().state();
    const Time now = daemon_->engine().now();
    for (const LeaseId id : state.pauses.away)
      if (core::is_stuck(state, id) || core::given_up_device(state, *core::find(state, id), config_.rules, now))
        world_.note_hung(id);  // told so, its owner may end it as it is
  }
  if (trace_) fmt::print("{} {} {}\n", steps_, agenda_.now_ns() / 1'000'000, what);
  verdict_.mix(static_cast<std::uint64_t>(agenda_.now_ns()));
  oracle_.after_step(agenda_.next_ns() < agenda_.now_ns());
}

Outcome Simulation::run(const std::vector<Event>& events) {
  for (const Event& event : events) {
    if (verdict_.failed()) break;
    happen(event);
    after_step(to_string(event.kind));
  }
  if (!verdict_.failed()) wind_down();
  if (!verdict_.failed() && config_.crowd) crowd();
  return {verdict_.invariant(),  verdict_.detail(),     steps_, verdict_.hash(),
          oracle_.leases_seen(), oracle_.pauses_seen(), lives_, verdict_.met, verdict_.figures};
}

bool Simulation::anybody_parked() {
  const auto& leases = daemon_->engine().state().leases.by_id;
  return std::any_of(leases.begin(), leases.end(), [](const auto& entry) {
    return entry.second.parking && !entry.second.ended() && entry.second.state != core::LeaseState::poisoned;
  });
}

bool Simulation::run_until(const std::function<bool()>& done, Duration at_most) {
  const std::int64_t until = agenda_.now_ns() + at_most.count();
  std::int64_t next = 0;
  while (!verdict_.failed() && agenda_.now_ns() < until) {
    if (daemon_ && daemon_->engine().store_problem().empty() && done()) return true;
    if (agenda_.now_ns() >= next) {
      clients_.wind_down();
      next = agenda_.now_ns() + Duration(3s).count();
    } else {
      agenda_.happen();
    }
    after_step("wind down");
  }
  return false;
}

// The faults stop and all clients give up: first of all that would block parked leases, then of everything.
void Simulation::wind_down() {
  config_.calm();
  world_.heal();
  world_.end_unleased();
  disk_.heal();
  while (!daemon_) {
    agenda_.happen();
    after_step("wait for the daemon");
  }
  daemon_->no_more_faults();
  const bool back = run_until([this] { return !anybody_parked(); }, 10min);
  verdict_.expect(back, "never-came-back", [this] { return oracle_.why_parked(); });
  const auto empty = [this] { return daemon_->engine().state().leases.by_id.empty(); };
  (void)run_until(empty, 10min);
  if (!verdict_.failed()) oracle_.at_rest();
}

// Many time slices, in what the run before has left behind.
void Simulation::crowd() {
  constexpr Duration stays = 8min;
  Random random(config_.seed ^ 0xc0ffee);
  clients_.gather(random);
  const std::int64_t until = agenda_.now_ns() + stays.count();
  while (!verdict_.failed() && agenda_.now_ns() < until) {
    clients_.keep_company();
    agenda_.happen();
    after_step("crowd");
  }
  if (!verdict_.failed()) wind_down();
}

}  // namespace sublet::sim
