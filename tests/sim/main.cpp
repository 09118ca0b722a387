// SPDX-License-Identifier: Apache-2.0
// The seeded simulation: many runs, or one that is replayed; a run that fails is made as small as it can be.
#include "shrink.h"

#include "base/log.h"
#ifdef SUBLET_MUTANTS
#include "mutants.h"
#endif

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::sim {
namespace {

constexpr std::size_t events_of_a_run = 3000;
constexpr int shrink_tries = 400;
constexpr std::uint64_t steps_of_a_campaign = 200'000;
constexpr std::uint64_t steps_to_meet_all = 2'000'000;  // in so many steps everything is met that can be met

struct Arguments {
  std::optional<std::uint64_t> seed;
  std::optional<std::uint64_t> from;
  std::optional<std::uint64_t> steps;
  bool trace = false;
  bool mutants = false;
  bool coverage = false;
  std::string_view mutant;  // this one alone; with `mutants`: these, separated by commas
  std::string_view seeds;   // a file of seeds that a campaign replays first
};

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int usage() {
  fmt::print(
      stderr,
      "usage: sim [--steps N] [--from SEED] [--seeds FILE] [--coverage]\n"
      "                                            N steps (200000) of runs with new seeds, after the seeds of FILE;\n"
      "                                            what was met how often\n"
      "       sim --seed N [--steps N] [--trace]   one run of N events, again\n");
#ifdef SUBLET_MUTANTS
  fmt::print(stderr,
             "       sim --mutants [--mutant NAME,...]       find every mutant, or these\n"
             "       sim --mutant NAME [...]                 as above, with that bug planted\n");
#endif
  return 2;
}

// Prints the failure, and the smallest run that fails in the same way.
void report(const Arguments& arguments, std::uint64_t seed, std::size_t events, const Outcome& outcome) {
  fmt::print("FAILED: {}: {}\n", outcome.invariant, outcome.detail);
  fmt::print("  seed {}, {} events, after {} steps; world: {}\n", seed, events, outcome.steps, Config(seed).text());
  const std::string planted = arguments.mutant.empty() ? "" : fmt::format(" --mutant {}", arguments.mutant);
  fmt::print("  replay: ./dev sim{} --seed {} --steps {} --trace\n", planted, seed, events);
}

int replay(const Arguments& arguments) {
  const Config config(*arguments.seed);
  const std::vector<Event> events = draw_events(config, arguments.steps.value_or(events_of_a_run));
  fmt::print("seed {}: {}\n", config.seed, config.text());
  const Outcome outcome = run_apart(config.seed, events, arguments.trace);
  fmt::print("{} steps, {} leases, {} pauses, {} lives of the daemon, hash {:016x}\n", outcome.steps, outcome.leases,
             outcome.pauses, outcome.lives, outcome.hash);
  if (!outcome.failed()) return 0;
  report(arguments, config.seed, events.size(), outcome);
  const std::vector<Event> least = shrink(config.seed, events, outcome.invariant, shrink_tries);
  fmt::print("  the least that fails so, {} of {} events:\n", least.size(), events.size());
  const Outcome again = run_apart(config.seed, least, true);
  fmt::print("  {}: {}\n", again.invariant, again.detail);
  return 1;
}

// One seed a line, the reason why it is worth a replay behind it. Nothing: a line cannot be read.
std::optional<std::vector<std::uint64_t>> read_seeds(std::string_view file) {
  std::vector<std::uint64_t> seeds;
  if (file.empty()) return seeds;
  std::ifstream lines{std::string(file)};
  bool good = lines.is_open();
  for (std::string line; good && std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    const char *begin = line.data(), *end = begin + line.size();
    const auto [rest, error] = std::from_chars(begin, end, seeds.emplace_back());
    good = error == std::errc() && rest + 1 < end && *rest == ' ';
  }
  if (good) return seeds;
  fmt::print(stderr, "sim: cannot read the seeds in {}: each line is a number and the reason for it\n", file);
  return std::nullopt;
}

int campaign(Arguments arguments) {
  const auto kept = read_seeds(arguments.seeds);
  if (!kept) return 2;
  const std::uint64_t first = arguments.from ? *arguments.from : std::random_device{}();
  const std::uint64_t steps = arguments.steps.value_or(steps_of_a_campaign);
  fmt::print("{} kept seeds, then seeds from {}\n", kept->size(), first);
  const double began = seconds();
  Outcome all;
  std::uint64_t runs = 0;
  for (; runs < kept->size() || all.steps < steps; ++runs) {
    const std::uint64_t seed = runs < kept->size() ? (*kept)[runs] : first + runs - kept->size();
    const Config config(seed);
    const Outcome outcome = run_apart(seed, draw_events(config, events_of_a_run));
    if (outcome.failed()) {
      report(arguments, seed, events_of_a_run, outcome);
      arguments.seed = seed;
      arguments.steps.reset();
      return replay(arguments);
    }
    all.steps += outcome.steps;
    all.leases += outcome.leases;
    all.pauses += outcome.pauses;
    all.lives += outcome.lives;
    all.met.add(outcome.met);
    all.figures.add(outcome.figures);
  }
  rusage used{};  // other programs may share the processors
  ::getrusage(RUSAGE_CHILDREN, &used);
  const auto of = [](const timeval& time) {
    return 1e-6 * static_cast<double>(time.tv_usec) + static_cast<double>(time.tv_sec);
  };
  const double busy = of(used.ru_utime) + of(used.ru_stime);
  fmt::print(
      "{} steps in {} runs held every invariant: {} leases, {} pauses, {} lives of the daemon; {:.1f} s, {:.1f} of "
      "them on a processor: {:.0f} steps a second\n",
      all.steps, runs, all.leases, all.pauses, all.lives, seconds() - began, busy,
      static_cast<double>(all.steps) / busy);
  fmt::print("{}\n", all.figures.text());
  if (arguments.coverage) all.met.print();
  return all.steps < steps_to_meet_all || all.met.complete() ? 0 : 1;
}

#ifdef SUBLET_MUTANTS
bool refuse_unknown(std::string_view name) {
  fmt::print(stderr, "sim: no mutant is called '{}'. There are:\n", name);
  for (const MutantInfo& mutant : all_mutants()) fmt::print(stderr, "  {:<26}  {}\n", mutant.name, mutant.what);
  return false;
}

// The mutants of the list; all of them if it is empty. Nothing: a name is unknown.
std::optional<std::vector<MutantInfo>> choose_mutants(std::string_view list) {
  if (list.empty()) return std::vector<MutantInfo>(all_mutants().begin(), all_mutants().end());
  std::vector<MutantInfo> chosen;
  for (std::string_view rest = list; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    const MutantInfo* mutant = find_mutant(name);
    if (mutant == nullptr) return refuse_unknown(name), std::nullopt;
    chosen.push_back(*mutant);
  }
  return chosen;
}

int find_mutants(std::string_view list) {
  const auto chosen = choose_mutants(list);
  if (!chosen) return 2;
  constexpr int most_runs = 1500;  // two minutes: a change of the core moves the seeds that find a rare one
  constexpr const char* row = "{:<26}  {:<6}  {:<64} {:>4} {:>8}  {}\n";
  fmt::print(row, "mutant", "where", "what it does", "seed", "steps", "found as");
  int missed = 0;
  for (const MutantInfo& mutant : *chosen) {
    active_mutant = mutant.mutant;
    std::uint64_t seed = mutant.after, steps = 0;
    Outcome outcome;
    for (int run = 0; run < most_runs && !outcome.failed(); ++run) {
      do ++seed;
      while (mutant.can_show != nullptr && !mutant.can_show(Config(seed)));
      outcome = run_apart(seed, draw_events(Config(seed), events_of_a_run));
      steps += outcome.steps;
    }
    if (!outcome.failed()) ++missed;
    fmt::print(row, mutant.name, mutant.where, mutant.what, outcome.failed() ? std::to_string(seed) : "-", steps,
               outcome.failed() ? outcome.invariant : "NOT FOUND");
    std::fflush(stdout);
  }
  fmt::print("{} of {} mutants were found\n", chosen->size() - static_cast<std::size_t>(missed), chosen->size());
  return missed == 0 ? 0 : 1;
}

bool plant(std::string_view name) {
  if (name.empty()) return true;
  if (const MutantInfo* mutant = find_mutant(name)) return active_mutant = mutant->mutant, true;
  return refuse_unknown(name);
}
#endif

std::optional<Arguments> parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--trace") {
      arguments.trace = true;
    } else if (word == "--mutants") {
      arguments.mutants = true;
    } else if (word == "--coverage") {
      arguments.coverage = true;
    } else {
      if (i + 1 == argc) return std::nullopt;
      const char* text = argv[++i];
      if (word == "--mutant" || word == "--seeds") {
        (word == "--mutant" ? arguments.mutant : arguments.seeds) = text;
        continue;
      }
      std::uint64_t number = 0;
      const auto [end, error] = std::from_chars(text, text + std::strlen(text), number);
      if (error != std::errc() || *end != '\0') return std::nullopt;
      if (word == "--seed") arguments.seed = number;
      else if (word == "--from") arguments.from = number;
      else if (word == "--steps") arguments.steps = number;
      else return std::nullopt;
    }
  }
  return arguments;
}

}  // namespace
}  // namespace sublet::sim

int main(int argc, char** argv) {
  using namespace sublet;
  const auto arguments = sim::parse(argc, argv);
  if (!arguments) return sim::usage();
  log::init("sim", arguments->trace);
  if (!arguments->trace) log::silence();
#ifdef SUBLET_MUTANTS
  if (arguments->mutants) return sim::find_mutants(arguments->mutant);
  if (!sim::plant(arguments->mutant)) return 2;
#else
  if (arguments->mutants || !arguments->mutant.empty()) {
    fmt::print(stderr, "sim: what is shipped has no mutants; sim_mutants has them\n");
    return 2;
  }
#endif
  return arguments->seed ? sim::replay(*arguments) : sim::campaign(*arguments);
}
