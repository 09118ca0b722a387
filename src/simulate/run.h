// SPDX-License-Identifier: Apache-2.0
// A run of the shipped decisions in virtual time: jobs of a trace on the devices of one machine. Programs take all of
// their leases at once, answer each order, and need the same time for each byte that moves; several devices move at
// once. The same input gives the same outcome.
#pragma once

#include "lease/rules.h"
#include "simulate/samples.h"
#include "simulate/shares.h"
#include "simulate/stated.h"
#include "simulate/trace.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sublet::simulate {

struct Setting {
  std::vector<Bytes> devices;
  core::Rules rules;
  std::vector<core::Tenant> tenants = {};                 // a valid tree
  std::optional<Duration> until = {};                     // the run ends then; unset: with the last job
  std::int64_t link = 10 * GiB.count;                     // bytes in a second, out of a device or back
  std::function<bool(std::size_t arrived)> goes_on = {};  // called now and then; false ends the run, which is partial
};

// The fate of a job; the same order as the jobs.
struct Ran {
  enum class How { done, refused, ended, unfinished };  // ended: by the decisions, before it was done
  How how = How::unfinished;
  std::optional<Duration> started;  // since the start of the trace
  std::optional<Duration> ended;
  Duration parked{};
  int pauses = 0;
  Duration got{};  // of its run, without what was lost
};

struct Outcome {
  std::vector<Ran> jobs;
  std::vector<Sample> samples;  // up to 256, of equal lengths but for the last
  Bytes capacity;
  Duration lasted{};
  std::uint64_t events = 0;
  int pauses = 0;
  Bytes moved;
  double used = 0;  // bytes that were allocated, on average over the run
  std::map<std::string, TenantSums::Sum> tenants = {};
  std::string refusal = {};        // of the first job that was refused: its reason
  bool has_parts = true;           // the tenants have parts of the memory at each moment
  std::size_t without_ledger = 0;  // jobs within a guarantee that started late, since the park ledger was full
  Bounds bounds = {};
  bool partial = false;
};

Outcome run(const std::vector<Job>& jobs, const Setting& setting);

}  // namespace sublet::simulate
