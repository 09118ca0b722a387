// SPDX-License-Identifier: Apache-2.0
// Plots as SVG, for reports and simulations. Pure functions; all texts are escaped here.
#pragma once

#include "base/units.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet {

// The text with &, <, >, " and ' as character references, and without control characters.
std::string escape_markup(std::string_view text);

struct PlotSeries {
  std::string name;
  std::string color;                            // of CSS
  std::vector<std::optional<double>> values{};  // at equal distances; unset: not known, drawn as a gap
  bool filled = false;                          // the area below the line is filled
};

struct Plot {
  std::string title;
  std::string unit{};                 // of the values, such as "GiB"
  double most = 0;                    // upper end of the axis; 0: the largest value
  std::vector<std::string> labels{};  // below the axis, at equal distances from its start to its end
  std::vector<PlotSeries> series{};
  bool bars = false;  // one bar for each value of the only series
};

// An svg element of the class "plot"; its data have the class "data". Width, height and `y`, its place in an outer
// element, are in units of the viewBox.
std::string svg_plot(const Plot& plot, int width, int height, int y = 0);

// The plots one below the other, as one SVG that needs no other file.
std::string svg_plots(const std::vector<Plot>& plots, int width, int height);

// The rules of CSS for plots, without the style element.
std::string_view plot_style();

// At most `count` times from `from` to `to` as texts in UTC: "14:00", "Nov 27 14:00" or "Nov 27", by the length.
std::vector<std::string> time_labels(Time from, Time to, int count);

}  // namespace sublet
