// SPDX-License-Identifier: Apache-2.0
// The budget of ends: a program that is started again and again is not ended without bound. Pure functions on values.
#pragma once

#include "enforcer/verdict.h"

#include <deque>
#include <optional>
#include <string>

namespace sublet::enforcer {

inline constexpr Duration kill_window = std::chrono::hours(1);
// Ends within kill_window. An end counts if the process held at least half as much as the next one, so that small
// processes buy nothing for a large one.
inline constexpr int most_of_program = 3;  // of one unit or one program; of one user, in one container
inline constexpr int most_of_parent = 5;   // of the children of one process
inline constexpr int most_of_user = 10;

// An end of a process by SIGTERM, with the groups that it counts for.
struct Kill {
  Time at;
  ProcessRef process;
  Bytes used;                // that it held
  std::string unit;          // of the system; "": none
  std::string container;     // "": none
  std::string program;       // its executable, and the script of an interpreter; "": not known
  ProcessRef parent;         // pid 0: not known, or pid 1, which takes the children of others
  std::string parent_name{};  // the kernel's short name
  std::uint32_t uid = 0;
  std::string user{};  // account name
};

// The end of this process, if it came now.
Kill kill_of(const Verdict& verdict, Time at);
// Adds the newest end. A process that got SIGTERM before and lives counts once, and ends before kill_window do not.
void add_kill(std::deque<Kill>& kills, Kill kill);
// "/usr/bin/python3.11 train.py": the executable, and the script or module that an interpreter runs.
std::string program_of(const std::string& exe, const std::string& command);

// A group with too many ends.
struct Exhausted {
  int kills = 0;
  std::string group;  // "of /opt/app of user ana", "started by bash (pid 400)"
  std::string sentence() const;
};
// The first group of `next` whose budget the earlier ends have used up. None: it may be ended.
std::optional<Exhausted> find_exhausted(const std::deque<Kill>& kills, const Kill& next);

}  // namespace sublet::enforcer
