// SPDX-License-Identifier: Apache-2.0
// A description of a process for a record about it: who runs it, where, and below which processes. Reads only files
// that every user may read. All text is chosen by the process or its parents, so it proves nothing and is made
// printable.
#pragma once

#include "base/units.h"
#include "proc/process_table.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::proc {

// The source that links a process to its parent. proc: the process table shows the parent. connector: the kernel
// reported the fork. accounting: the record of the process, written at its end. leader: the process is in the session
// or process group of a process that has ended.
enum class ParentSource { proc, connector, accounting, leader };
std::string_view to_string(ParentSource source);  // "proc", "connector", …

inline constexpr std::uint32_t unknown_uid = 0xffffffff;

struct Ancestor {
  ProcessRef process;                        // start_ticks 0: not known
  std::uint32_t uid = 0;                     // effective; unknown_uid: not known
  std::string name{};                        // the kernel's short name; "": not known
  ParentSource source = ParentSource::proc;  // of the link to the process before it
  bool certain = true;                       // false: the link is likely, by facts that are no proof
  bool dead = false;                         // it has ended
  Time ended{};                              // dead only, wall clock; 0: not known
  bool operator==(const Ancestor&) const = default;
};

struct ProcessRecord {
  ProcessRef process;
  std::uint32_t uid = 0;           // real
  std::string name;                // the kernel's short name
  std::string command;             // arguments joined by spaces; "[name]" if there are none
  std::string cgroup;              // path in the unified hierarchy, else in the one of systemd; "": not known
  std::string unit;                // the unit of the service manager, by the control group; "": none
  bool system_unit = false;        // the unit is below /system.slice or /, and not in a user's slice
  std::string container;           // as container_of(); "": none
  std::vector<Ancestor> ancestry;  // the parent first, up to pid 1; what is hidden is left out
  std::string missing;             // a sentence about a parent without a record; "": none is known to be missing
};

// NotFound if the process is gone, or its pid is of another process now. `with_command`: the process may block the
// reader of its command line for any time.
Result<ProcessRecord> describe_process(const ProcRoot& root, ProcessRef process, bool with_command = true);

// Returns the innermost unit in the path of a control group: "ssh.service", "session-3.scope". "": none. Groups below a
// unit count only if the unit is a user's manager: any other unit gives the groups below it any name.
std::string unit_of_path(std::string_view path);
// Whether the path is one that only root can have made with the help of the system's manager: nothing of it is below a
// user's slice or a user's manager.
bool is_system_path(std::string_view path);

}  // namespace sublet::proc
