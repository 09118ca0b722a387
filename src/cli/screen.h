// SPDX-License-Identifier: Apache-2.0
// A text that is shown again and again: on a terminal in place, elsewhere block after block. Single thread.
#pragma once

#include "cli/output.h"

#include <string>
#include <string_view>

namespace sublet::cli {

struct Window {
  std::size_t rows = 24, columns = 80;
};
Window window_of(int fd);  // 24 by 80 if it is no terminal or does not tell

// `text` cut to `width` columns, its colours (SGR sequences) kept and ended.
std::string cut(std::string_view text, std::size_t width);

// `text` as it fits into the window: each line cut, and where lines are missing the last one says how many.
std::string framed(std::string_view text, const Window& window);

// The terminal's other screen, redrawn without a flicker: every line is written over the one before and only then is
// its end cleared. What was on the terminal is back after leave(), which the destructor calls.
class Screen {
 public:
  explicit Screen(int fd) : fd_(fd) {}
  ~Screen() { leave(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  static bool possible(int fd);  // a terminal that can move its cursor

  void draw(std::string_view text);  // enters the other screen if it was left
  void leave();

 private:
  int fd_;
  bool entered_ = false;
};

}  // namespace sublet::cli
