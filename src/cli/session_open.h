// SPDX-License-Identifier: Apache-2.0
// `session open`.
#pragma once

#include "cli/lease_flags.h"
#include "cli/output.h"

#include <optional>
#include <string>
#include <vector>

namespace sublet::cli {

struct SessionFlags {
  std::string id;                // or tag
  std::vector<std::string> ids;  // of close and touch
  // open
  LeaseFlags lease;
  bool exclusive = false;
  std::string checkpoint_command;
  std::optional<Duration> checkpoint_every, checkpoint_timeout;
  std::vector<std::string> env;
  std::string env_file;
  bool env_all = false;
  bool pty = false;
  bool no_wait = false;  // also of resume
  // ls, close
  bool all = false;
  bool no_park = false;
  bool force = false;
};

void declare_session_open(Command verb, SessionFlags& flags);
// Returns the exit code.
int open_session(const Common& common, SessionFlags flags);

}  // namespace sublet::cli
