// SPDX-License-Identifier: Apache-2.0
// The command line of subletd, and the paths that follow from it.
#pragma once

#include "base/error.h"
#include "daemon/start_files.h"

#include <map>
#include <string>

namespace sublet::daemon {

struct Options {
  std::string dir;     // --dir: a private daemon; "": the daemon of the system or of the user
  std::string sim;     // --sim: simulated cards to make, e.g. "2x24GiB"
  std::string config;  // --config: replaces the configuration file of the mode
  int ready_fd = -1;   // --ready-fd: gets "ready\n" and is closed; -1: none
  bool verbose = false;
  bool stacks_from_env = false;  // --stacks-from-env
  std::string failpoint;         // --failpoint: for tests, see base/failpoints.h
};

struct Places {
  std::string mode;  // "system", "user" or "dir"
  std::string config_file;
  std::string state_dir;  // directory of the store and the exit records
  std::string exit_dir;  // of exit records and answers, with one directory for each uid
  std::string log_dir;  // of supervised programs, with one directory for each uid
  std::string socket;
  std::string credit_socket;  // of the questions of the interposer (wire/credit.h)
  std::string env_file;                            // DIR/env, to be sourced by a shell; "" without --dir
  std::string helper;                              // path of sublet-gpu
  std::string keeper;                              // path of sublet-keep
  std::string stacks;                              // path of sublet-stacks
  std::string actor;                               // path of sublet-actor
  std::string actor_socket;                        // socket of the system's actor; "": the actor is our child
  std::string group_name;                          // NAME of its control groups
  std::string driver;                              // driver of the simulated cards; "": the vendor's
  std::string nvml;                                // NVML of the simulated cards; "": as configured
  std::map<std::string, std::string> program_env;  // environment that programs need to see the simulated cards
};

// Reads the command line. Returns an exit code if the program must end: help was printed, or the usage was wrong.
int read_options(int argc, char** argv, Options& options);

// Decides the mode, and makes the directories and, with --sim, the simulated cards. Notes all paths in `files`.
Result<Places> prepare(const Options& given, StartFiles& files);

// Reports that the daemon serves, through --ready-fd, the service manager's socket and DIR/env.
Status announce_ready(const Options& options, const Places& places);

}  // namespace sublet::daemon
