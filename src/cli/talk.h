// SPDX-License-Identifier: Apache-2.0
// What `run` and `hold` say while they work: lines for people on stderr, and, where asked for, one JSON object per line
// for every change of state: {"event", "at", …}. Single thread.
#pragma once

#include "cli/verb.h"
#include "cli/wait_line.h"
#include "keep/keeper.h"

namespace sublet::cli {

class Talk {
 public:
  // `status_fd`: where the JSON lines go; -1: nowhere. With `json_on_stderr` they go to stderr too and people's lines
  // are left out.
  Talk(const Common& common, int status_fd, bool json_on_stderr, Look look);

  // Refers to this object.
  keep::Listener listener();

  void say(const std::string& line);  // "sublet: …", unless -q
  void note(const char* event, nlohmann::json fields);
  WaitLine& line() { return line_; }

 private:
  const Common& common_;
  int status_fd_;
  bool json_on_stderr_;
  WaitLine line_;
};

// A usage error if `fd` is not open; else keeps programs from inheriting it.
Status check_status_fd(int fd);

}  // namespace sublet::cli
