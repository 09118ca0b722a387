// SPDX-License-Identifier: Apache-2.0
// The things that a container gets for its lease: environment, files and device nodes. Both doors hand out the same.
#pragma once

#include "kube/settings.h"

#include <map>
#include <string>
#include <vector>

namespace sublet::kube {

struct MountedFile {
  std::string host, container;
  bool read_only = true;
  bool operator==(const MountedFile&) const = default;
};

struct Handout {
  std::map<std::string, std::string> environment;
  std::vector<MountedFile> mounts;
  std::vector<std::string> devices;  // device nodes, at the same path in the container
};

// Writes the file that the loader of a container reads for the interposer. Once, before any handout.
Status write_preload_file(const Settings& settings);

// `cards`: those that the container may use. `program_env`: that of the daemon, for simulated cards. `directory`: on
// the node, for the state of the lease (state_file.h). Looks for the device nodes of the cards.
Handout make_handout(const Settings& settings, const std::vector<Card>& cards,
                     const std::map<std::string, std::string>& program_env, const std::string& directory);

}  // namespace sublet::kube
