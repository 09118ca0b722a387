// SPDX-License-Identifier: Apache-2.0
// Tells whether the files behind a stack have changed. Reads the file system; any thread.
#pragma once

#include <string>

namespace sublet::compose {

// Returns a text that changes with the Compose file, the other files of its directory (`.env`, included ones), and
// `env_file`. Files below and outside of the directory are not looked at.
std::string sign_files(const std::string& compose_file, const std::string& env_file);

}  // namespace sublet::compose
