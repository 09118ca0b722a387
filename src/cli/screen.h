// SPDX-License-Identifier: Apache-2.0
// A text that is refreshed: in place on a terminal, else one block after the other. Single thread.
#pragma once

#include "cli/output.h"

#include <string>
#include <string_view>

namespace sublet::cli {

struct Window {
  std::size_t rows = 24, columns = 80;
};
Window window_of(int fd);  // 24 by 80 if `fd` is not a terminal or its size is unknown

// `text` cut to `width` columns; colours (SGR sequences) are kept and ended.
std::string cut(std::string_view text, std::size_t width);

// `text` cut to the window: each line is cut, and the last line counts missing lines.
std::string framed(std::string_view text, const Window& window);

// The terminal's alternate screen, redrawn without flicker: each line is overwritten, then its end is cleared. leave()
// restores the terminal; the destructor calls it.
class Screen {
 public:
  explicit Screen(int fd) : fd_(fd) {}
  ~Screen() { leave(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  static bool possible(int fd);  // a terminal that can move its cursor

  void draw(std::string_view text);  // enters the alternate screen if needed
  void leave();

 private:
  int fd_;
  bool entered_ = false;
};

}  // namespace sublet::cli
