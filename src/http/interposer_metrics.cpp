// SPDX-License-Identifier: Apache-2.0
// Counts of the processes behind the interposer, by tenant and user. No series without such processes.
#include "http/metrics_page.h"
#include "limit/limits.h"

#include <fmt/format.h>

namespace sublet::http {

void interposer_metrics(Page& page, const limit::Limits& limits) {
  const auto& all = limits.counts();
  if (all.empty()) return;
  const auto labels = [](const limit::Limits::Who& who) {
    return fmt::format("tenant=\"{}\",user=\"{}\"", escaped(who.first), escaped(who.second));
  };
  const auto counter = [&](std::string_view name, std::string_view help, std::int64_t credit::Counts::* field) {
    page.metric(name, "counter", help);
    for (const auto& [who, counts] : all) page.sample(labels(who), static_cast<double>(counts.*field));
  };
  counter("sublet_interposer_launches_total", "Kernels and graphs that programs behind the interposer launched",
          &credit::Counts::launches);
  counter("sublet_interposer_copied_bytes_total", "Bytes that these programs copied", &credit::Counts::copied);
  counter("sublet_interposer_allocated_bytes_total", "Bytes of device memory that these programs allocated",
          &credit::Counts::allocated);
  page.metric("sublet_interposer_errors_total", "counter", "Errors that these programs got, by code of CUresult");
  for (const auto& [who, counts] : all) {
    for (const auto& [code, number] : counts.errors)
      page.sample(fmt::format("{},code=\"{}\"", labels(who), code), static_cast<double>(number));
    page.sample(labels(who) + ",code=\"other\"", static_cast<double>(counts.other_errors));
  }
}

}  // namespace sublet::http
