// SPDX-License-Identifier: Apache-2.0
// The command line of subletd, and the places it works with, which follow from it.
#pragma once

#include "base/error.h"

#include <map>
#include <string>

namespace sublet::daemon {

struct Options {
  std::string dir;     // --dir: a private daemon; "" = the system's or the user's own
  std::string sim;     // --sim: simulated cards to make, e.g. "2x24GiB"
  std::string config;  // --config: another file than that of the mode
  int ready_fd = -1;   // --ready-fd: gets "ready\n" and is closed
  bool verbose = false;
  std::string failpoint;  // --failpoint: for tests, see base/failpoints.h
};

struct Places {
  std::string mode;  // "system", "user" or "dir"
  std::string config_file;
  std::string state_dir;  // store, exit records
  std::string exit_dir;
  std::string socket;
  std::string env_file;                            // DIR/env, to be sourced; "" without --dir
  std::string helper;                              // sublet-gpu
  std::string actor;                               // sublet-actor
  std::string actor_socket;                        // where the system's listens; "": it is our child
  std::string group_name;                          // of its control groups
  std::string driver;                              // of the simulated cards; "" = the vendor's
  std::string nvml;                                // of the simulated cards; "" = as configured
  std::map<std::string, std::string> program_env;  // what programs need to see the simulated cards
};

// Reads the command line. An exit code instead of options: help was asked for or the usage was wrong, all is printed.
int read_options(int argc, char** argv, Options& options);

// Decides the mode, makes the directories, and, with --sim, the simulated cards.
Result<Places> prepare(const Options& given);

// Tells whoever waits that the daemon serves: --ready-fd, the service manager's socket, DIR/env.
Status announce_ready(const Options& options, const Places& places);

}  // namespace sublet::daemon
