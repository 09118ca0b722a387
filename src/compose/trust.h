// SPDX-License-Identifier: Apache-2.0
// Tells whether only trusted users can change a file. Reads the file system; any thread.
#pragma once

#include "base/error.h"

#include <sys/types.h>

#include <string>

namespace sublet::compose {

struct Trust {
  uid_t user = 0;      // trusted beside root
  gid_t group = 0;     // its members may write, as those of group 0
  static Trust own();  // our own user and group
};

// Checks a file or directory and all directories above it, through symbolic links: each belongs to root or the trusted
// user, and nobody else may write to it. A directory above may have the sticky bit instead. Denied: names the first
// path that is not safe, or one that others may make. NotFound: the path does not exist. /dev/null is safe. All files
// in a directory that only its owner may enter are safe, although we may not look there.
Status check_trusted(const std::string& path, const Trust& trust);
// The same for the entry alone, without the directories above it. A symbolic link is not followed.
Status check_entry_trusted(const std::string& path, const Trust& trust);

}  // namespace sublet::compose
