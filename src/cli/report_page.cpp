// SPDX-License-Identifier: Apache-2.0
#include "cli/report_page.h"

#include "cli/output.h"
#include "plot/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

namespace sublet::cli {

using nlohmann::json;

namespace {

constexpr int plot_width = 860, plot_height = 220, label_count = 7;
constexpr const char* blue = "#3b7dd8";
constexpr const char* orange = "#d9822b";
constexpr const char* green = "#2f9e62";

double real_at(const json& object, std::string_view key) {
  const json& value = member(object, key);
  return value.is_number() ? value.get<double>() : 0;
}

std::optional<double> maybe_real(const json& object, std::string_view key, double unit) {
  const json& value = member(object, key);
  return value.is_number() ? std::optional(value.get<double>() / unit) : std::nullopt;
}

std::string cleaned(const json& object, std::string_view key) { return escape_markup(text_at(object, key)); }

std::string spoken(double seconds) {
  return compact(std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000)));
}

// --- plots ---

std::vector<std::string> period_labels(const json& report) {
  const auto from = time_at(report, "from"), to = time_at(report, "to");
  return from && to ? time_labels(*from, *to, label_count) : std::vector<std::string>();
}

std::vector<std::optional<double>> values_of(const json& points, std::string_view key, double unit) {
  std::vector<std::optional<double>> values;
  for (const json& point : points) values.push_back(maybe_real(point, key, unit));
  return values;
}

Plot memory_plot(const json& report, const json& device) {
  const double gib = static_cast<double>(GiB.count);
  const json& points = list_at(device, "points");
  return {.title = "Memory of " + text_at(device, "device"),
          .unit = "GiB",
          .most = real_at(device, "total_bytes") / gib,
          .labels = period_labels(report),
          .series = {{"leased", blue, values_of(points, "leased_bytes", gib), true},
                     {"used", green, values_of(points, "used_bytes", gib)}}};
}

Plot work_plot(const json& report, const json& device) {
  return {.title = "GPU work of " + text_at(device, "device"),
          .unit = "%",
          .most = 100,
          .labels = period_labels(report),
          .series = {{"busy", orange, values_of(list_at(device, "points"), "busy_percent", 1), true}}};
}

Plot waiting_plot(const json& report) {
  return {.title = "Waiting leases",
          .labels = period_labels(report),
          .series = {{"waiting", orange, values_of(list_at(member(report, "series"), "waiting"), "waiting", 1), true}}};
}

Plot hours_plot(const json& trend) {
  Plot plot{.title = "Time waited, by hour of the day (UTC)", .unit = "min", .bars = true};
  PlotSeries series{"waited", blue, {}};
  for (const json& hour : list_at(trend, "hours")) {
    plot.labels.push_back(fmt::format("{}", number_at(hour, "hour").value_or(0)));
    series.values.push_back(real_at(hour, "waited_seconds") / 60);
  }
  plot.series.push_back(std::move(series));
  return plot;
}

Plot weeks_plot(const json& trend) {
  Plot plot{.title = "Time waited, by week", .unit = "h", .bars = true};
  PlotSeries series{"waited", blue, {}};
  for (const json& week : list_at(trend, "weeks")) {
    plot.labels.push_back(text_at(week, "from").substr(0, 10));
    series.values.push_back(real_at(week, "waited_seconds") / 3600);
  }
  plot.series.push_back(std::move(series));
  return plot;
}

std::vector<Plot> plots_of(const json& report) {
  std::vector<Plot> plots;
  for (const json& device : list_at(member(report, "series"), "devices")) {
    plots.push_back(memory_plot(report, device));
    plots.push_back(work_plot(report, device));
  }
  plots.push_back(waiting_plot(report));
  const json& trend = member(report, "trend");
  plots.push_back(hours_plot(trend));
  if (!list_at(trend, "weeks").empty()) plots.push_back(weeks_plot(trend));
  return plots;
}

// --- tables ---

struct Field {
  const char* title;
  std::function<std::string(const json& row)> text;
};

std::string gib_hours(const json& row, std::string_view key) {
  return fmt::format("{:.1f}", real_at(row, key) / 1024 / 3600);
}

std::string or_unknown(const json& row, std::string_view key, const std::function<std::string()>& text) {
  return member(row, key).is_null() ? "–" : text();
}

std::vector<Field> row_fields() {
  const auto number = [](const char* key) {
    return [key](const json& row) {
      return or_unknown(row, key, [&] { return fmt::format("{}", number_at(row, key).value_or(0)); });
    };
  };
  const auto hours = [](const char* key) {
    return [key](const json& row) { return or_unknown(row, key, [&] { return gib_hours(row, key); }); };
  };
  const auto time = [](const char* key) {
    return [key](const json& row) { return or_unknown(row, key, [&] { return spoken(real_at(row, key)); }); };
  };
  const auto wait = [](const char* key) {
    return [key](const json& row) {
      return or_unknown(row, "wait", [&] { return spoken(real_at(member(row, "wait"), key) / 1000); });
    };
  };
  return {{"Name", [](const json& row) { return cleaned(row, "name"); }},
          {"Leases", number("leases")},
          {"Leased GiB·h", hours("held_mib_seconds")},
          {"Used GiB·h", hours("used_mib_seconds")},
          {"GPU busy", time("busy_seconds")},
          {"Idle GiB·h", hours("idle_mib_seconds")},
          {"Idle while others waited", hours("idle_waited_mib_seconds")},
          {"Waited", time("waited_seconds")},
          {"Wait p50", wait("p50_ms")},
          {"p95", wait("p95_ms")},
          {"Waits caused", time("wait_caused_seconds")},
          {"Pauses caused", number("pauses_caused")},
          {"Pauses suffered", number("pauses_suffered")}};
}

std::string table(const std::vector<Field>& fields, const json& rows) {
  std::string out = "<table><thead><tr>";
  for (const Field& field : fields) out += fmt::format("<th>{}</th>", field.title);
  out += "</tr></thead><tbody>\n";
  for (const json& row : rows) {
    out += "<tr>";
    for (const Field& field : fields) out += fmt::format("<td>{}</td>", field.text(row));
    out += "</tr>\n";
  }
  return out + "</tbody></table>\n";
}

std::string rows_section(const json& report) {
  json rows = list_at(report, "rows");
  if (rows.empty()) return "<p>No lease in this period.</p>\n";
  if (rows.size() > 1) {
    rows.push_back(member(report, "total"));
    rows.back()["name"] = "(all)";
  }
  return table(row_fields(), rows);
}

// A cell is darker, the more of all waiting it is.
std::string matrix_section(const json& matrix) {
  const json& names = list_at(matrix, "names");
  const json& seconds = list_at(matrix, "seconds");
  const auto cell = [&](std::size_t row, std::size_t column) {
    if (row >= seconds.size() || column >= seconds[row].size() || !seconds[row][column].is_number()) return 0.0;
    return seconds[row][column].get<double>();
  };
  double most = 0;
  for (std::size_t row = 0; row < names.size(); ++row)
    for (std::size_t column = 0; column < names.size(); ++column) most = std::max(most, cell(row, column));
  if (most <= 0) return "<p>No lease waited for another.</p>\n";
  const auto name = [&](std::size_t at) {
    return names[at].is_string() ? escape_markup(names[at].get<std::string>()) : std::string();
  };
  std::string out = "<table class=\"matrix\"><thead><tr><th>waited ↓ for →</th>";
  for (std::size_t column = 0; column < names.size(); ++column) out += fmt::format("<th>{}</th>", name(column));
  out += "</tr></thead><tbody>\n";
  for (std::size_t row = 0; row < names.size(); ++row) {
    out += fmt::format("<tr><th>{}</th>", name(row));
    for (std::size_t column = 0; column < names.size(); ++column) {
      const double value = cell(row, column);
      out += fmt::format("<td style=\"background: rgba(217,130,43,{:.2f})\">{}</td>", 0.8 * value / most,
                         value > 0 ? spoken(value) : "");
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table>\n";
}

std::string neighbours_section(const json& neighbours) {
  if (neighbours.empty()) return "<p>No lease made others wait.</p>\n";
  const auto time = [](const char* key) { return [key](const json& row) { return spoken(real_at(row, key)); }; };
  const auto ratio = [](const json& row) {
    return or_unknown(row, "per_gib_hour", [&] { return fmt::format("{:.1f}", real_at(row, "per_gib_hour")); });
  };
  return table({{"Name", [](const json& row) { return cleaned(row, "name"); }},
                {"Waits caused", time("wait_caused_seconds")},
                {"Pauses caused",
                 [](const json& row) { return fmt::format("{}", number_at(row, "pauses_caused").value_or(0)); }},
                {"Used GiB·h", [](const json& row) { return fmt::format("{:.1f}", real_at(row, "used_gib_hours")); }},
                {"Seconds of waiting for a used GiB·h", ratio}},
               neighbours);
}

std::string gaps_section(const json& gaps) {
  if (gaps.empty()) return {};
  return "<h2>Gaps</h2>\n" + table({{"From", [](const json& gap) { return cleaned(gap, "from"); }},
                                    {"To", [](const json& gap) { return cleaned(gap, "to"); }},
                                    {"Not known", [](const json& gap) { return cleaned(gap, "what"); }},
                                    {"Because", [](const json& gap) { return cleaned(gap, "why"); }}},
                                   gaps);
}

constexpr std::string_view page_style =
    "body { font: 15px/1.45 sans-serif; max-width: 900px; margin: 2em auto; padding: 0 1em; color: #222;\n"
    "  background: #fff }\n"
    "table { border-collapse: collapse; font-size: 13px; display: block; overflow-x: auto }\n"
    "th, td { padding: .25em .6em; text-align: right; border-bottom: 1px solid #8884 }\n"
    "th:first-child, td:first-child { text-align: left } svg.plot { width: 100%; height: auto }\n"
    "@media (prefers-color-scheme: dark) { body { color: #ddd; background: #181818 } }\n";

}  // namespace

std::string report_html(const json& report) {
  const std::string period =
      fmt::format("{} to {}", cleaned(report, "from").substr(0, 16), cleaned(report, "to").substr(0, 16));
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\"><title>Sublet report, {0}</title>\n"
      "<style>\n{1}{2}</style></head><body>\n<h1>Use of the GPUs</h1>\n<p>{0} (UTC), by {3}.</p>\n",
      period, page_style, plot_style(), cleaned(report, "by"));
  const json& trend = member(report, "trend");
  if (!list_at(trend, "sentences").empty()) out += "<ul>\n";
  for (const json& sentence : list_at(trend, "sentences"))
    if (sentence.is_string()) out += fmt::format("<li>{}</li>\n", escape_markup(sentence.get<std::string>()));
  if (!list_at(trend, "sentences").empty()) out += "</ul>\n";
  out += rows_section(report);
  for (const Plot& plot : plots_of(report)) out += svg_plot(plot, plot_width, plot_height);
  out += "<h2>Waits, and the holders that caused them</h2>\n" + matrix_section(member(report, "matrix"));
  out += "<h2>Noisy neighbours</h2>\n" + neighbours_section(list_at(report, "neighbours"));
  return out + gaps_section(list_at(report, "gaps")) + "</body></html>\n";
}

std::string report_svg(const json& report) { return svg_plots(plots_of(report), plot_width, plot_height); }

namespace {

std::string csv_cell(const json& value) {
  if (value.is_null()) return {};
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  // A spreadsheet takes such a text for a formula.
  if (value.is_string() && !text.empty() && std::string_view("=+-@\t\r").find(text.front()) != std::string_view::npos)
    text.insert(0, "'");
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  for (std::size_t at = 0; (at = text.find('"', at)) != std::string::npos; at += 2) text.insert(at, "\"");
  return "\"" + text + "\"";
}

}  // namespace

std::string report_csv(const json& report) {
  constexpr std::array<std::string_view, 28> fields{"name",
                                                    "leases",
                                                    "active",
                                                    "waiting",
                                                    "held_mib_seconds",
                                                    "used_mib_seconds",
                                                    "never_used_mib_seconds",
                                                    "paused_mib_seconds",
                                                    "parked_mib_seconds",
                                                    "idle_mib_seconds",
                                                    "idle_waited_mib_seconds",
                                                    "peak_used_bytes",
                                                    "busy_seconds",
                                                    "moved_bytes",
                                                    "waited_seconds",
                                                    "wait_caused_seconds",
                                                    "pauses_caused",
                                                    "pauses_suffered",
                                                    "p50_ms",
                                                    "p90_ms",
                                                    "p95_ms",
                                                    "max_ms",
                                                    "launches",
                                                    "errors",
                                                    "copied_bytes",
                                                    "allocated_bytes",
                                                    "charged_seconds",
                                                    "share_waited_seconds"};
  std::string out = fmt::format("{}\r\n", fmt::join(fields, ","));
  for (const json& row : list_at(report, "rows")) {
    std::vector<std::string> cells;
    for (const std::string_view field : fields)
      cells.push_back(csv_cell(member(field.ends_with("_ms") ? member(row, "wait") : row, field)));
    out += fmt::format("{}\r\n", fmt::join(cells, ","));
  }
  return out;
}

}  // namespace sublet::cli
