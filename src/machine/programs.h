// SPDX-License-Identifier: Apache-2.0
// The programs of leases: which process belongs to which lease, when a program has ended, and how to end it. Belongs to
// the loop thread; all results are reported later, on the loop.
#pragma once

#include "lease/facts.h"
#include "proc/cgroup.h"
#include "proc/lineage.h"
#include "proc/process_record.h"
#include "proc/process_table.h"

#include <functional>
#include <span>
#include <string>
#include <vector>

namespace sublet::machine {

// The result of a signal to a program.
struct SignalResult {
  std::string problem{};       // why the signal was not sent; "": it was sent
  bool by_program = false;     // the program itself caused that the signal was not sent
  bool lasts = false;          // the signal will not be allowed soon: no right, or no proof of the process
  bool may_have_been = false;  // the actor was lost with the order, so the signal may have been sent
};

// A program that a signal (SIGSTOP, SIGTSTP) or a debugger stopped.
struct StoppedProgram {
  LeaseId lease;
  bool by_debugger = false;
};

// The uses for which the processor time of a program is limited. The smallest limit counts.
enum class CpuCause { memory, share };

// The result of a limit of processor time.
struct CpuLimited {
  std::string why_not{};  // "": it is done
  bool passes = false;    // the failure passes: the actor is away, or does not know the program yet
};

class Programs {
 public:
  struct Events {
    // The whole tree of a followed owner has ended.
    std::function<void(core::ProgramEnded)> ended;
    // The program should end, and it or a part of it did not.
    std::function<void(LeaseId, const std::string& why)> unkillable;
    // The keeper has ended, was seen to live before, and its program lives on.
    std::function<void(LeaseId)> keeper_lost = {};
  };
  virtual ~Programs() = default;

  virtual Status open(Events events) = 0;  // call it before anything else
  // A new actor has come, and knows no program yet.
  virtual void introduce_all() = 0;

  // --- following ---
  // Follows the owner process of a lease. Call it again when the owner changes, or to check again. A process that has
  // ended is reported through `ended` at each call, because an earlier report may be lost with the store. `adopted`:
  // known from the store; it is signalled only if its pidfd proves that it is the attached process.
  virtual void follow(const core::Lease& lease, bool adopted) = 0;
  // Sets the processes and groups that are booked to the lease. Processes that have ended are left out.
  virtual void book(const core::Lease& lease) = 0;
  virtual void forget(LeaseId lease) = 0;  // its bytes have settled; processes that still run belong to no lease
  virtual void forget_others(const std::function<bool(LeaseId)>& keep) = 0;

  // --- reading ---
  // Scans the process table again.
  virtual void scan() = 0;
  // Returns the link of a process to its lease by the last two scans; null: the process has no lease.
  virtual const proc::Member* member(ProcessRef process) const = 0;
  // Returns the living processes of the lease that a pause parks, by the last scan: its program, or
  // without one its booked processes.
  virtual std::vector<ProcessRef> tree(LeaseId lease) const = 0;

  // The lease to which one of these processes belongs, or belonged while it lived. None: no lease. Such a link may
  // spare a process below them, and condemns none.
  virtual LeaseId lease_above(std::span<const proc::Ancestor>) const { return {}; }

  // The lease around the process with this pid: its own, or that of the nearest process above it; none: no lease. Asks
  // the system. `owned`: also a lease that this process has asked for itself.
  virtual LeaseId lease_around(std::int32_t, bool /*owned*/) const { return {}; }

  // The lease whose control group, its own or a booked one, has the process with this pid now, whoever's process it is;
  // none: no lease. Asks the system.
  virtual LeaseId lease_of_group(std::int32_t) const { return {}; }

  // Whether the process lives. Asks the system; the process may have no lease.
  virtual bool lives(ProcessRef process) const = 0;
  // Whether any process of the lease lives, of its program or booked, by the last scan.
  virtual bool inhabited(LeaseId lease) const = 0;
  // Returns the leases whose main process is stopped, or all of whose processes are, by the last scan.
  virtual std::vector<StoppedProgram> stopped_programs() const { return {}; }
  // Returns the short name of any process, which all users may see; "" if it has ended.
  virtual std::string name(ProcessRef process) const = 0;

  // --- ending ---
  // Sends SIGTERM or SIGKILL to the whole tree. SIGKILL is repeated until no process is left. False: there is no proof
  // of the program, or no actor that may signal it. `asked_by`: the uid that wants the signal, or actor::the_daemon. A
  // later SIGKILL uses the uid of the one that wanted the end.
  virtual bool signal(LeaseId lease, int signal, std::uint32_t asked_by) = 0;
  virtual bool keeper_alive(LeaseId lease) const = 0;
  // Continues a stopped keeper (Ctrl-Z), so that it can do its part.
  virtual void wake_keeper(LeaseId lease, std::uint32_t asked_by) = 0;
  // Sends a signal to one process of the program, if the process has a handler for it.
  virtual void tell(LeaseId lease, ProcessRef process, int signal, std::function<void(SignalResult)> done) = 0;
  // Keeps the control group of the process from swap, or ends this. `done`: "" or why not.
  virtual void keep_from_swap(LeaseId lease, ProcessRef process, bool keep, std::function<void(std::string)> done) = 0;
  // All parked programs were named by keep_from_swap(): groups that an earlier actor kept for others are released.
  virtual void all_are_kept() = 0;
  // Limits the processor time of the program to `percent` of one processor; 0 lifts the limit for this cause.
  virtual void limit_cpu(LeaseId lease, CpuCause cause, int percent, std::function<void(const CpuLimited&)> done) = 0;
  // Whether a signal would reach the program: its keeper lives, or there is proof of its main process.
  virtual bool can_signal(LeaseId lease) const = 0;
  // Returns "" or why can_signal() is false, if that is known.
  virtual std::string why_not_signalled(LeaseId lease) const = 0;

  // --- calling processes ---
  // Looks at the process that has this pid now. It must live, and belong to `uid` (unset: any). A `parent` other than 0
  // must be its parent.
  struct Identified {
    ProcessRef process;
    std::uint64_t inode = 0;  // as core::Owner::inode
  };
  virtual Result<Identified> identify(std::int32_t pid, std::optional<std::uint32_t> uid,
                                      std::int32_t parent = 0) const = 0;
  // Denied if the calling process is in another pid namespace, because its pids mean other processes here.
  virtual Status check_pid_namespace(std::int32_t asking_pid) const = 0;
  virtual Result<proc::CgroupRef> check_cgroup(const std::string& directory) const = 0;
  // As proc::group_directory() and proc::look_at_group().
  virtual Result<std::string> group_directory(const std::string& path) const { return path; }
  virtual Result<proc::GroupState> look_at_group(const std::string&) const { return unavailable("no groups here"); }
  // Whether the last scan has seen a process in the control group that the lease belongs to. True once for each scan.
  virtual bool take_group_seen(LeaseId) { return false; }
  virtual const proc::ProcRoot& root() const = 0;
};

}  // namespace sublet::machine
