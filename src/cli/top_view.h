// SPDX-License-Identifier: Apache-2.0
// The lines of `top`, made from the API's replies. Pure, tested on literal JSON; top.cpp draws them.
#pragma once

#include "cli/output.h"
#include "cli/screen.h"

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace sublet::cli {

enum class TopSort { order, vram, used, age, user };
inline constexpr TopSort top_sorts[] = {TopSort::order, TopSort::vram, TopSort::used, TopSort::age, TopSort::user};
std::string_view to_string(TopSort sort);

struct TopState {
  TopSort sort = TopSort::order;  // order: the daemon's order, waiting leases last
  std::size_t selected = 0;       // index among the scrolling rows
  bool help = false;
};

struct TopData {
  nlohmann::json status;  // the reply of /v1/status; null before the first one
  nlohmann::json leases;  // the reply of /v1/leases
  nlohmann::json past;    // the reply of /v1/report?whole=true for the last hour; null: unknown
  std::string problem;    // why the data is not newer; "" if it is
  nlohmann::json tenants = nullptr;  // the reply of /v1/tenants; null: unknown
};

struct TopLine {
  std::string text;
  Paint paint = Paint::none;
  bool selected = false;
};

// At most `window.rows` lines, each at most `window.columns` wide. Rows scroll to show the selected row;
// `state.selected` is clamped to the rows.
std::vector<TopLine> top_lines(const TopData& data, TopState& state, const Window& window, const Look& look);

}  // namespace sublet::cli
