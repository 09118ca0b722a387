// SPDX-License-Identifier: Apache-2.0
// One run: a world, a daemon in it, and their events, step by step. The same seed and events give the same run.
#pragma once

#include "clients.h"

#include <vector>

namespace sublet::sim {

// The kinds of events. Each event has chance of its own (`salt`), so that leaving one out changes nothing about the
// others.
enum class Kind {
  next,  // time moves to the next entry of the agenda
  submit,
  act,
  work,
  retry,
  blunder,
  unleased,
  lose_card,
  lose_keeper,
  kill_program,
  store_fault,
  stall,
  sleep,
  crash,
};
constexpr int kinds = 14;
const char* to_string(Kind kind);

struct Event {
  Kind kind = Kind::next;
  std::uint64_t salt = 0;
};

std::vector<Event> draw_events(const Config& config, std::size_t count);

struct Outcome {
  std::string invariant, detail;  // "" = nothing was violated
  std::size_t steps = 0;          // number of steps until the end, those after the last event included
  std::uint64_t hash = 0;
  std::uint64_t leases = 0, pauses = 0, lives = 0;
  Coverage met;
  Figures figures;
  bool failed() const { return !invariant.empty(); }
};

class Simulation {
 public:
  // `trace`: prints each step and its reason on standard output.
  Simulation(std::uint64_t seed, bool trace);
  ~Simulation();
  Outcome run(const std::vector<Event>& events);
  const Config& config() const { return config_; }
  // Counts the steps in `counter`, for a reader in another process; may be null.
  void count_in(std::uint64_t* counter) { counter_ = counter; }

 private:
  void happen(const Event& event);
  void after_step(const char* what);
  void start_daemon(std::uint64_t seed);
  void stall(Duration d);
  void crash(Random& random);
  void wind_down();
  void crowd();
  bool run_until(const std::function<bool()>& done, Duration at_most);
  bool anybody_parked();

  Config config_;
  Verdict verdict_;
  Agenda agenda_;
  World world_;
  Oracle oracle_;
  Disk disk_;
  Clients clients_;
  std::optional<Daemon> daemon_;
  bool trace_;
  std::int64_t wall_offset_ns_;
  std::size_t steps_ = 0;
  std::uint64_t lives_ = 0, boots_ = 0;
  std::uint64_t* counter_ = nullptr;
};

}  // namespace sublet::sim
