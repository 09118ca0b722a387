// SPDX-License-Identifier: Apache-2.0
#include "plot/plot.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sublet {
namespace {

constexpr int left_margin = 56, right_margin = 12, top_margin = 28, bottom_margin = 26;
constexpr int tick_count = 4;

// The area inside the axes, in units of the viewBox.
struct Frame {
  double left, top, width, height, most;

  double x(std::size_t index, std::size_t count) const {
    return left + (count < 2 ? 0.5 : static_cast<double>(index) / static_cast<double>(count - 1)) * width;
  }
  double y(double value) const { return top + height * (1 - std::clamp(value / most, 0.0, 1.0)); }
};

// The next of 1, 2, 2.5, 5 and 10 times a power of ten.
double rounded_up(double value) {
  if (value <= 0) return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double step : {1.0, 2.0, 2.5, 5.0, 10.0})
    if (value <= step * power * 1.0001) return step * power;
  return 10 * power;
}

double top_of(const Plot& plot) {
  if (plot.most > 0) return plot.most;
  double most = 0;
  for (const PlotSeries& series : plot.series)
    for (const auto& value : series.values) most = std::max(most, value.value_or(0));
  return rounded_up(most);
}

std::string number_text(double value) {
  return value >= 100 || value == std::floor(value) ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

std::string axes(const Plot& plot, const Frame& frame) {
  std::string out = fmt::format(R"(<text class="title" x="{}" y="16">{}</text>)"
                                "\n",
                                left_margin, escape_markup(plot.title));
  for (int i = 0; i <= tick_count; ++i) {
    const double value = frame.most * i / tick_count, y = frame.y(value);
    out += fmt::format(R"(<line class="grid" x1="{0:.1f}" x2="{1:.1f}" y1="{2:.1f}" y2="{2:.1f}"/>)"
                       R"(<text class="tick" x="{3:.1f}" y="{4:.1f}" text-anchor="end">{5}</text>)"
                       "\n",
                       frame.left, frame.left + frame.width, y, frame.left - 6, y + 3.5,
                       escape_markup(i == tick_count ? number_text(value) + " " + plot.unit : number_text(value)));
  }
  for (std::size_t i = 0; i < plot.labels.size(); ++i) {
    // Labels of bars stand below the bars, and labels of lines at the ends of the axis.
    const double x =
        plot.bars ? frame.left + frame.width * (static_cast<double>(i) + 0.5) / static_cast<double>(plot.labels.size())
                  : frame.x(i, plot.labels.size());
    const char* anchor = plot.bars ? "middle" : i == 0 ? "start" : i + 1 == plot.labels.size() ? "end" : "middle";
    out += fmt::format(R"(<text class="tick" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>)"
                       "\n",
                       x, frame.top + frame.height + 16, anchor, escape_markup(plot.labels[i]));
  }
  return out;
}

// One path for each run of known values.
std::string line_of(const PlotSeries& series, const Frame& frame) {
  std::string out;
  const std::size_t count = series.values.size();
  for (std::size_t i = 0; i < count;) {
    if (!series.values[i]) {
      ++i;
      continue;
    }
    std::string path;
    const std::size_t first = i;
    for (; i < count && series.values[i]; ++i)
      path += fmt::format("{}{:.1f},{:.1f} ", i == first ? "M" : "L", frame.x(i, count), frame.y(*series.values[i]));
    if (i == first + 1) path += "h0.1 ";  // a single value is a dot
    if (series.filled) {
      out += fmt::format(R"(<path class="area" fill="{0}" d="{1}L{2:.1f},{4:.1f} L{3:.1f},{4:.1f} Z"/>)", series.color,
                         path, frame.x(i - 1, count), frame.x(first, count), frame.y(0));
    }
    out += fmt::format(R"(<path class="data" stroke="{}" d="{}"/>)"
                       "\n",
                       series.color, path);
  }
  return out;
}

std::string bars_of(const PlotSeries& series, const Frame& frame) {
  std::string out;
  const auto count = static_cast<double>(series.values.size());
  for (std::size_t i = 0; i < series.values.size(); ++i) {
    const double value = series.values[i].value_or(0), y = frame.y(value), step = frame.width / count;
    out += fmt::format(
        R"(<rect class="data" fill="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>)"
        "\n",
        series.color, frame.left + step * (static_cast<double>(i) + 0.1), y, step * 0.8, frame.y(0) - y,
        number_text(value));
  }
  return out;
}

std::string legend(const Plot& plot, int width) {
  if (plot.series.size() < 2) return {};
  std::string out;
  double x = width - right_margin;
  for (auto series = plot.series.rbegin(); series != plot.series.rend(); ++series) {
    x -= 7.0 * static_cast<double>(series->name.size()) + 22;
    out += fmt::format(
        R"(<rect x="{:.1f}" y="8" width="10" height="10" fill="{}"/><text class="tick" x="{:.1f}" y="17">{}</text>)"
        "\n",
        x, series->color, x + 14, escape_markup(series->name));
  }
  return out;
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
    }
  }
  return out;
}

std::string_view plot_style() {
  return ".plot { font: 11px sans-serif; color: #333 }\n"
         ".plot text { fill: currentColor } .plot .title { font-size: 13px; font-weight: bold }\n"
         ".plot .grid { stroke: currentColor; opacity: .15 } .plot .area { opacity: .3 }\n"
         ".plot path.data { fill: none; stroke-width: 1.5 }\n"
         "@media (prefers-color-scheme: dark) { .plot { color: #ccc } }\n";
}

std::string svg_plot(const Plot& plot, int width, int height, int y) {
  const Frame frame{static_cast<double>(left_margin), static_cast<double>(top_margin),
                    static_cast<double>(width - left_margin - right_margin),
                    static_cast<double>(height - top_margin - bottom_margin), top_of(plot)};
  std::string out = fmt::format(R"(<svg class="plot" viewBox="0 0 {0} {1}" )"
                                R"(width="{0}" height="{1}" y="{2}" role="img">)"
                                "\n<title>{3}</title>\n",
                                width, height, y, escape_markup(plot.title));
  out += axes(plot, frame);
  for (const PlotSeries& series : plot.series) out += plot.bars ? bars_of(series, frame) : line_of(series, frame);
  return out + legend(plot, width) + "</svg>\n";
}

std::string svg_plots(const std::vector<Plot>& plots, int width, int height) {
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\">\n"
      "<style>\n{2}</style>\n",
      width, static_cast<int>(plots.size()) * height, plot_style());
  for (std::size_t i = 0; i < plots.size(); ++i) out += svg_plot(plots[i], width, height, static_cast<int>(i) * height);
  return out + "</svg>\n";
}

std::vector<std::string> time_labels(Time from, Time to, int count) {
  const Duration length = to - from;
  const char* form = length <= std::chrono::hours(24)       ? "{:%H:%M}"
                     : length <= std::chrono::hours(24 * 4) ? "{:%b %d %H:%M}"
                                                            : "{:%b %d}";
  std::vector<std::string> labels;
  for (int i = 0; i < count; ++i) {
    const Time at = from + length * i / std::max(count - 1, 1);
    labels.push_back(fmt::format(fmt::runtime(form), fmt::gmtime(static_cast<std::time_t>(at.ns / 1'000'000'000))));
  }
  return labels;
}

}  // namespace sublet
