// SPDX-License-Identifier: Apache-2.0
// The container of a process, by the names of its control groups. Pure functions, any thread.
#pragma once

#include "proc/cgroup.h"

#include <string>
#include <string_view>

namespace sublet::proc {

// Returns the name of the outermost container in the path of a control group: the first 12 digits of the id for Docker,
// Podman, containerd, CRI-O and Kubernetes, the name for LXC and for machines of systemd (systemd-nspawn). "": none.
// Containers choose their names themselves, so the text is made printable.
std::string container_of_path(std::string_view path);

// The same for a process, from all its control groups.
std::string container_of(const ProcessCgroups& groups);

}  // namespace sublet::proc
