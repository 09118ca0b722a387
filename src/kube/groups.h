// SPDX-License-Identifier: Apache-2.0
// Finds the control group of a pod, for both drivers of the kubelet and both versions of control groups.
#pragma once

#include "base/error.h"
#include "proc/cgroup.h"

#include <string>
#include <string_view>
#include <vector>

namespace sublet::kube {

// The paths in which the group of the pod may be, relative to the mount: first those of the driver cgroupfs, then those
// of systemd. `root`: the kubelet's --cgroup-root.
std::vector<std::string> group_candidates(const std::string& root, std::string_view uid);

// Returns the directory of the pod's group. A hierarchy with controllers of version 1 comes first: the kubelet makes
// its groups there if they are used. NotFound: the kubelet has not made the group.
Result<std::string> find_group(const proc::Hierarchies& hierarchies, const std::string& root, std::string_view uid);

// The uid of the pod whose group this is. "": no pod's.
std::string uid_of_group(std::string_view path);

}  // namespace sublet::kube
