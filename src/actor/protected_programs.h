// SPDX-License-Identifier: Apache-2.0
// Programs that are never ended, although a lease may not cover them: without them nobody could log in, or they serve
// all users. A program counts by its executable file, and only if nobody but root can replace it. Its name proves
// nothing. A user can still run such a file with a foreign library inside; that process is spared.
#pragma once

#include "proc/process_files.h"

#include <string>
#include <string_view>

namespace sublet::actor {

// Whether a file with this name may be a program that serves logins, a screen, or the GPU's driver.
bool is_protected_name(std::string_view name);

// `hosts`: the process is in no container and no user namespace, so that the path means a file of this host.
// `directory`: of Sublet's programs, which are protected for any owner of the files.
bool is_protected(const proc::Executable& executable, bool hosts, const std::string& directory);

// Returns the directory of this program's own executable.
std::string own_directory();

}  // namespace sublet::actor
