// SPDX-License-Identifier: Apache-2.0
// Counts of the processes behind the interposer, by tenant and user. No series without such processes.
#include "http/metrics_page.h"
#include "limit/limits.h"

#include <fmt/format.h>

#include <map>

namespace sublet::http {

namespace {

using limit::Limits;

std::string labels(const Limits::Who& who) {
  return fmt::format("tenant=\"{}\",user=\"{}\"", escaped(who.first), escaped(who.second));
}

void shares(Page& page, const engine::Engine& engine) {
  std::map<Limits::Who, double> percent;
  for (const auto& [id, lease] : engine.state().leases.by_id)
    if (lease.share > 0 && lease.state == core::LeaseState::active)
      percent[{lease.tenant, lease.user}] += lease.share * static_cast<double>(lease.devices.size());
  if (percent.empty()) return;
  page.metric("sublet_interposer_share_percent", "gauge",
              "Shares of the computing time of active leases, in percent of one device");
  for (const auto& [who, sum] : percent) page.sample(labels(who), sum);
}

void times(Page& page, const std::map<Limits::Who, credit::Counts>& all) {
  const auto counter = [&](std::string_view name, std::string_view help, auto sum) {
    page.metric(name, "counter", help);
    for (const auto& [who, counts] : all) page.sample(labels(who), static_cast<double>((counts.*sum)()) / 1e9);
  };
  counter("sublet_interposer_busy_seconds_total", "Computing time that launches of leases with a share were charged",
          &credit::Counts::all_busy);
  counter("sublet_interposer_waited_seconds_total", "Time that launches waited for the share of their lease",
          &credit::Counts::all_waited);
}

}  // namespace

void interposer_metrics(Page& page, const engine::Engine& engine, const Limits& limits) {
  shares(page, engine);
  const auto& all = limits.counts();
  if (all.empty()) return;
  const auto counter = [&](std::string_view name, std::string_view help, std::int64_t credit::Counts::* field) {
    page.metric(name, "counter", help);
    for (const auto& [who, counts] : all) page.sample(labels(who), static_cast<double>(counts.*field));
  };
  counter("sublet_interposer_launches_total", "Kernels and graphs that programs behind the interposer launched",
          &credit::Counts::launches);
  counter("sublet_interposer_copied_bytes_total", "Bytes that these programs copied", &credit::Counts::copied);
  counter("sublet_interposer_allocated_bytes_total", "Bytes of device memory that these programs allocated",
          &credit::Counts::allocated);
  times(page, all);
  page.metric("sublet_interposer_errors_total", "counter", "Errors that these programs got, by code of CUresult");
  for (const auto& [who, counts] : all) {
    for (const auto& [code, number] : counts.errors)
      page.sample(fmt::format("{},code=\"{}\"", labels(who), code), static_cast<double>(number));
    page.sample(labels(who) + ",code=\"other\"", static_cast<double>(counts.other_errors));
  }
}

}  // namespace sublet::http
