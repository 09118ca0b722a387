// SPDX-License-Identifier: Apache-2.0
// The state of one program in LocalPrograms. Only for local_programs*.cpp.
#pragma once

#include "machine/local_programs.h"

#include <algorithm>
#include <array>

namespace sublet::machine {

struct LocalPrograms::Program {
  Program(boost::asio::io_context& io, LeaseId id)
      : lease(id), keeper(io), main_watch(io), recheck(io), keeper_check(io) {}
  bool keeper_lives() { return keeper.is_open() && !proc::is_dead(keeper.native_handle()); }

  // The smallest limit of processor time; 0: none.
  std::uint32_t cpu_percent() const {
    int least = 0;
    for (const int percent : cpu_percents)
      if (percent > 0) least = least > 0 ? std::min(least, percent) : percent;
    return static_cast<std::uint32_t>(least);
  }

  LeaseId lease;
  std::uint32_t uid = 0;
  core::Owner owner;
  bool adopted = false;       // known from the store
  bool proven = false;        // `owner.process` is certainly the process that was attached
  bool reported = false;      // its end was reported; the report may be lost with the store
  bool killing = false;       // SIGKILL is repeated until no process is left
  int checks = 0;             // number of checks since the main process ended
  std::int64_t since_ns = 0;  // CLOCK_MONOTONIC in ns, when it was first followed
  // CLOCK_MONOTONIC in ns, when the tree was first seen gone; 0: not yet.
  std::int64_t gone_since_ns = 0;
  boost::asio::posix::stream_descriptor keeper;      // pidfd; closed: none, or it had ended before
  boost::asio::posix::stream_descriptor main_watch;  // pidfd of the main process
  boost::asio::steady_timer recheck;
  boost::asio::steady_timer keeper_check;
  std::vector<ProcessRef> attached;
  std::vector<proc::CgroupRef> cgroups;  // booked to the lease

  // The control group that the lease belongs to. `group_inode` 0: there is none, or no process was seen there yet.
  std::string group_path;
  std::uint64_t group_inode = 0;
  std::optional<proc::CgroupRef> owner_group;  // unset: not found so far
  bool group_seen = false;                     // the last scan found a process there

  // The conversation with the actor about this program.
  bool introduced = false;                     // the actor follows the program
  bool answered = false;                       // the actor has answered the order to follow
  std::string refusal;                         // why the actor does not follow it
  bool ordered = false;                        // an order to signal is not answered yet
  int wanted = 0;                              // signal that should be sent; 0: none
  bool wake = false;                           // the keeper should be woken
  std::uint32_t asked_by = actor::the_daemon;  // uid that wants the program to end, or the daemon itself
  std::array<int, 2> cpu_percents{};           // ordered by cause, of one processor; 0: not limited
  std::optional<proc::LeaseGroup> group;       // the group of this program; all processes in it belong to the program
};

}  // namespace sublet::machine
