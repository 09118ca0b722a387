// SPDX-License-Identifier: Apache-2.0
// What Programs knows of one program. For local_programs.cpp and local_programs_actor.cpp alone.
#pragma once

#include "engine/local_programs.h"

namespace sublet::engine {

struct LocalPrograms::Program {
  Program(boost::asio::io_context& io, LeaseId id) : lease(id), main_watch(io), recheck(io) {}
  LeaseId lease;
  std::uint32_t uid = 0;
  core::Owner owner;
  bool adopted = false;                              // known from the store
  bool proven = false;                               // `owner.process` is certainly the process that was attached
  bool reported = false;                             // its end was told; what was told may be lost with the store
  bool killing = false;                              // SIGKILL until nothing of it is left
  int checks = 0;                                    // since its main process was seen gone
  std::int64_t since_ns = 0;                         // when it was first followed
  std::int64_t gone_since_ns = 0;                    // the tree was first seen gone; 0: not yet
  Fd keeper;                                         // pidfd; empty: none or gone
  boost::asio::posix::stream_descriptor main_watch;  // pidfd of the main process
  boost::asio::steady_timer recheck;
  std::vector<ProcessRef> attached;
  std::vector<proc::CgroupRef> cgroups;

  // What the actor was told, and said.
  bool introduced = false;                     // it follows the program
  bool answered = false;                       // it said whether it does
  std::string refusal;                         // why it does not
  bool ordered = false;                        // a signal is on its way
  int wanted = 0;                              // signal that should be sent; 0: none
  bool wake = false;                           // the keeper should be woken
  std::uint32_t asked_by = actor::the_daemon;  // who wants the program to end
  std::optional<proc::LeaseGroup> group;       // of the program alone: whoever is in it is of it
};

}  // namespace sublet::engine
