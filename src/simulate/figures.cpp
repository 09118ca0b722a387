// SPDX-License-Identifier: Apache-2.0
#include "simulate/figures.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string_view>

namespace sublet::simulate {
namespace {

constexpr Duration shortest = std::chrono::seconds(10);

struct Size {
  std::string_view text;
  double most;  // devices
};
constexpr std::array<Size, 5> sizes{{{"up to 1/4 of a device", 0.25},
                                     {"up to 1 device", 1},
                                     {"up to 8 devices", 8},
                                     {"up to 64 devices", 64},
                                     {"more than 64 devices", HUGE_VAL}}};

double devices_of(const Job& job, Bytes device) {
  const double part =
      static_cast<double>(job.vram.count) / static_cast<double>(std::max(device.count, std::int64_t{1}));
  return job.devices > 1 ? job.devices : part;
}

template <typename Value>
Value quantile(const std::vector<Value>& sorted, double part) {
  if (sorted.empty()) return {};
  return sorted[static_cast<std::size_t>(std::lround(part * static_cast<double>(sorted.size() - 1)))];
}

Waits waits_of(std::string size, std::vector<Duration> all) {
  std::ranges::sort(all);
  return {std::move(size), all.size(), quantile(all, 0.5), quantile(all, 0.95), quantile(all, 0.99), quantile(all, 1)};
}

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

// The part of its run that the job had by `at`.
double served_by(const Job& job, const Ran& ran, Duration at) {
  if (!ran.started || *ran.started >= at) return 0;
  const Duration until = std::min(ran.ended.value_or(at), at);
  return std::clamp(seconds(until - *ran.started - ran.parked) / std::max(seconds(job.runs), 1e-9), 0.0, 1.0);
}

std::optional<double> jain_of(const std::vector<Job>& jobs, const Outcome& outcome) {
  std::map<std::string_view, std::pair<double, double>> tenants;  // asked and got, in byte-seconds
  const Duration last = jobs.empty() ? Duration() : jobs.back().arrives;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (outcome.jobs[i].how == Ran::How::refused || jobs[i].arrives >= last) continue;
    const double asked = static_cast<double>(jobs[i].vram.count) * jobs[i].devices * seconds(jobs[i].runs);
    auto& its = tenants[jobs[i].whose()];
    its.first += asked;
    its.second += asked * served_by(jobs[i], outcome.jobs[i], last);
  }
  double sum = 0, squares = 0, count = 0;
  for (const auto& [tenant, its] : tenants) {
    if (its.first <= 0) continue;
    const double part = its.second / its.first;
    sum += part, squares += part * part, count += 1;
  }
  return squares > 0 ? std::optional(sum * sum / (count * squares)) : std::nullopt;
}

// The work that the program of the job kept, in bytes × seconds.
double useful_of(const Job& job, const Ran& ran) {
  return static_cast<double>(job.vram.count) * job.devices * seconds(ran.got);
}

std::vector<TenantFigures> tenants_of(const std::vector<Job>& jobs, const Outcome& outcome) {
  std::map<std::string_view, std::vector<Duration>> waits;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Ran& ran = outcome.jobs[i];
    if (ran.how == Ran::How::refused || jobs[i].arrives > outcome.lasted) continue;
    waits[jobs[i].whose()].push_back(ran.started.value_or(ran.ended.value_or(outcome.lasted)) - jobs[i].arrives);
  }
  const double capacity = static_cast<double>(std::max(outcome.capacity.count, std::int64_t{1}));
  const double all = capacity * std::max(seconds(outcome.lasted), 1e-9);
  std::vector<TenantFigures> found;
  for (const auto& [name, sum] : outcome.tenants) {
    TenantFigures& its = found.emplace_back();
    its.name = name;
    its.guarantee = sum.guarantee / capacity;
    its.held = sum.held / all;
    if (outcome.has_parts) its.entitled = sum.entitled / all;
    if (sum.entitled > 0) its.error = (sum.held - sum.entitled) / sum.entitled;
    its.asked = sum.asked, its.served = sum.served, its.latest = sum.latest;
    its.waits = waits_of(name, std::move(waits[name]));
  }
  return found;
}

}  // namespace

std::vector<std::string_view> all_sizes() {
  std::vector<std::string_view> all{"all"};
  for (const Size& size : sizes) all.push_back(size.text);
  return all;
}

Figures figures_of(std::string name, const std::vector<Job>& jobs, Outcome outcome, Bytes device) {
  Figures all{.name = std::move(name), .waits = {}, .jain = {}, .tenants = {}, .outcome = {}};
  std::vector<Duration> every;
  std::array<std::vector<Duration>, sizes.size()> by_size;
  std::vector<double> slowdowns;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Ran& ran = outcome.jobs[i];
    switch (ran.how) {
      case Ran::How::done: ++all.done; break;
      case Ran::How::refused: ++all.refused; break;
      case Ran::How::ended: ++all.ended; break;
      case Ran::How::unfinished: ++all.unfinished; break;
    }
    if (!ran.started) continue;
    const Duration wait = *ran.started - jobs[i].arrives;
    every.push_back(wait);
    const double devices = devices_of(jobs[i], device);
    const auto at = std::ranges::find_if(sizes, [devices](const Size& size) { return devices <= size.most; });
    by_size[static_cast<std::size_t>(at - sizes.begin())].push_back(wait);
    if (ran.how != Ran::How::done) continue;
    const Duration run = std::max(jobs[i].runs, shortest);
    slowdowns.push_back(seconds(wait + run + ran.parked) / seconds(run));
  }
  all.waits.push_back(waits_of("all", std::move(every)));
  for (std::size_t i = 0; i < sizes.size(); ++i)
    if (!by_size[i].empty()) all.waits.push_back(waits_of(std::string(sizes[i].text), std::move(by_size[i])));
  std::ranges::sort(slowdowns);
  all.slowdown_p50 = quantile(slowdowns, 0.5);
  all.slowdown_p95 = quantile(slowdowns, 0.95);
  all.jain = jain_of(jobs, outcome);
  const double capacity = static_cast<double>(std::max(outcome.capacity.count, std::int64_t{1}));
  all.allocated = outcome.used / capacity;
  double useful = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) useful += useful_of(jobs[i], outcome.jobs[i]);
  all.useful = useful / (capacity * std::max(seconds(outcome.lasted), 1e-9));
  all.tenants = tenants_of(jobs, outcome);
  for (const Sample& its : outcome.samples)
    all.fragmented +=
        static_cast<double>(its.fragmented.count) / capacity / static_cast<double>(outcome.samples.size());
  all.outcome = std::move(outcome);
  return all;
}

}  // namespace sublet::simulate
