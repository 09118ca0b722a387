// SPDX-License-Identifier: Apache-2.0
// The kernel's process connector: a netlink socket that reports each fork, exec and exit of this machine. Before
// Linux 6.6 it needs CAP_NET_ADMIN in the first user namespace. Belongs to one thread.
#pragma once

#include "base/error.h"
#include "proc/process_event.h"

#include <memory>
#include <vector>

namespace sublet::actor {

// A source of reports about processes. Tests have their own.
class EventSource {
 public:
  // complete: all reports were read. overrun: some were lost before these. failed: no more will come.
  enum class Reading { complete, overrun, failed };
  virtual ~EventSource() = default;
  // Appends the reports that have come, and never waits.
  virtual Reading read(std::vector<proc::ProcessEvent>& events) = 0;
};

// Starts to listen. Unavailable: the capability is missing, this is a container, or the kernel has no connector.
Result<std::unique_ptr<EventSource>> open_process_connector();

// Lets only forks, execs and exits of processes into the buffer of a socket, and answers of the kernel. Any user can
// cause other reports in a crowd, and overrun the buffer with them. A kernel that refuses the filter delivers all.
void attach_process_filter(int socket);

}  // namespace sublet::actor
