// SPDX-License-Identifier: Apache-2.0
#include "shrink.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>

namespace sublet::sim {
namespace {

// The report of the child, in memory that both processes see.
struct Shared {
  std::uint64_t steps, hash, leases, pauses, lives;
  std::uint64_t met[Coverage::size];
  Figures figures;
  char invariant[64];
  char detail[1024];
};

void put(char* into, std::size_t size, const std::string& text) {
  const std::size_t length = std::min(size - 1, text.size());
  std::memcpy(into, text.data(), length);
  into[length] = '\0';
}

}  // namespace

Outcome run_apart(std::uint64_t seed, const std::vector<Event>& events, bool trace) {
  auto* shared =
      static_cast<Shared*>(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  shared = new (shared) Shared{};
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    auto simulation = std::make_unique<Simulation>(seed, trace);
    simulation->count_in(&shared->steps);
    const Outcome outcome = simulation->run(events);
    simulation.reset();  // its store's files with it
    shared->steps = outcome.steps;
    shared->hash = outcome.hash;
    shared->leases = outcome.leases;
    shared->pauses = outcome.pauses;
    shared->lives = outcome.lives;
    std::ranges::copy(outcome.met.counts(), shared->met);
    shared->figures = outcome.figures;
    put(shared->invariant, sizeof(shared->invariant), outcome.invariant);
    put(shared->detail, sizeof(shared->detail), outcome.detail);
    std::fflush(stdout);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  Outcome outcome{shared->invariant, shared->detail, shared->steps, shared->hash,
                  shared->leases,    shared->pauses, shared->lives, {}, shared->figures};
  outcome.met.set(shared->met);
  ::munmap(shared, sizeof(Shared));
  if (WIFSIGNALED(status)) {
    Disk::remove_files_of(child);
    outcome.invariant = "died";
    outcome.detail =
        fmt::format("killed by signal {}: an assertion, most likely; it is on standard error", WTERMSIG(status));
  }
  return outcome;
}

// Ever smaller parts are left out, as long as that gets anywhere.
std::vector<Event> shrink(std::uint64_t seed, std::vector<Event> events, const std::string& invariant, int tries) {
  for (std::size_t part = events.size() / 2; part > 0 && tries > 0;) {
    bool smaller = false;
    for (std::size_t at = 0; at < events.size() && tries > 0;) {
      std::vector<Event> fewer(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(at));
      fewer.insert(fewer.end(), events.begin() + static_cast<std::ptrdiff_t>(std::min(at + part, events.size())),
                   events.end());
      --tries;
      if (run_apart(seed, fewer).invariant == invariant) {
        events = std::move(fewer);
        smaller = true;
      } else {
        at += part;
      }
    }
    if (!smaller || part > events.size()) part /= 2;
  }
  return events;
}

}  // namespace sublet::sim
