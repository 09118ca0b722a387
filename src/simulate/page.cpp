// SPDX-License-Identifier: Apache-2.0
// The page: the table, and lines over time or load. One file without scripts.
#include "simulate/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace sublet::simulate {
namespace {

constexpr double width = 860, height = 260, left = 48, bottom = 28;
constexpr std::array<std::string_view, 6> colours{"#1b6ca8", "#d1495b", "#2e8b57", "#8d5a97", "#c98a00", "#555555"};

struct Point {
  double x, y;
};
struct Line {
  std::string name;
  std::vector<Point> points;
  bool dashed = false;
};

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '<') safe += "&lt;";
    else if (c == '&') safe += "&amp;";
    else if (c == '"') safe += "&quot;";
    else safe += c;
  }
  return safe;
}

// `most_y` in the unit of the points; the horizontal axis begins at 0.
std::string drawing(const std::string& title, const std::vector<Line>& lines, double most_y, const std::string& unit_x,
                    double scale_x) {
  double most_x = 1e-9;
  for (const Line& line : lines)
    for (const Point& point : line.points) most_x = std::max(most_x, point.x);
  const auto x = [&](double value) { return left + value / most_x * (width - left - 10); };
  const auto y = [&](double value) { return height - bottom - value / most_y * (height - bottom - 10); };
  std::string svg =
      fmt::format("<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n",
                  escaped(title), width, height, escaped(title));
  for (int i = 0; i <= 4; ++i) {
    const double at = most_y * i / 4;
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.0f}</text>\n",
        left, width - 10, y(at), left - 6, y(at) + 4, at);
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.4g} {}</text>\n", x(most_x * i / 4),
                       height - 8, most_x * i / 4 / scale_x, unit_x);
  }
  std::size_t colour = 0;
  for (const Line& line : lines) {
    std::string points;
    for (const Point& point : line.points) points += fmt::format("{:.1f},{:.1f} ", x(point.x), y(point.y));
    svg += fmt::format("<polyline points=\"{}\" stroke=\"{}\"{}><title>{}</title></polyline>\n", points,
                       colours[colour % colours.size()], line.dashed ? " stroke-dasharray=\"4 3\"" : "",
                       escaped(line.name));
    colour += line.dashed;  // a dashed line has the colour of the line before
  }
  svg += "</svg><ul>";
  colour = 0;
  for (const Line& line : lines) {
    svg += fmt::format("<li style=\"color:{}\">{}{}</li>", colours[colour % colours.size()], escaped(line.name),
                       line.dashed ? " (dashed)" : "");
    colour += line.dashed;
  }
  return svg + "</ul></figure>\n";
}

std::string page(const std::string& table, const std::string& drawings) {
  return "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Sublet: simulation</title>\n"
         "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;color:#222}"
         "svg{width:100%;background:#fff}svg text{font-size:11px;fill:#555}.grid{stroke:#e3e3e3}"
         "polyline{fill:none;stroke-width:1.5}ul{list-style:none;padding:0;display:flex;gap:1rem;flex-wrap:wrap}"
         "figure{margin:1.5rem 0}figcaption{font-weight:600}pre{overflow-x:auto}</style>\n"
         "<h1>Simulation</h1>\n<pre>" +
         escaped(table) + "</pre>\n" + drawings + "</html>\n";
}

}  // namespace

std::string page_of(std::span<const Figures> all) {
  std::vector<Line> memory, waiting;
  double most_waiting = 1;
  for (const Figures& its : all) {
    const double capacity = static_cast<double>(std::max(its.outcome.capacity.count, std::int64_t{1}));
    Line allocated{its.name + ": allocated", {}}, fragmented{its.name + ": fragmented", {}, true};
    Line queue{its.name, {}};
    for (const Sample& at : its.outcome.samples) {
      const double x = std::chrono::duration<double>(at.at).count();
      allocated.points.push_back({x, 100 * static_cast<double>(at.allocated.count) / capacity});
      fragmented.points.push_back({x, 100 * static_cast<double>(at.fragmented.count) / capacity});
      queue.points.push_back({x, static_cast<double>(at.waiting)});
      most_waiting = std::max(most_waiting, static_cast<double>(at.waiting));
    }
    memory.insert(memory.end(), {std::move(allocated), std::move(fragmented)});
    waiting.push_back(std::move(queue));
  }
  const bool days =
      std::ranges::any_of(all, [](const Figures& its) { return its.outcome.lasted > std::chrono::hours(72); });
  const std::string unit = days ? "d" : "h";
  const double scale = days ? 86400 : 3600;
  return page(table_of(all), drawing("Memory, in percent", memory, 100, unit, scale) +
                                 drawing("Waiting jobs", waiting, most_waiting, unit, scale));
}

std::string page_of(std::span<const NamedFill> all) {
  std::vector<Line> lines;
  for (const NamedFill& its : all) {
    Line allocated{its.first + ": allocated", {}}, fragmented{its.first + ": fragmented", {}, true};
    for (std::size_t i = 0; i < its.second.allocated.size(); ++i) {
      allocated.points.push_back({static_cast<double>(i), its.second.allocated[i]});
      fragmented.points.push_back({static_cast<double>(i), its.second.fragmented[i]});
    }
    lines.insert(lines.end(), {std::move(allocated), std::move(fragmented)});
  }
  return page(table_of(all), drawing("Memory in percent, by what was asked for", lines, 100, "%", 1));
}

}  // namespace sublet::simulate
