// SPDX-License-Identifier: Apache-2.0
// Commands whose work is no descendant of the command: container engines, service managers, multiplexers. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::keep {

// `docker run` and the like, in the foreground: the lease can follow the container by its control group.
struct ContainerRun {
  std::size_t engine = 0;   // word of the command that names the engine
  std::size_t options = 0;  // word behind `run`: the options begin here
  std::size_t image = 0;    // the first word that is no option
  bool has_parent = false;  // it names a control group of its own choice (--cgroup-parent)
};

// The warning before the start of a command that the lease cannot follow.
struct Elsewhere {
  std::string why;   // "systemd-run has the service manager start the program"
  std::string verb;  // "sublet run --detach -- PROGRAM"
};

// Null: the command starts no container that a lease can follow.
std::optional<ContainerRun> container_run(const std::vector<std::string>& command);
std::optional<Elsewhere> started_elsewhere(const std::vector<std::string>& command);

// The warnings before the start of a command whose work the lease does not follow. `docker_host`: DOCKER_HOST of the
// command, "" without one.
std::vector<std::string> warnings_of_others(const std::vector<std::string>& command, std::string_view docker_host);

// The command with the devices of the lease, in place of those that it asks for, and with the control group `parent`
// for its container. The program in the container sees the devices in the order of `uuids`.
std::vector<std::string> with_devices(const std::vector<std::string>& command, const ContainerRun& run,
                                      const std::vector<std::string>& uuids, const std::string& parent);

}  // namespace sublet::keep
