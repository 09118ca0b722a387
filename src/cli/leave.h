// SPDX-License-Identifier: Apache-2.0
// For verbs that wait for work of the daemon: a signal ends the wait, and a message says that the daemon continues.
#pragma once

#include "client/client.h"
#include "keep/events.h"
#include "keep/signals.h"

#include <functional>
#include <string>

namespace sublet::cli {

class Leave {
 public:
  // From now on, signals end the client's calls. One object per process; it must outlive the calls.
  explicit Leave(client::Client& client);
  ~Leave();
  Leave(const Leave&) = delete;
  Leave& operator=(const Leave&) = delete;

  bool asked() const { return signal_ != 0; }
  // Prints `what_goes_on` on stderr (unless quiet) and ends this process by the signal.
  [[noreturn]] void now(bool quiet, const std::string& what_goes_on);

 private:
  void take_signals();

  keep::Signals signals_;
  keep::Events events_;
  int signal_ = 0;
};

}  // namespace sublet::cli
