// SPDX-License-Identifier: Apache-2.0
// Tells whether the files behind a stack have changed. Reads the file system; any thread.
#pragma once

#include <string>
#include <vector>

namespace sublet::compose {

// Returns a text that changes with each of the files, and with the files in the directory of the Compose file.
std::string sign_files(const std::string& compose_file, const std::vector<std::string>& files);

}  // namespace sublet::compose
