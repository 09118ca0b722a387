// SPDX-License-Identifier: Apache-2.0
#include "cli/leave.h"

#include "cli/output.h"
#include "cli/wait_line.h"

#include <fmt/format.h>

namespace sublet::cli {

Leave::Leave(client::Client& client) {
  client.set_interrupt(events_.interrupt());
  events_.watch(signals_.fd(), [this] { take_signals(); });
}

Leave::~Leave() { events_.forget(signals_.fd()); }

void Leave::take_signals() {
  signals_.take({.leave = [this](const keep::Signal& signal) {
    signal_ = signal.number;
    events_.cancel();
  }});
}

void Leave::now(bool quiet, const std::string& what_goes_on) {
  std::fflush(stdout);
  if (!quiet) write_stderr(fmt::format("sublet: {}\n", visible(what_goes_on)));
  signals_.die_of(signal_);
}

}  // namespace sublet::cli
