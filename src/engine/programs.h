// SPDX-License-Identifier: Apache-2.0
// The programs behind leases: whose processes are whose, and when a program has ended. Holds a pidfd of each owner and
// keeper, so that an end is noticed at once and nobody is mistaken for somebody else. Belongs to the loop thread.
#pragma once

#include "base/fd.h"
#include "core/facts.h"
#include "engine/actor.h"
#include "proc/cgroup.h"
#include "proc/lease_group.h"
#include "proc/lineage.h"
#include "proc/pidfd.h"
#include "proc/process_table.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace sublet::engine {

class Programs {
 public:
  struct Events {
    // Called on the loop when the whole tree of a followed owner is gone.
    std::function<void(core::ProgramEnded)> ended;
    // The program should end, and the actor did not end it, or not all of it.
    std::function<void(LeaseId, const std::string& why)> unkillable;
  };
  // `reconnect`: how long a keeper that lives may take to report the exit status. Refers to `actor`.
  Programs(boost::asio::io_context& io, Actor& actor, Duration reconnect, Events events);
  ~Programs();

  Status open();  // /proc must be readable

  // Looks at the process that has this pid now: alive, and one the caller may speak for (`uid`; unset: any). `parent`
  // other than 0: it must be a child of that process.
  struct Identified {
    ProcessRef process;
    std::uint64_t inode = 0;  // as core::Owner::inode
  };
  Result<Identified> identify(std::int32_t pid, std::optional<std::uint32_t> uid, std::int32_t parent = 0) const;

  // Denied unless the process that asks sees the same pids as we do: the numbers it names would be others' here.
  Status check_pid_namespace(std::int32_t asking_pid) const;

  // Follows the owner of a lease whose owner is a process; called again when that owner changes, or to look again. A
  // process that is gone already is reported through `ended` like any other, at each call anew: what was reported may
  // have been lost with the store. `adopted`: known from the store; signalled by us only if its pidfd proves that it is
  // the process that was attached.
  void follow(const core::Lease& lease, bool adopted);
  void forget_others(const std::function<bool(LeaseId)>& keep);
  // What is booked to the lease by name, whole; what is gone of it by now is left out.
  void book(const core::Lease& lease);
  Result<proc::CgroupRef> check_cgroup(const std::string& directory) const;
  void forget(LeaseId lease);  // its bytes are settled: whatever of it still runs is nobody's

  // Reads the process table and judges anew who belongs to whom.
  void scan();
  const proc::Lineage& lineage() const { return lineage_; }
  // The link of a process to its lease by the last scan or the one before; null: under no lease.
  const proc::Member* member(ProcessRef process) const;
  const proc::ProcRoot& root() const { return *root_; }

  // Has the actor send SIGTERM (and SIGCONT: what is stopped could not act on it) or SIGKILL to the whole tree; SIGKILL
  // again until nothing of it is left. An actor that is not there is told when it is back. False: there is no proof
  // of the program, or the actor will not. `asked_by`: whose word it is (actor::the_daemon: our own rules'); SIGKILL
  // follows the word of whoever asked for the end.
  bool signal(LeaseId lease, int signal, std::uint32_t asked_by);
  bool keeper_alive(LeaseId lease) const;
  // Whether an order to end the program would reach it: its keeper lives, or there is proof of its main process.
  bool can_signal(LeaseId lease) const;
  // "" or why can_signal() says no, as far as that is known.
  std::string why_not_signalled(LeaseId lease) const;
  // Lets a keeper that is stopped (Ctrl-Z) go on, so that it can do its part.
  void wake_keeper(LeaseId lease, std::uint32_t asked_by);
  // The actor is there, and knows nothing yet.
  void introduce_all();

 private:
  struct Program;
  void open_main(const std::shared_ptr<Program>& program);
  void watch(const std::shared_ptr<Program>& program);
  void check(const std::shared_ptr<Program>& program);
  void check_again(const std::shared_ptr<Program>& program);
  bool tree_lives(LeaseId lease) const;
  std::vector<proc::LeaseRoots> roots() const;
  std::shared_ptr<Program> find(LeaseId lease) const;
  // What is said to the actor (programs_actor.cpp).
  void introduce(const std::shared_ptr<Program>& program);
  void introduced(const std::shared_ptr<Program>& program, const actor::Reply& reply);
  void send_wanted(const std::shared_ptr<Program>& program);
  void signalled(const std::shared_ptr<Program>& program, int signal, const actor::Reply& reply);
  void have_actor_look();

  boost::asio::io_context& io_;
  Actor& actor_;
  Duration reconnect_;
  Events events_;
  std::optional<proc::ProcRoot> root_;
  std::unordered_map<LeaseId, std::shared_ptr<Program>> programs_;
  proc::Lineage lineage_;
  proc::Lineage previous_;
  std::int64_t scanned_ns_ = 0;  // CLOCK_MONOTONIC, when /proc was last read
  bool actor_looks_ = false;     // it was asked to, and has not answered
};

}  // namespace sublet::engine
