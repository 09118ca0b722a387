// SPDX-License-Identifier: Apache-2.0
// The files that Compose reads for a stack, beside its Compose file. Reads the file system; any thread.
#pragma once

#include "compose/trust.h"
#include "compose/variables.h"
#include "compose/worker.h"

#include <string>
#include <vector>

namespace sublet::compose {

// Returns the paths of all files of a stack, whether they exist or not: its Compose file, files that it extends or
// includes, files of variables and labels, secrets, configurations, Dockerfiles, profiles and programs. `env_file`: ""
// for none. `environment`: of the Compose program.
//
// All files that exist, and the local build contexts with their files, were checked as check_trusted() does. Not so
// what .dockerignore leaves out of a context, and what containers of the stack mount from it. Denied: one of them is
// not safe, or has a path that cannot be known.
Result<std::vector<std::string>> files_read(const Description& stack, const std::string& env_file,
                                            const Variables& environment, const Trust& trust);

}  // namespace sublet::compose
