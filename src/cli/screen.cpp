// SPDX-License-Identifier: Apache-2.0
#include "cli/screen.h"

#include "cli/wait_line.h"

#include <fmt/format.h>

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace sublet::cli {
namespace {

// Bytes of the SGR sequence that `text` begins with; 0 if it begins with none.
std::size_t color_length(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const auto end = text.find('m');
  return end == std::string_view::npos ? 0 : end + 1;
}

std::size_t character_length(std::string_view text) {
  std::size_t length = 1;
  while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) ++length;
  return length;
}

std::size_t width_without_colors(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    const std::size_t color = color_length(text);
    const std::size_t length = color > 0 ? color : character_length(text);
    if (color == 0) plain += text.substr(0, length);
    text.remove_prefix(length);
  }
  return display_width(plain);
}

}  // namespace

Window window_of(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) return {};
  return {size.ws_row, size.ws_col};
}

std::string cut(std::string_view text, std::size_t width) {
  if (width_without_colors(text) <= width) return std::string(text);
  if (width == 0) return {};
  std::string out;
  std::size_t used = 0;
  bool colored = false;
  while (!text.empty()) {
    const std::size_t color = color_length(text);
    const std::string_view part = text.substr(0, color > 0 ? color : character_length(text));
    const std::size_t columns = color > 0 ? 0 : display_width(part);
    if (used + columns > width - 1) break;  // one is for the mark
    if (color > 0) colored = part != "\x1b[0m";
    out += part;
    used += columns;
    text.remove_prefix(part.size());
  }
  return out + "…" + (colored ? "\x1b[0m" : "");
}

std::string framed(std::string_view text, const Window& window) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  const bool all = lines.size() <= window.rows;
  const std::size_t shown = all ? lines.size() : window.rows - 1;
  std::string out;
  for (std::size_t i = 0; i < shown; ++i) out += cut(lines[i], window.columns) + "\n";
  if (!all) out += cut(fmt::format("… {} more lines", lines.size() - shown), window.columns) + "\n";
  return out;
}

bool Screen::possible(int fd) {
  const char* term = std::getenv("TERM");
  return ::isatty(fd) == 1 && term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
}

void Screen::draw(std::string_view text) {
  // One write, and the bracket of mode 2026: a terminal that knows it shows the new picture at once.
  std::string out = "\x1b[?2026h";
  if (!std::exchange(entered_, true)) out += "\x1b[?1049h\x1b[?25l";
  out += "\x1b[H";
  const std::string picture = framed(text, window_of(fd_));
  for (std::size_t at = 0; at < picture.size();) {
    const std::size_t end = picture.find('\n', at);
    if (at > 0) out += "\r\n";
    out += picture.substr(at, end - at) + "\x1b[K";
    at = end + 1;
  }
  (void)write_all(fd_, out + "\x1b[J\x1b[?2026l");
}

void Screen::leave() {
  if (std::exchange(entered_, false)) (void)write_all(fd_, "\x1b[?25h\x1b[?1049l");
}

}  // namespace sublet::cli
