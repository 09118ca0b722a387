// SPDX-License-Identifier: Apache-2.0
// Messages of `run` and `hold`: lines for people on stderr, and on request one JSON object per change of state:
// {"event", "at", …}. Single thread.
#pragma once

#include "cli/verb.h"
#include "cli/wait_line.h"
#include "keep/keeper.h"

namespace sublet::cli {

class Talk {
 public:
  // `status_fd`: descriptor of the JSON lines; -1: none. With `json_on_stderr`, JSON lines replace people's lines on
  // stderr.
  Talk(const Common& common, int status_fd, bool json_on_stderr, Look look);

  // The listener refers to this object.
  keep::Listener listener();

  void say(const std::string& line);   // "sublet: …", unless -q
  void fail(const std::string& line);  // like say(), also with -q
  void note(const char* event, nlohmann::json fields);
  WaitLine& line() { return line_; }

 private:
  const Common& common_;
  int status_fd_;  // -1: none, or it cannot be written
  bool json_on_stderr_;
  WaitLine line_;
};

// A usage error if `fd` is not open; else sets close-on-exec.
Status check_status_fd(int fd);

}  // namespace sublet::cli
