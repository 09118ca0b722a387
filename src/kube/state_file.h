// SPDX-License-Identifier: Apache-2.0
// The state of a lease as a file that its containers see. They get a file and no socket of the daemon: root in a
// container would be an admin there.
#pragma once

#include "kube/daemon.h"

#include <string>
#include <vector>

namespace sublet::kube {

inline constexpr const char* state_directory_in_container = "/run/sublet/lease";
inline constexpr const char* state_file_name = "state";

// The directory on the node for the container that has these units. The order of the ids does not count.
std::string directory_of_units(const std::string& state_dir, std::vector<std::string> ids);
// The same for a claim of the DRA door.
std::string directory_of_claim(const std::string& state_dir, const std::string& uid);

// Makes the directory if it does not exist.
Status make_directory(const std::string& path);

// Replaces a file by a rename, so that a reader sees the old or the new content.
Status write_file(const std::string& path, const std::string& text);

// The JSON in a regular file. Null: there is none.
nlohmann::json read_json_file(const std::string& path);

// Writes "STATE\nLEASE\nSENTENCE\n" into a directory that is there.
Status write_state(const std::string& directory, const Held& lease);

}  // namespace sublet::kube
