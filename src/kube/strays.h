// SPDX-License-Identifier: Apache-2.0
// Pods that use memory of a card without a lease: the verdicts of the daemon become warnings of these pods. A process
// outside of all pods is a warning of the node.
#pragma once

#include "kube/daemon.h"
#include "kube/pods.h"

#include <cstdint>
#include <set>
#include <string>

namespace sublet::kube {

// The uid of the pod that a process with this path of a control group belongs to. "": no pod's. Pure.
std::string pod_of_path(std::string_view path);

class StrayTeller {
 public:
  StrayTeller(const Settings& settings, const Daemon& daemon, const Pods& pods)
      : settings_(settings), daemon_(daemon), pods_(pods) {}

  // Tells each open verdict once. Blocks.
  Status look();

 private:
  const Settings& settings_;
  const Daemon& daemon_;
  const Pods& pods_;
  std::set<std::int64_t> told_;  // ids of verdicts
};

}  // namespace sublet::kube
