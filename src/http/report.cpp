// SPDX-License-Identifier: Apache-2.0
// GET /v1/report: who held, used and waited for how much in a period.
#include "http/parse.h"
#include "http/query.h"
#include "http/resources.h"
#include "meter/meter.h"

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

// `until` is a time, or so long ago.
Result<Meter::Period> parse_period(const Request& request, Time now) {
  Meter::Period period;
  Duration since = std::chrono::hours(24);
  if (const std::string text = query_value(request, "since"); !text.empty()) {
    const auto parsed = parse_duration(text);
    if (!parsed) return parsed.error();
    since = *parsed;
  }
  if (since < shortest || since > longest)
    return bad_request("since is not between 1s and 3650d", "for example since=24h");
  period.length = since.count() / 1'000'000;
  const std::string text = query_value(request, "until");
  if (text.empty()) return period;
  if (const auto time = parse_time(text)) period.to = ms_of(*time);
  else if (const auto ago = parse_duration(text)) period.to = ms_of(now - *ago);
  else
    return bad_request(fmt::format("until={} is neither a time nor a duration", printable(text)),
                       "for example until=7d, or until=2026-11-21T16:00:00Z");
  if (*period.to < period.length || *period.to > ms_of(now + longest))
    return bad_request(fmt::format("until={} is not between 1970 and ten years from now", printable(text)),
                       "for example until=7d, or until=2026-11-21T16:00:00Z");
  return period;
}

}  // namespace

Reply get_report(Call& call) {
  const auto by = parse_by(call.request);
  if (!by) return problem(by.error());
  const auto period = parse_period(call.request, call.engine.now());
  if (!period) return problem(period.error());
  const auto whole = query_flag(call.request, "whole");
  if (!whole) return problem(whole.error());
  Meter* meter = call.capabilities.meter;
  if (meter == nullptr)
    return problem(
        unavailable("the meter is switched off", "an admin can set meter.enabled = true and restart the daemon"));
  return Later{[meter, by = *by, period = *period, whole = whole->value_or(false)](std::function<void(Reply)> done) {
    meter->report(by, period, whole, [done = std::move(done)](Result<json> report) {
      if (!report) return done(problem(report.error()));
      done(Response{200, std::move(*report), {}});
    });
  }};
}

}  // namespace sublet::http
