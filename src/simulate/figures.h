// SPDX-License-Identifier: Apache-2.0
// Figures of a run: waits by size, slowdown, fairness. Pure functions.
#pragma once

#include "simulate/run.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::simulate {

// Waits of the jobs of one size.
struct Waits {
  std::string size;      // "up to 1/4 of a device", "2 to 8 devices", "all"
  std::size_t jobs = 0;  // that started
  Duration p50{}, p95{}, p99{}, most{};
};

// A tenant beside the others.
struct TenantFigures {
  std::string name;
  double guarantee = 0, held = 0;  // parts of the memory; the second on average over the run
  std::optional<double> entitled;  // on average over the run; unset: tenants have parents or limits
  // Difference of the last two, as a part of `entitled`; unset: it is not known, or nothing.
  std::optional<double> error;
  std::size_t asked = 0, served = 0;  // jobs within its guarantee; those that started at most 1 s later than predicted
  Duration latest{};                  // longest time later than predicted
  Waits waits;                        // a job that waits at the end counts with its wait so far
};

// All texts of Waits::size, in order.
std::vector<std::string_view> all_sizes();

struct Figures {
  std::string name;  // of the setting
  std::size_t done = 0, refused = 0, ended = 0, unfinished = 0;
  std::vector<Waits> waits;                   // all jobs first; only sizes that occur
  double slowdown_p50 = 0, slowdown_p95 = 0;  // (wait + run + parked) / run; a run counts as 10 s or more
  // Jain's index of the parts of their asked byte-seconds that tenants got by the last arrival: 1 if all parts are the
  // same (Jain, Chiu, Hawe: A Quantitative Measure of Fairness, 1984). One tenant: 1. Unset: all
  // jobs arrived at once.
  std::optional<double> jain;
  double allocated = 0;                // part of the memory, on average
  double fragmented = 0;               // part of the memory, on average
  double useful = 0;                   // part of the memory, on average: of programs that ran and kept their work
  std::vector<TenantFigures> tenants;  // by name
  Outcome outcome;
};

Figures figures_of(std::string name, const std::vector<Job>& jobs, Outcome outcome, Bytes device);

}  // namespace sublet::simulate
