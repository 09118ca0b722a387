// SPDX-License-Identifier: Apache-2.0
// The page and the picture: the table, and lines over time or load. One file without scripts.
#include "plot/plot.h"
#include "simulate/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace sublet::simulate {
namespace {

constexpr int width = 860, height = 240, label_count = 7;
constexpr std::size_t points = 256;
constexpr std::array<const char*, 8> colours{"#1b6ca8", "#d1495b", "#2e8b57", "#c98a00",
                                             "#8d5a97", "#555555", "#17a2a2", "#a0522d"};

const char* colour(std::size_t index) { return colours[index % colours.size()]; }
double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

// The values of the samples at equal distances up to `end`; none where the run had ended.
template <typename Value>
std::vector<std::optional<double>> line_of(const Outcome& outcome, Duration end, const Value& value) {
  std::vector<std::optional<double>> values;
  std::size_t at = 0;
  for (std::size_t i = 0; i < points; ++i) {
    const Duration time = Duration(end.count() / static_cast<std::int64_t>(points - 1) * static_cast<std::int64_t>(i));
    while (at + 1 < outcome.samples.size() && outcome.samples[at + 1].at <= time) ++at;
    const bool known = !outcome.samples.empty() && time <= outcome.lasted;
    values.push_back(known ? std::optional(value(outcome.samples[at])) : std::nullopt);
  }
  return values;
}

std::vector<std::string> time_axis(Duration end) {
  const bool days = end > std::chrono::hours(96);
  std::vector<std::string> labels;
  for (int i = 0; i < label_count; ++i)
    labels.push_back(
        fmt::format("{:.3g} {}", seconds(end) * i / (label_count - 1) / (days ? 86400 : 3600), days ? "d" : "h"));
  return labels;
}

double percent_of(Bytes part, const Outcome& outcome) {
  return 100 * static_cast<double>(part.count) / static_cast<double>(std::max(outcome.capacity.count, std::int64_t{1}));
}

// The memory of each tenant in one setting.
Plot tenants_plot(const Figures& its, Duration end, std::vector<std::string> labels) {
  Plot plot{.title = its.name + ": memory of each tenant", .unit = "%", .most = 100, .labels = std::move(labels)};
  std::size_t at = 0;
  for (const TenantFigures& tenant : its.tenants) {
    plot.series.push_back({.name = tenant.name,
                           .color = colour(at),
                           .values = line_of(its.outcome, end, [&its, at](const Sample& sample) {
                             return at < sample.tenants.size() ? percent_of(sample.tenants[at], its.outcome) : 0;
                           })});
    ++at;
  }
  return plot;
}

std::vector<Plot> plots_of(std::span<const Figures> all) {
  Duration end{1};
  for (const Figures& its : all) end = std::max(end, its.outcome.lasted);
  Plot allocated{.title = "Memory allocated", .unit = "%", .most = 100, .labels = time_axis(end)};
  Plot fragmented{.title = "Memory fragmented", .unit = "%", .labels = time_axis(end)};
  Plot waiting{.title = "Jobs without memory", .labels = time_axis(end)};
  std::size_t index = 0;
  for (const Figures& its : all) {
    const auto add = [&](Plot& plot, const auto& value) {
      plot.series.push_back({.name = its.name, .color = colour(index), .values = line_of(its.outcome, end, value)});
    };
    add(allocated, [&its](const Sample& at) { return percent_of(at.allocated, its.outcome); });
    add(fragmented, [&its](const Sample& at) { return percent_of(at.fragmented, its.outcome); });
    add(waiting, [](const Sample& at) { return at.waiting; });
    ++index;
  }
  std::vector<Plot> plots;
  plots.push_back(std::move(allocated));
  for (const Figures& its : all)
    if (its.tenants.size() > 1 && its.tenants.size() <= most_drawn_tenants)
      plots.push_back(tenants_plot(its, end, time_axis(end)));
  plots.push_back(std::move(waiting));
  plots.push_back(std::move(fragmented));
  return plots;
}

std::vector<Plot> plots_of(std::span<const NamedFill> all) {
  std::size_t most = 1, index = 0;
  for (const NamedFill& its : all) most = std::max(most, its.second.allocated.size());
  std::vector<std::string> labels;
  for (std::size_t i = 0; i < label_count; ++i)
    labels.push_back(fmt::format("{} %", (most - 1) * i / (label_count - 1)));
  Plot allocated{.title = "Memory allocated, by what was asked for", .unit = "%", .most = 100, .labels = labels};
  Plot fragmented{.title = "Memory fragmented, by what was asked for", .unit = "%", .labels = labels};
  for (const NamedFill& its : all) {
    for (const auto& [plot, values] :
         {std::pair(&allocated, &its.second.allocated), std::pair(&fragmented, &its.second.fragmented)}) {
      PlotSeries series{.name = its.first, .color = colour(index), .values = {values->begin(), values->end()}};
      series.values.resize(most);
      plot->series.push_back(std::move(series));
    }
    ++index;
  }
  return {std::move(allocated), std::move(fragmented)};
}

std::string page(const std::string& table, const std::vector<Plot>& plots) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Sublet: simulation</title>\n"
      "<style>\nbody{font:15px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;color:#222}"
      "svg{max-width:100%;height:auto}pre{overflow-x:auto}"
      "@media (prefers-color-scheme: dark){body{background:#1b1b1b;color:#ddd}}\n";
  out += plot_style();
  out += "</style>\n<h1>Simulation</h1>\n<pre>";
  for (std::size_t begin = 0, end = 0; end != std::string::npos && begin < table.size(); begin = end + 1) {
    end = table.find('\n', begin);
    out += escape_markup(std::string_view(table).substr(begin, end - begin)) + "\n";
  }
  out += "</pre>\n";
  for (const Plot& plot : plots) out += svg_plot(plot, width, height);
  return out + "</html>\n";
}

}  // namespace

std::string page_of(std::span<const Figures> all) { return page(table_of(all), plots_of(all)); }
std::string page_of(std::span<const NamedFill> all) { return page(table_of(all), plots_of(all)); }
std::string picture_of(std::span<const Figures> all) { return svg_plots(plots_of(all), width, height); }
std::string picture_of(std::span<const NamedFill> all) { return svg_plots(plots_of(all), width, height); }

}  // namespace sublet::simulate
