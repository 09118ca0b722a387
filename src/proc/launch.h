// SPDX-License-Identifier: Apache-2.0
// Starts a program by posix_spawn.
#pragma once

#include "base/error.h"

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace sublet::proc {

struct Launch {
  // A descriptor of the program. The program gets no others of ours but 0, 1 and 2.
  struct Descriptor {
    int number;
    int from;  // ours, which stays open here; `nothing`: /dev/null
  };
  static constexpr int nothing = -1;

  std::string program{};                                  // path, or a name that PATH leads to
  std::vector<std::string> arguments{};                   // without the program's name
  std::optional<std::vector<std::string>> environment{};  // "NAME=VALUE", the whole of it; unset: ours
  std::vector<Descriptor> descriptors{};
  std::string directory{};   // "": ours
  bool new_session = false;  // with a process group of its own, and without a terminal

  // Returns the pid, for which the caller must wait. All signals are unblocked and have their default action.
  Result<pid_t> start() const;
};

}  // namespace sublet::proc
