// SPDX-License-Identifier: Apache-2.0
// One start of a supervised program or of a session, by a keeper without a terminal: its lease, its run, its log.
// Single thread; one per process.
#pragma once

#include "base/fd.h"
#include "client/client.h"
#include "keep/document.h"
#include "keep/events.h"
#include "keep/keeper.h"
#include "keep/log_file.h"
#include "keep/signals.h"

#include <optional>
#include <string>

namespace sublet::keep {

class DetachedRun {
 public:
  DetachedRun(Document document, client::Endpoint endpoint);

  // Returns when the program has ended and its end was reported, or when it was not started.
  void run();
  // Writes the rest of the log of a program whose keeper was killed. Returns when nobody can write any more.
  void drain();

 private:
  struct Granted {
    client::Lease lease;
    std::string token;
  };

  bool is_interposed() const;
  bool enter_directory();
  std::optional<Granted> get_lease();
  std::optional<client::Lease> follow(client::Answer<client::Reply> answer);
  void keep(Granted granted);
  bool lock_log();
  bool open_pipe();
  void read_output();
  void drain_output();
  void mark(const std::string& text);
  void tell_warning();
  void report_failure(const std::string& why, std::optional<int> status = {});
  client::Request report(nlohmann::json body) const;

  Document document_;
  Signals signals_;
  Events events_;
  client::Client client_;
  client::Client reporter_;  // for reports while `client_` waits
  LogFile log_;
  Fd output_;                       // reading end of the program's output; non-blocking
  Fd to_child_;                     // the program's 1 and 2
  Fd lock_;                         // held by the one process that writes this log
  std::int64_t warn_after_ns_ = 0;  // CLOCK_MONOTONIC; no report before
  std::string told_warning_;
  Timer warning_timer_{events_};
};

}  // namespace sublet::keep
