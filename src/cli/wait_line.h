// SPDX-License-Identifier: Apache-2.0
// The progress line of a waiting lease: on a terminal one line rewritten in place, else one line per change.
#pragma once

#include "cli/output.h"
#include "client/lease.h"

#include <fmt/format.h>
#include <cstdio>
#include <string>

namespace sublet::cli {

// Names the flags with which a lease could start although unleased processes hold the memory. "": the lease waits for
// other leases, or nothing is free. `short_by`: bytes that the lease lacks; `free`, `unleased`: of that device.
std::string smaller_size_text(Bytes short_by, Bytes free, Bytes unleased);

// "lease-7 waits: place 2 · 1.9 GiB short on gpu0 · starts in about 8 min · held by … · …", the most important part
// first. `timed`: include the estimate's minutes, which change all the time.
std::string wait_text(const client::Lease& lease, const Look& look, bool timed = true);

// At most `width` columns of `text`, ending in "…" if cut. `text` has passed visible().
std::string fit(std::string_view text, std::size_t width);

// Writes to stderr, best effort. Unlike fmt::print it never throws: a closed pipe must not end a program's keeper.
void write_stderr(std::string_view text);

// Writes all of `text` to the descriptor, unbuffered. False: it cannot be written, and errno is set.
bool write_all(int fd, std::string_view text);

class WaitLine {
 public:
  // `live`: stderr is a terminal, whose width is read each time. `quiet`: shows nothing.
  WaitLine(Look look, bool live, bool quiet) : look_(std::move(look)), live_(live), quiet_(quiet) {}

  static bool stderr_is_live();  // a terminal that can move its cursor

  void show(const client::Lease& lease);
  // Shows any text; without a terminal, only if `key` differs from the previous line's key.
  void show(const std::string& text, std::string key);
  void clear();  // call before other output to the terminal
  bool live() const { return live_; }
  const Look& look() const { return look_; }

 private:
  Look look_;
  bool live_, quiet_;
  bool shown_ = false;
  std::string last_;
};

}  // namespace sublet::cli
