// SPDX-License-Identifier: Apache-2.0
#include "http/usage.h"

#include <algorithm>

namespace sublet::http {

using core::Lease;
using nlohmann::json;

namespace {

// The smallest value that so many percent of them do not exceed.
std::int64_t percentile(std::vector<std::int64_t>& values, std::size_t percent) {
  if (values.empty()) return 0;
  const std::size_t rank = (values.size() * percent + 99) / 100;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// A part of a lease's life in which it had one size, or is taken to have had one.
struct Span {
  Time from, to;
  Bytes size;
  Duration parked_for;            // in pauses that are over
  std::optional<Time> parked_at;  // since when it is parked
};

// Sizes before the last one are known only as a mean, and the pauses in that time only as a sum.
std::vector<Span> spans(const Lease& lease, Time end) {
  const Time granted = *lease.granted_at;
  const auto& sized = lease.sized;
  if (!sized) return {{granted, end, lease.vram, lease.parked_for, lease.parked_at}};
  const Duration since = std::max(lease.parked_for - sized->parked, Duration{});
  return {{granted, sized->until, sized->mean, sized->parked, {}},
          {sized->until, end, lease.vram, since, lease.parked_at}};
}

// The paused part of the time from `from` to `to`. Finished pauses are known only as a sum and count as spread evenly
// over their span.
double parked_seconds(const Span& span, Time from, Time to) {
  const Time now_parked = std::min(span.parked_at.value_or(to), to);
  const double before = seconds(std::max(now_parked - from, Duration{}));
  const double whole = seconds(span.parked_at.value_or(span.to) - span.from);
  const double earlier = whole > 0 ? seconds(span.parked_for) * std::min(before / whole, 1.0) : 0;
  return earlier + seconds(to - std::max(now_parked, from));
}

std::int64_t whole(double number) { return static_cast<std::int64_t>(number + 0.5); }

}  // namespace

void Usage::add(const Lease& lease) {
  if (lease.created_at >= window_.to || (lease.ended_at && *lease.ended_at < window_.from)) return;
  const std::string& name = by_ == UsageBy::user ? lease.user : by_ == UsageBy::tenant ? lease.tenant : lease.consumer;
  add(sums_[name], lease);
  add(all_, lease);
}

void Usage::add(Sum& sum, const Lease& lease) const {
  ++sum.leases;
  const bool begun = lease.state != core::LeaseState::queued;
  if (!lease.ended() && (!begun || lease.waits_in_place())) ++sum.waiting;
  if (!lease.ended() && begun) ++sum.active;
  const Time end = std::min(lease.ended_at.value_or(window_.to), window_.to);
  const Time waited_until = std::min(lease.granted_at.value_or(end), window_.to);
  sum.waits_ms.push_back(std::max<std::int64_t>(0, (waited_until - lease.created_at) / std::chrono::milliseconds(1)));
  if (lease.ended()) ++sum.ended[std::string(core::to_string(lease.end_reason))];
  sum.peak = std::max(sum.peak, lease.peak_used);
  if (!lease.granted_at) return;
  const double devices = std::max(1, lease.device_count);
  const auto mib = [](Bytes bytes) { return static_cast<double>(bytes.count) / static_cast<double>(MiB.count); };
  for (const Span& span : spans(lease, lease.ended_at.value_or(window_.to))) {
    const Time from = std::max(span.from, window_.from);
    const Time to = std::min(span.to, window_.to);
    if (from >= to) continue;
    const double parked = std::min(parked_seconds(span, from, to), seconds(to - from));
    const double time = seconds(to - from) - parked;
    sum.held += time * devices * mib(span.size);
    sum.paused += parked * devices * mib(span.size);
    sum.never_used += time * devices * mib(std::max(Bytes{}, span.size - lease.peak_used));
  }
}

json Usage::row(Sum& sum) {
  json waits{{"p50_ms", percentile(sum.waits_ms, 50)},
             {"p90_ms", percentile(sum.waits_ms, 90)},
             {"max_ms", percentile(sum.waits_ms, 100)}};
  return {{"leases", sum.leases},
          {"active", sum.active},
          {"waiting", sum.waiting},
          {"held_mib_seconds", whole(sum.held)},
          {"never_used_mib_seconds", whole(sum.never_used)},
          {"paused_mib_seconds", whole(sum.paused)},
          {"peak_used_bytes", sum.peak.count},
          {"wait", std::move(waits)},
          {"ended", sum.ended}};
}

json Usage::rows() {
  std::vector<std::pair<std::string, json>> rows;
  for (auto& [name, sum] : sums_) rows.emplace_back(name, row(sum));
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
    return a.second["held_mib_seconds"] > b.second["held_mib_seconds"];
  });
  json out = json::array();
  for (auto& [name, entry] : rows) {
    entry["name"] = name;
    out.push_back(std::move(entry));
  }
  return out;
}

json Usage::total() { return row(all_); }

}  // namespace sublet::http
