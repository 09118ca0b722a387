// SPDX-License-Identifier: Apache-2.0
// GET /v1/report: who held, used and waited for how much in a period.
#include "http/parse.h"
#include "http/query.h"
#include "http/routes.h"
#include "meter/meter.h"
#include "tenants/tenants.h"

namespace sublet::http {
namespace {

using meter::By;
using meter::Meter;

constexpr Duration shortest = std::chrono::seconds(1), longest = std::chrono::hours(24 * 3650);

Result<By> parse_by(const Request& request) {
  const auto given = request.query.find("by");
  if (given == request.query.end()) return By::user;
  if (const auto by = meter::parse_by(given->second)) return *by;
  return bad_request(
      fmt::format("by={} is not one of user, consumer, tenant, session, device", printable(given->second)),
      "for example by=consumer");
}

meter::Ms ms_of(Time time) { return time.ns / 1'000'000; }

// `until` is a time, or so long ago. `since` is a time, or the length of the period.
Result<Meter::Period> parse_period(const Request& request, Time now) {
  const auto since = query_moment(request, "since", now), until = query_moment(request, "until", now);
  if (!since) return since.error();
  if (!until) return until.error();
  Meter::Period period;
  const Time to = *until ? (*until)->at : now;
  Duration length = std::chrono::hours(24);
  if (*since) length = (*since)->distance.value_or(to - (*since)->at);
  if (length < shortest || length > longest)
    return bad_request("the period from since to until is not between 1s and 3650d", "for example since=24h");
  period.length = length.count() / 1'000'000;
  if (!*until) return period;
  period.to = ms_of(to);
  if (*period.to < period.length || *period.to > ms_of(now + longest))
    return bad_request(
        fmt::format("until={} is not between 1970 and ten years from now", printable(query_value(request, "until"))),
        "for example until=7d, or until=2026-11-21T16:00:00Z");
  return period;
}

// Sets what each tenant of the report is guaranteed, beside what it has used.
void add_quotas(json& report, const tenants::Tenants& all) {
  for (json& row : report["rows"]) {
    const core::Tenant* entry = all.tree().find(row.value("name", ""));
    if (entry == nullptr) continue;
    row["quota_bytes"] = entry->quota.bytes ? json(entry->quota.bytes->count) : json(nullptr);
    row["weight"] = entry->weight / 1000.0;
  }
}

Reply get_report(Call& call) {
  const auto by = parse_by(call.request);
  if (!by) return problem(by.error());
  const auto period = parse_period(call.request, call.engine.now());
  if (!period) return problem(period.error());
  const auto whole = query_flag(call.request, "whole");
  if (!whole) return problem(whole.error());
  Meter* meter = call.capabilities.meter;
  if (meter == nullptr) return problem(switched_off("the meter is switched off", "meter.enabled"));
  const tenants::Tenants* all = *by == By::tenant ? call.capabilities.tenants : nullptr;
  return Later{[meter, by = *by, period = *period, whole = whole->value_or(false),
                all](std::function<void(Reply)> done) {
    meter->report(by, period, whole, [done = std::move(done), all](Result<json> report) {
      if (!report) return done(problem(report.error()));
      if (all != nullptr) add_quotas(*report, *all);
      done(Response{200, std::move(*report), {}});
    });
  }};
}

constexpr Route table[] = {
    Route{Method::get, "/v1/report", Role::user, Scope::read, get_report, "since,until,by,whole"},
};

}  // namespace

const std::span<const Route> report_routes = table;

}  // namespace sublet::http
