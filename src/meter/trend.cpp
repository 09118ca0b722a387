// SPDX-License-Identifier: Apache-2.0
#include "meter/trend.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

namespace sublet::meter {
namespace {

constexpr Ms week = 7 * day;
constexpr std::int64_t gib = 1LL << 30;
constexpr std::array<std::int64_t, 7> size_classes{64 * gib, 48 * gib, 32 * gib, 24 * gib, 16 * gib, 8 * gib, 4 * gib};
constexpr double change = 1.5;        // a smaller change is not told
constexpr std::size_t few_waits = 4;  // fewer waits say nothing about a trend

struct Period {
  std::vector<const WaitSample*> before{}, now{};
};

struct Span {
  Ms begin = 0, middle = 0, end = 0;  // from `middle` to `end` is compared with as much time from `begin`
  std::string since{};                // "since Monday"
};

Span span_of(Ms now, bool is_past) {
  Ms monday = monday_of(now);
  const bool early = now - monday < day;
  if (early) monday -= week;
  std::string since = early ? "since Monday a week ago" : "since Monday";
  if (is_past) since = "since " + format_rfc3339(Time{monday * 1'000'000}).substr(0, 10);
  // Two weeks on a Monday: the days of the week before are those of both halves.
  return {monday - (early ? 2 : 1) * week, monday, now, std::move(since)};
}

Period split(const std::vector<WaitSample>& waits, const Span& span, std::int64_t above) {
  Period period;
  const Ms length = span.end - span.middle;
  for (const WaitSample& wait : waits) {
    if (wait.waited < worth_telling || wait.wanted <= above || wait.at >= span.end) continue;
    if (wait.at >= span.middle) period.now.push_back(&wait);
    else if (wait.at >= span.begin && wait.at < span.begin + length) period.before.push_back(&wait);
  }
  return period;
}

// The new number as a multiple of the old one.
double ratio_of(double before, double now) { return before > 0 ? now / before : now > 0 ? 100 : 1; }

std::string changed(double ratio) {
  if (ratio >= 10) return "rose tenfold or more";
  if (ratio >= 2.5) return fmt::format("rose {:.0f}-fold", ratio);
  if (ratio >= 1.8) return "doubled";
  if (ratio > 1) return fmt::format("rose by {:.0f} %", (ratio - 1) * 100);
  if (ratio <= 0.55 && ratio >= 0.45) return "halved";
  return fmt::format("fell by {:.0f} %", (1 - ratio) * 100);
}

std::string biggest_user(const std::vector<const WaitSample*>& waits) {
  std::map<std::string, std::size_t> counts;
  for (const WaitSample* wait : waits) ++counts[wait->user];
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == counts.end() || counts.size() < 2) return {};
  const auto percent = std::lround(100.0 * static_cast<double>(most->second) / static_cast<double>(waits.size()));
  if (percent < 50) return {};
  return fmt::format("; {} % of them were for user {}", percent, printable(most->first));
}

bool is_told(const Period& period, double ratio) {
  return std::max(period.before.size(), period.now.size()) >= few_waits && (ratio >= change || ratio <= 1 / change);
}

// The largest size above which waits changed.
std::string counts_sentence(const std::vector<WaitSample>& waits, const Span& span) {
  for (const std::int64_t above : size_classes) {
    const Period period = split(waits, span, above);
    const double ratio = ratio_of(static_cast<double>(period.before.size()), static_cast<double>(period.now.size()));
    if (is_told(period, ratio))
      return fmt::format("waits for more than {} GiB {} {}{}", above / gib, changed(ratio), span.since,
                         biggest_user(ratio > 1 ? period.now : period.before));
  }
  const Period all = split(waits, span, 0);
  const double ratio = ratio_of(static_cast<double>(all.before.size()), static_cast<double>(all.now.size()));
  if (!is_told(all, ratio)) return {};
  return fmt::format("waits {} {}{}", changed(ratio), span.since, biggest_user(ratio > 1 ? all.now : all.before));
}

std::string time_sentence(const std::vector<WaitSample>& waits, const Span& span) {
  const Period period = split(waits, span, 0);
  const auto p95 = [](const std::vector<const WaitSample*>& of) {
    std::vector<Ms> values;
    for (const WaitSample* wait : of) values.push_back(wait->waited);
    return percentile(values, 95);
  };
  const Ms before = p95(period.before), now = p95(period.now);
  if (period.before.size() < few_waits || period.now.size() < few_waits || before <= 0) return {};
  const double ratio = static_cast<double>(now) / static_cast<double>(before);
  if (ratio < change && ratio > 1 / change) return {};
  return fmt::format("the longest waits (p95) {} {}, to {}", changed(ratio), span.since,
                     format_duration(std::chrono::seconds((now + 500) / 1000)));
}

}  // namespace

Ms monday_of(Ms at) {
  const Ms days = at / day;
  return (days - (days + 3) % 7) * day;  // day 0 was a Thursday
}

Ms percentile(std::vector<Ms>& values, int percent) {
  if (values.empty()) return 0;
  const std::size_t rank = (values.size() * static_cast<std::size_t>(percent) + 99) / 100;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

std::vector<std::string> trend_sentences(const std::vector<WaitSample>& waits, Ms now, Ms known_since, bool is_past) {
  const Span span = span_of(now, is_past);
  if (known_since > span.begin) return {"there are not enough weeks of data to tell how waiting changes"};
  std::vector<std::string> sentences;
  for (std::string text : {counts_sentence(waits, span), time_sentence(waits, span)})
    if (!text.empty()) sentences.push_back(std::move(text));
  const Period period = split(waits, span, 0);
  if (sentences.empty())
    sentences.push_back(period.now.empty() ? fmt::format("no lease waited {}", span.since)
                                           : fmt::format("waiting did not change much {}", span.since));
  return sentences;
}

}  // namespace sublet::meter
