// SPDX-License-Identifier: Apache-2.0
// `report`: held memory and waiting times.
#include "cli/render.h"

#include <fmt/format.h>

namespace sublet::cli {

using nlohmann::json;

namespace {

// "1.5" GiB·h, or "0.004": the unit stands in the heading.
Cell hours_cell(const json& row, const char* key) {
  const double hours = static_cast<double>(number_at(row, key).value_or(0)) / 1024 / 3600;
  return {hours > 0 && hours < 1 ? fmt::format("{:.3f}", hours) : fmt::format("{:.1f}", hours)};
}

// A number of seconds; "-" if it is not known.
Cell length_cell(const json& row, const char* key) {
  const json& seconds = member(row, key);
  if (!seconds.is_number()) return {};
  return {compact(std::chrono::milliseconds(static_cast<std::int64_t>(seconds.get<double>() * 1000)))};
}

// The share of what was held without GPU work, as far as that is known.
Cell idle_cell(const json& row, const Look&) {
  const auto judged = number_at(row, "judged_mib_seconds").value_or(0);
  const auto held = judged > 0 ? judged : number_at(row, "held_mib_seconds").value_or(0);
  const auto idle = number_at(row, "idle_mib_seconds");
  if (held <= 0 || !idle) return {};
  const double share = 100.0 * static_cast<double>(*idle) / static_cast<double>(held);
  return {fmt::format("{:.0f} %", share), share > 50 ? Paint::yellow : Paint::none};
}

// The share of what was held that was never used, not even at the peak.
Cell never_cell(const json& row, const Look&) {
  const auto held = number_at(row, "held_mib_seconds").value_or(0);
  const auto never = number_at(row, "never_used_mib_seconds").value_or(0);
  if (held <= 0) return {};
  const double share = 100.0 * static_cast<double>(never) / static_cast<double>(held);
  return {fmt::format("{:.0f} %", share), share > 50 ? Paint::yellow : Paint::none};
}

Cell wait_cell(const json& row, const char* key) {
  const auto wait = number_at(member(row, "wait"), key);
  if (!wait) return {};
  return {*wait < 1000 ? fmt::format("{}ms", *wait) : compact(std::chrono::milliseconds(*wait))};
}

Cell weight_cell(const json& row, const Look&) {
  const json& weight = member(row, "weight");
  return {weight.is_number() ? fmt::format("{:g}", weight.get<double>()) : ""};
}

Cell ended_cell(const json& row, const Look&) {
  std::string out;
  const json& ended = member(row, "ended");
  for (const auto& [reason, count] : ended.items()) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", visible(reason), number_at(ended, reason).value_or(0));
  }
  return {out};
}

constexpr Column report_columns[] = {
    {"name", "NAME", true, false, +[](const json& r, const Look&) { return text_cell(r, "name"); }, Narrow::shorten},
    {"leases", "LEASES", true, true, +[](const json& r, const Look&) { return number_cell(r, "leases"); }},
    {"active", "ACTIVE", true, true, +[](const json& r, const Look&) { return number_cell(r, "active"); }, Narrow::cut,
     "0"},
    {"waiting", "WAITING", true, true, +[](const json& r, const Look&) { return number_cell(r, "waiting"); },
     Narrow::cut, "0"},
    {"quota", "QUOTA", true, true, +[](const json& r, const Look&) { return size_cell(r, "quota_bytes"); },
     Narrow::needless, "-"},
    {"weight", "WEIGHT", false, true, weight_cell},
    {"held", "GiB·h", true, true, +[](const json& r, const Look&) { return hours_cell(r, "held_mib_seconds"); }},
    {"paused", "PAUSED GiB·h", false, true,
     +[](const json& r, const Look&) { return hours_cell(r, "paused_mib_seconds"); }},
    {"used", "USED GiB·h", false, true, +[](const json& r, const Look&) { return hours_cell(r, "used_mib_seconds"); }},
    {"busy", "BUSY", false, true, +[](const json& r, const Look&) { return length_cell(r, "busy_seconds"); }},
    {"idle", "IDLE", true, true, idle_cell, Narrow::needless, "-"},
    {"idle-waited", "IDLE, OTHERS WAITED", false, true,
     +[](const json& r, const Look&) { return hours_cell(r, "idle_waited_mib_seconds"); }},
    {"parked", "PARKED GiB·h", false, true,
     +[](const json& r, const Look&) { return hours_cell(r, "parked_mib_seconds"); }},
    {"moved", "MOVED", false, true, +[](const json& r, const Look&) { return size_cell(r, "moved_bytes"); }},
    {"unused", "UNUSED", true, true, never_cell},
    {"peak", "PEAK", true, true, +[](const json& r, const Look&) { return size_cell(r, "peak_used_bytes"); }},
    {"p50", "WAIT p50", true, true, +[](const json& r, const Look&) { return wait_cell(r, "p50_ms"); }},
    {"p90", "p90", true, true, +[](const json& r, const Look&) { return wait_cell(r, "p90_ms"); }},
    {"p95", "p95", false, true, +[](const json& r, const Look&) { return wait_cell(r, "p95_ms"); }},
    {"max", "MAX", true, true, +[](const json& r, const Look&) { return wait_cell(r, "max_ms"); }},
    {"waited", "WAITED", false, true, +[](const json& r, const Look&) { return length_cell(r, "waited_seconds"); }},
    {"caused", "CAUSED", true, true, +[](const json& r, const Look&) { return length_cell(r, "wait_caused_seconds"); },
     Narrow::needless, "-"},
    {"pauses-caused", "PAUSES CAUSED", false, true,
     +[](const json& r, const Look&) { return number_cell(r, "pauses_caused"); }},
    {"pauses", "PAUSES", false, true, +[](const json& r, const Look&) { return number_cell(r, "pauses_suffered"); }},
    {"launches", "LAUNCHES", false, true, +[](const json& r, const Look&) { return number_cell(r, "launches"); }},
    {"errors", "ERRORS", false, true, +[](const json& r, const Look&) { return number_cell(r, "errors"); }},
    {"copied", "COPIED", false, true, +[](const json& r, const Look&) { return size_cell(r, "copied_bytes"); }},
    {"allocated", "ALLOCATED", false, true,
     +[](const json& r, const Look&) { return size_cell(r, "allocated_bytes"); }},
    {"share-waited", "SHARE WAITED", false, true,
     +[](const json& r, const Look&) { return length_cell(r, "share_waited_seconds"); }},
    {"ended", "ENDED", true, false, ended_cell, Narrow::below},
};

}  // namespace

std::span<const Column> report_columns_of() { return report_columns; }

Result<std::string> render_report(const json& report, const Common& common, const Look& look) {
  json rows = list_at(report, "rows");
  if (rows.size() > 1 && member(report, "total").is_object()) {
    rows.push_back(member(report, "total"));
    rows.back()["name"] = "(all)";
  }
  return render_table("report", report_columns, rows, common, look);
}

}  // namespace sublet::cli
