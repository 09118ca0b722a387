// SPDX-License-Identifier: Apache-2.0
// For verbs that only wait for what goes on by itself: a signal ends the waiting, and whoever leaves is told that the
// rest goes on.
#pragma once

#include "client/client.h"
#include "keep/events.h"
#include "keep/signals.h"

#include <functional>
#include <string>

namespace sublet::cli {

class Leave {
 public:
  // From now on signals end the client's calls. One object per process; outlives the calls.
  explicit Leave(client::Client& client);
  ~Leave();
  Leave(const Leave&) = delete;
  Leave& operator=(const Leave&) = delete;

  bool asked() const { return signal_ != 0; }
  // Says so on stderr (unless quiet) and ends this process by the signal.
  [[noreturn]] void now(bool quiet, const std::string& what_goes_on);

 private:
  void take_signals();

  keep::Signals signals_;
  keep::Events events_;
  int signal_ = 0;
};

}  // namespace sublet::cli
