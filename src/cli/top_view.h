// SPDX-License-Identifier: Apache-2.0
// The picture of `top`: what stands in which line, from the API's replies. Pure: tested on literal JSON; top.cpp puts
// the lines on the terminal.
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
  TopSort sort = TopSort::order;  // order: as the daemon lists them, those that wait last and in their order
  std::size_t selected = 0;       // of the rows that scroll
  bool help = false;
};

struct TopData {
  nlohmann::json status;  // the reply of /v1/status; null before the first
  nlohmann::json leases;  // of /v1/leases
  std::string problem;    // why there is nothing newer; "" if all is well
};

struct TopLine {
  std::string text;
  Paint paint = Paint::none;
  bool selected = false;
};

// Exactly `window.rows` lines or fewer, each at most `window.columns` wide. What does not fit is scrolled so that the
// selected row is in sight; `state.selected` is brought back into range.
std::vector<TopLine> top_lines(const TopData& data, TopState& state, const Window& window, const Look& look);

}  // namespace sublet::cli
