// SPDX-License-Identifier: Apache-2.0
// The directory for files that the programs of a user leave for the daemon: exit records of keepers, and answers of
// cooperative programs. No other user may write to it, since programs open files of known names there.
#pragma once

#include "base/error.h"

#include <cstdint>
#include <string>

namespace sublet::machine {

std::string user_directory(const std::string& dir, std::uint32_t uid);  // DIR/UID

// Makes that directory, in a `dir` to which only the daemon may write. Only this user and the daemon can reach its
// files. Where the daemon cannot give a directory away, it uses the access lists of the file system.
Status make_user_directory(const std::string& dir, std::uint32_t uid);

}  // namespace sublet::machine
