// SPDX-License-Identifier: Apache-2.0
// The pods that the doors have asked leases for, as files: they outlive the agent.
#pragma once

#include "kube/daemon.h"
#include "kube/pod.h"

#include <string>
#include <vector>

namespace sublet::kube {

struct PodRecord {
  PodName name;
  std::string uid, group_uid;
  std::vector<std::string> directories;  // on the node, with the state of the lease for containers
};

// Keeps the record, with the directories that were kept before. The directory leaves the records of other pods.
Status keep_record(const std::string& state_dir, const Pod& pod, const std::string& directory);
std::vector<PodRecord> all_records(const std::string& state_dir);
// Writes the state of the lease into the directories that the record has now. Without a record, nothing is written.
Status write_states(const std::string& state_dir, const std::string& group_uid, const Held& lease);
// Removes the record and the directories that it has now.
void drop_record(const std::string& state_dir, const PodRecord& record);

}  // namespace sublet::kube
