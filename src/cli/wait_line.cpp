// SPDX-License-Identifier: Apache-2.0
#include "cli/wait_line.h"

#include "base/size_bounds.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace sublet::cli {
namespace {

std::size_t terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

// Names the first holder only, to leave space on the line; `sublet why` names all.
std::string holders_text(const std::vector<client::Holder>& holders) {
  const client::Holder& first = holders.front();
  std::string out = fmt::format("{} {}", visible(first.what.empty() ? first.lease : first.what),
                                first.lease.empty() ? format_size(first.bytes) : format_size_down(first.bytes));
  if (holders.size() > 1) out += fmt::format(" and {} more", holders.size() - 1);
  return out;
}

std::string estimate_text(const client::Place& queue, bool timed) {
  if (!queue.eta) return "start unknown";
  if (!timed) return "start estimated";
  return "starts " + coming(*queue.eta);
}

}  // namespace

std::string smaller_size_text(Bytes short_by, Bytes free, Bytes unleased) {
  if (short_by <= Bytes{} || unleased < short_by || free < least_lease) return {};
  std::string size = format_size_down(free);
  std::erase(size, ' ');
  return fmt::format("--vram {} or less would fit now, and --min-vram accepts a smaller lease", size);
}

std::string wait_text(const client::Lease& lease, const Look& look, bool timed) {
  if (!lease.queue) return fmt::format("{} waits", visible(lease.id));
  const client::Place& queue = *lease.queue;
  if (queue.held_back)
    return fmt::format("{0} is held back, and keeps place {1}: sublet resume {0}", visible(lease.id), queue.place);
  std::string out = fmt::format("{} waits: place {}", visible(lease.id), queue.place);
  if (queue.short_by.count > 0) {
    out += fmt::format(" · {} short", format_size(queue.short_by));
    if (!queue.device.empty()) out += " on " + device_name(queue.device, look);
  }
  out += " · " + estimate_text(queue, timed);
  if (!queue.reserved_for.empty()) out += " · memory is reserved for " + visible(queue.reserved_for);
  else if (!queue.holders.empty()) out += " · held by " + holders_text(queue.holders);
  // A paused lease has its size already, and `resize` has no such flags.
  if (lease.state == "queued" && queue.reserved_for.empty()) {
    const std::string smaller = smaller_size_text(queue.short_by, queue.free, queue.unleased);
    if (!smaller.empty()) out += " · " + smaller;
  }
  if (queue.basis.empty()) return out;
  std::string basis = visible(queue.basis);
  // The numbers in it may be of time.
  if (!timed) std::erase_if(basis, [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
  return fmt::format("{} · {}", out, basis);
}

std::string fit(std::string_view text, std::size_t width) {
  if (display_width(text) <= width) return std::string(text);
  if (width == 0) return {};
  std::string out;
  while (!text.empty()) {
    std::size_t length = 1;
    while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) ++length;
    const std::string longer = out + std::string(text.substr(0, length));
    if (display_width(longer) > width - 1) break;
    out = longer;
    text.remove_prefix(length);
  }
  return out + "…";
}

bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

void write_stderr(std::string_view text) { (void)std::fwrite(text.data(), 1, text.size(), stderr); }

bool WaitLine::stderr_is_live() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

void WaitLine::show(const client::Lease& lease) { show(wait_text(lease, look_), wait_text(lease, look_, false)); }

void WaitLine::show(const std::string& text, std::string key) {
  if (quiet_) return;
  if (live_) {
    // One column is left free: a full line would wrap on some terminals, and then could not be rewritten.
    write_stderr(fmt::format("\r{}\x1b[K", fit(text, terminal_width() - 1)));
    shown_ = true;
    return;
  }
  if (key == last_) return;
  last_ = std::move(key);
  write_stderr(fmt::format("sublet: {}\n", text));
}

void WaitLine::clear() {
  if (std::exchange(shown_, false)) write_stderr("\r\x1b[K");
}

}  // namespace sublet::cli
