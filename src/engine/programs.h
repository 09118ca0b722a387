// SPDX-License-Identifier: Apache-2.0
// The programs behind leases: whose processes are whose, when a program has ended, and how it is ended. Belongs to the
// loop thread; everything is told on the loop, later.
#pragma once

#include "core/facts.h"
#include "proc/cgroup.h"
#include "proc/lineage.h"
#include "proc/process_table.h"

#include <functional>
#include <string>
#include <vector>

namespace sublet::engine {

// What became of a signal to a program.
struct SignalResult {
  std::string problem{};       // why it was not sent; "": it was
  bool by_program = false;     // the program's own doing, that it was not
  bool lasts = false;          // it may not be, and will not be allowed to soon: no right, or no proof of which it is
  bool may_have_been = false;  // the actor was lost with the order: it may have been sent all the same
};

class Programs {
 public:
  struct Events {
    // The whole tree of a followed owner is gone.
    std::function<void(core::ProgramEnded)> ended;
    // The program should end, and was not ended, or not all of it.
    std::function<void(LeaseId, const std::string& why)> unkillable;
  };
  virtual ~Programs() = default;

  virtual Status open(Events events) = 0;  // before anything else
  // Whoever ends programs for us has come, and knows nothing yet.
  virtual void introduce_all() = 0;

  // --- following ---
  // Follows the owner of a lease whose owner is a process; called again when that owner changes, or to look again. A
  // process that is gone already is reported through `ended` like any other, at each call anew: what was reported may
  // have been lost with the store. `adopted`: known from the store; signalled by us only if its pidfd proves that it is
  // the process that was attached.
  virtual void follow(const core::Lease& lease, bool adopted) = 0;
  // What is booked to the lease by name, whole; what is gone of it by now is left out.
  virtual void book(const core::Lease& lease) = 0;
  virtual void forget(LeaseId lease) = 0;  // its bytes are settled: whatever of it still runs is nobody's
  virtual void forget_others(const std::function<bool(LeaseId)>& keep) = 0;

  // --- looking ---
  // Judges anew who belongs to whom.
  virtual void scan() = 0;
  // The link of a process to its lease by the last scan or the one before; null: without a lease.
  virtual const proc::Member* member(ProcessRef process) const = 0;
  // The living processes of the program itself, by the last scan: what is merely booked to its lease is not of it.
  virtual std::vector<ProcessRef> tree(LeaseId lease) const = 0;

  // It is there, and no corpse. Asked of the system at once, whoever it is.
  virtual bool lives(ProcessRef process) const = 0;
  // Whether anything of the lease lives, by the last scan: of its program, or booked to it.
  virtual bool inhabited(LeaseId lease) const = 0;
  // Of any process: its short name, as everybody on the machine may see it; "" if it is gone.
  virtual std::string name(ProcessRef process) const = 0;

  // --- ending ---
  // SIGTERM or SIGKILL to the whole tree; SIGKILL again until nothing of it is left. False: there is no proof of the
  // program, or nobody who may. `asked_by`: whose word it is (actor::the_daemon: our own rules'); SIGKILL follows the
  // word of whoever asked for the end.
  virtual bool signal(LeaseId lease, int signal, std::uint32_t asked_by) = 0;
  virtual bool keeper_alive(LeaseId lease) const = 0;
  // Lets a keeper that is stopped (Ctrl-Z) go on, so that it can do its part.
  virtual void wake_keeper(LeaseId lease, std::uint32_t asked_by) = 0;
  // Sends a signal to one process of the program, if that has a handler for it.
  virtual void tell(LeaseId lease, ProcessRef process, int signal, std::function<void(SignalResult)> done) = 0;
  // Keeps what the process takes of memory from being written to a swap device, or lets it be again, for its whole
  // control group. `done`: "" or why not.
  virtual void keep_from_swap(LeaseId lease, ProcessRef process, bool keep, std::function<void(std::string)> done) = 0;
  // All that are parked are kept from it, as far as they can be: whatever else an earlier actor kept is let be.
  virtual void all_are_kept() = 0;
  // Whether an order to end the program would reach it: its keeper lives, or there is proof of its main process.
  virtual bool can_signal(LeaseId lease) const = 0;
  // "" or why can_signal() says no, as far as that is known.
  virtual std::string why_not_signalled(LeaseId lease) const = 0;

  // --- who asks ---
  // Looks at the process that has this pid now: alive, and one the caller may speak for (`uid`; unset: any). `parent`
  // other than 0: it must be a child of that process.
  struct Identified {
    ProcessRef process;
    std::uint64_t inode = 0;  // as core::Owner::inode
  };
  virtual Result<Identified> identify(std::int32_t pid, std::optional<std::uint32_t> uid,
                                      std::int32_t parent = 0) const = 0;
  // Denied unless the process that asks sees the same pids as we do: the numbers it names would be others' here.
  virtual Status check_pid_namespace(std::int32_t asking_pid) const = 0;
  virtual Result<proc::CgroupRef> check_cgroup(const std::string& directory) const = 0;
  virtual const proc::ProcRoot& root() const = 0;
};

}  // namespace sublet::engine
