// SPDX-License-Identifier: Apache-2.0
// What somebody in the queue is shown: on a terminal one line that is written anew in place, else one line per change.
#pragma once

#include "cli/output.h"
#include "client/lease.h"

#include <fmt/format.h>
#include <cstdio>
#include <string>

namespace sublet::cli {

// "lease-7 waits: place 2 · 1.9 GiB short on gpu0 · starts in about 8 min · held by … · …": what a narrow terminal
// cuts off is what matters least. `timed`: with the estimate's minutes, which change all the time.
std::string wait_text(const client::Lease& lease, const Look& look, bool timed = true);

// At most `width` columns of it, ending in "…" if something is missing. `text` is visible() already.
std::string fit(std::string_view text, std::size_t width);

// Writes to stderr as well as it can. Unlike fmt::print it never throws: a terminal that is gone or a closed pipe must
// not end a program's keeper.
void write_stderr(std::string_view text);

// All of it to the descriptor, unbuffered. Who does not listen any more misses it: a terminal that went away says so by
// SIGHUP.
void write_all(int fd, std::string_view text);

class WaitLine {
 public:
  // `live`: on a terminal; the width is asked of stderr each time. `quiet`: shows nothing.
  WaitLine(Look look, bool live, bool quiet) : look_(std::move(look)), live_(live), quiet_(quiet) {}

  static bool stderr_is_live();  // a terminal that can move its cursor

  void show(const client::Lease& lease);
  // Any text; where there is no terminal, only if `key` is not the one of the line before.
  void show(const std::string& text, std::string key);
  void clear();  // before anything else is written to the terminal
  bool live() const { return live_; }
  const Look& look() const { return look_; }

 private:
  Look look_;
  bool live_, quiet_;
  bool shown_ = false;
  std::string last_;
};

}  // namespace sublet::cli
