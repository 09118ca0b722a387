// SPDX-License-Identifier: Apache-2.0
// The flags of `run`, in the foreground and with --detach.
#pragma once

#include "cli/lease_flags.h"
#include "cli/talk.h"
#include "shim/settings.h"

#include <optional>
#include <string>
#include <vector>

namespace sublet::cli {

// The shim for which `run` starts the program. The command is the program's argv, with argv[0] as its caller wrote it.
struct ShimCall {
  std::string name;  // of the shim
  std::string real;  // path of the real program
  shim::IfAbsent if_absent = shim::IfAbsent::run;
};

struct RunFlags {
  LeaseFlags lease;
  std::optional<int> status_fd;
  bool indices = false;       // CUDA_VISIBLE_DEVICES of the program has indices
  bool keep_running = false;  // the program runs on if this process is killed
  bool detach = false;
  bool replace = false;          // --replace: a program of this tag is ended, and starts again with these flags
  std::string command;           // --command; implies --detach
  std::vector<std::string> env;  // --env: NAME or NAME=VALUE, in the order given
  std::string env_file;
  std::string restart;                   // --restart; "": the daemon's default
  std::string notify;                    // --notify: notify_send, or a line for sh -c; "": no notice
  std::optional<Duration> notify_after;  // --notify-after
  std::optional<ShimCall> shim;          // set by run_shim() only

  bool is_supervised() const { return detach || !command.empty(); }
};

void add_run_flags(Command command, RunFlags& flags);

// Checks combinations of flags. Returns the exit code after the usage error was printed; nothing if the flags fit.
std::optional<int> check_flags(const Common& common, const RunFlags& flags);

// Restricts the lease to the device that CUDA_VISIBLE_DEVICES of the caller names, unless --gpu is given or a lease set
// the variable. `status`: a reply of /v1/status. `talk` is told of it; null: nobody is.
Status take_wish(LeaseFlags& flags, client::Client& client, const nlohmann::json& status, Talk* talk);

// The command line as text for the daemon, cut at 2000 bytes.
std::string shown_command(const std::vector<std::string>& command);

// The words of a shell's command line that name the program; {"sh"} where the line is more than one plain command.
std::vector<std::string> words_of(const std::string& command_line);

// The fields of POST /v1/programs, without those of the lease's size and rank, for `run --detach --command LINE`. For a
// moment the process has another umask.
Result<nlohmann::json> fields_of_line(const std::string& line);

// Hands the program to the daemon, which supervises it. Returns the exit code.
int run_detached(const Common& common, RunFlags flags);

}  // namespace sublet::cli
