// SPDX-License-Identifier: Apache-2.0
#include "meter/report.h"

#include "base/text.h"
#include "meter/report_reader.h"

#include <algorithm>
#include <array>
#include <utility>

namespace sublet::meter {

using nlohmann::json;

namespace {

constexpr std::array<std::pair<By, std::string_view>, 5> words{{{By::user, "user"},
                                                                {By::tenant, "tenant"},
                                                                {By::consumer, "consumer"},
                                                                {By::session, "session"},
                                                                {By::device, "device"}}};
constexpr std::size_t most_rows = 50;  // further rows are added up
constexpr std::size_t most_in_matrix = 20;

std::string time_text(Ms ms) { return format_rfc3339(Time{ms * 1'000'000}); }

json row_json(const std::string& name, Row& row, bool has_leases) {
  const auto known = [](bool is_known, json value) { return is_known ? std::move(value) : json(nullptr); };
  const bool worked = row.work.has_value();
  const Work work = row.work.value_or(Work{});
  json out{{"name", name},
           {"leases", known(has_leases, row.leases)},
           {"active", known(has_leases, row.active)},
           {"waiting", known(has_leases, row.waiting)},
           {"held_mib_seconds", row.leased / 1000},
           {"never_used_mib_seconds", known(has_leases, row.never_used / 1000)},
           {"paused_mib_seconds", row.paused / 1000},
           {"peak_used_bytes", row.peak},
           {"wait",
            {{"p50_ms", percentile(row.waits, 50)},
             {"p90_ms", percentile(row.waits, 90)},
             {"p95_ms", percentile(row.waits, 95)},
             {"max_ms", percentile(row.waits, 100)}}},
           {"ended", row.ended},
           {"used_mib_seconds", known(row.used_ms > 0, row.used / 1000)},
           {"busy_seconds", known(row.busy_ms > 0, static_cast<double>(row.busy) / 100'000)},
           {"judged_mib_seconds", known(row.busy_ms > 0, row.judged / 1000)},
           {"idle_mib_seconds", known(row.busy_ms > 0, row.idle / 1000)},
           {"idle_waited_mib_seconds", known(row.busy_ms > 0, row.idle_waited / 1000)},
           {"parked_mib_seconds", row.parked / 1000},
           {"moved_bytes", row.moved},
           {"pauses_caused", known(has_leases, row.pauses_caused)},
           {"pauses_suffered", known(has_leases, row.pauses_suffered)},
           {"waited_seconds", known(has_leases, static_cast<double>(row.waited_ms) / 1000)},
           {"wait_caused_seconds", known(has_leases, row.caused_ms / 1000)},
           {"launches", known(worked, work.launches)},
           {"errors", known(worked, work.errors)},
           {"copied_bytes", known(worked, work.copied)},
           {"allocated_bytes", known(worked, work.allocated)},
           {"charged_seconds", known(worked, static_cast<double>(work.charged_us) / 1e6)},
           {"share_waited_seconds", known(worked, static_cast<double>(work.waited_us) / 1e6)},
           {"checkpoint_bytes", known(has_leases, row.checkpoints)}};
  if (!has_leases) out["wait"] = nullptr;
  return out;
}

using Named = std::pair<std::string, Row>;

// The largest holders first.
std::vector<Named> sorted(std::map<std::string, Row> rows) {
  std::vector<Named> all(std::make_move_iterator(rows.begin()), std::make_move_iterator(rows.end()));
  std::stable_sort(all.begin(), all.end(), [](const Named& a, const Named& b) {
    return std::pair(a.second.leased, a.second.waited_ms) > std::pair(b.second.leased, b.second.waited_ms);
  });
  return all;
}

json rows_json(std::vector<Named> rows, bool has_leases) {
  json out = json::array();
  Row rest;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i < most_rows) out.push_back(row_json(rows[i].first, rows[i].second, has_leases));
    else rest.add(rows[i].second);
  }
  if (rows.size() <= most_rows) return out;
  out.push_back(row_json("(rest)", rest, has_leases));
  out.back()["others"] = rows.size() - most_rows;
  return out;
}

json matrix_json(const std::map<std::pair<std::string, std::string>, double>& pairs) {
  std::map<std::string, double> weight;
  for (const auto& [pair, ms] : pairs) {
    weight[pair.first] += ms;
    weight[pair.second] += ms;
  }
  std::vector<std::pair<double, std::string>> order;
  for (const auto& [name, ms] : weight) order.emplace_back(ms, name);
  std::sort(order.rbegin(), order.rend());
  std::map<std::string, std::size_t> place;
  std::vector<std::string> names;
  for (const auto& [ms, name] : order) {
    place[name] = std::min(names.size(), most_in_matrix);
    if (names.size() <= most_in_matrix) names.push_back(names.size() < most_in_matrix ? name : "(rest)");
  }
  std::vector<std::vector<double>> seconds(names.size(), std::vector<double>(names.size(), 0));
  for (const auto& [pair, ms] : pairs) seconds[place[pair.first]][place[pair.second]] += ms / 1000;
  return {{"names", names}, {"seconds", seconds}};
}

json neighbours_json(const std::vector<Named>& rows) {
  std::vector<std::pair<double, json>> found;
  for (const auto& [name, row] : rows) {
    if (row.caused_ms < 1 && row.pauses_caused == 0) continue;
    const double gib_hours = static_cast<double>(row.used) / 1024 / 3'600'000;
    const double per = gib_hours > 0 ? row.caused_ms / 1000 / gib_hours : 0;
    found.emplace_back(gib_hours > 0 ? per : 1e300, json{{"name", name},
                                                         {"wait_caused_seconds", row.caused_ms / 1000},
                                                         {"pauses_caused", row.pauses_caused},
                                                         {"used_gib_hours", gib_hours},
                                                         {"per_gib_hour", gib_hours > 0 ? json(per) : json(nullptr)}});
  }
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  json out = json::array();
  for (std::size_t i = 0; i < std::min(found.size(), most_in_matrix); ++i) out.push_back(found[i].second);
  return out;
}

json slice_json(std::vector<Ms>& waits) {
  Ms all = 0;
  std::erase_if(waits, [](Ms waited) { return waited < worth_telling; });
  for (const Ms waited : waits) all += waited;
  return {
      {"waits", waits.size()}, {"waited_seconds", static_cast<double>(all) / 1000}, {"p95_ms", percentile(waits, 95)}};
}

json trend_json(const std::vector<WaitSample>& waits, const Query& query, Ms known_since) {
  std::array<std::vector<Ms>, 24> by_hour;
  std::map<Ms, std::vector<Ms>> by_week;
  for (Ms monday = monday_of(query.from); monday < query.to; monday += 7 * 24 * hour) by_week[monday];
  for (const WaitSample& wait : waits) {
    if (wait.at < query.from || wait.at > query.to) continue;
    by_hour[static_cast<std::size_t>(wait.at / hour % 24)].push_back(wait.waited);
    by_week[monday_of(wait.at)].push_back(wait.waited);
  }
  json hours = json::array(), weeks = json::array();
  for (std::size_t i = 0; i < by_hour.size(); ++i) {
    hours.push_back(slice_json(by_hour[i]));
    hours.back()["hour"] = i;
  }
  for (auto& [monday, values] : by_week) {
    weeks.push_back(slice_json(values));
    weeks.back()["from"] = time_text(monday);
  }
  return {{"hours", std::move(hours)},
          {"weeks", std::move(weeks)},
          {"sentences", trend_sentences(waits, query.to, known_since, query.to < query.now - minute)}};
}

json gaps_json(const std::vector<Gap>& gaps) {
  json out = json::array();
  for (const Gap& gap : gaps)
    out.push_back({{"from", time_text(gap.from)}, {"to", time_text(gap.to)}, {"what", gap.what}, {"why", gap.why}});
  return out;
}

json series_json(const Series& series, const Query& query) {
  const auto rate = [](std::int64_t amount, Ms ms) { return ms > 0 ? json(amount / ms) : json(nullptr); };
  json devices = json::array(), waiting = json::array();
  for (const auto& [uuid, points] : series.devices) {
    json list = json::array();
    std::int64_t total = 0;
    for (std::size_t i = 0; i < points.size(); ++i) {
      total = std::max(total, points[i].total);
      list.push_back({{"at", time_text(series.from + static_cast<Ms>(i) * series.step)},
                      {"leased_bytes", points[i].leased / std::max<Ms>(series.covered[i], 1)},
                      {"used_bytes", rate(points[i].used, points[i].used_ms)},
                      {"busy_percent", rate(points[i].busy, points[i].busy_ms)}});
    }
    const auto name = query.names.find(uuid);
    devices.push_back({{"device", name == query.names.end() ? uuid.substr(0, 12) : name->second},
                       {"uuid", uuid},
                       {"total_bytes", total},
                       {"points", std::move(list)}});
  }
  for (std::size_t i = 0; i < series.waiting.size(); ++i)
    waiting.push_back({{"at", time_text(series.from + static_cast<Ms>(i) * series.step)},
                       {"waiting", static_cast<double>(series.waiting[i]) /
                                       static_cast<double>(std::max<Ms>(series.covered[i], 1))}});
  return {{"step_seconds", series.step / 1000}, {"devices", std::move(devices)}, {"waiting", std::move(waiting)}};
}

}  // namespace

std::string_view to_string(By by) {
  return std::find_if(words.begin(), words.end(), [by](const auto& word) { return word.first == by; })->second;
}

std::optional<By> parse_by(std::string_view text) {
  for (const auto& [by, word] : words)
    if (word == text) return by;
  return std::nullopt;
}

Result<json> read_report(File& file, const Query& query) {
  ReportReader reader(file.database(), query);
  if (auto done = reader.read(); !done) return done.error();
  const bool has_leases = query.by != By::device;
  std::vector<Named> rows = sorted(reader.rows());
  Row total;
  for (const auto& [name, row] : rows) total.add(row);
  json report{{"from", time_text(query.from)},
              {"to", time_text(query.to)},
              {"by", to_string(query.by)},
              {"complete", reader.complete_since() <= query.from},
              {"complete_since", time_text(std::max(reader.complete_since(), query.from))},
              {"rows", rows_json(rows, has_leases)},
              {"total", row_json("", total, has_leases)},
              {"gaps", gaps_json(reader.gaps())}};
  report["total"].erase("name");
  if (!query.whole) return {boost::system::in_place_value, std::move(report)};
  auto series = reader.read_series();
  auto waits = reader.read_waits(std::min(query.from, query.to - 23 * 24 * hour));
  const auto known_since = reader.read_known_since();
  if (!series || !waits) return series ? waits.error() : series.error();
  if (!known_since) return known_since.error();
  report["series"] = series_json(*series, query);
  report["matrix"] = matrix_json(reader.pairs());
  report["neighbours"] = neighbours_json(rows);
  report["trend"] = trend_json(*waits, query, *known_since);
  return {boost::system::in_place_value, std::move(report)};
}

}  // namespace sublet::meter
