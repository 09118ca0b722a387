// SPDX-License-Identifier: Apache-2.0
// Processes under no lease: a look at the evidence that they use a GPU, and signals to them. The actor checks and
// signals. Belongs to the loop thread; all results are reported later, on the loop.
#pragma once

#include "base/error.h"
#include "base/ids.h"
#include "proc/process_record.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace sublet::machine {

// The result of an order about an unleased process.
struct UnleasedResult {
  enum class Kind {
    done,       // looked at; or the signal was sent to the process and its descendants
    gone,       // the process has ended, or its pid is of another process now
    spared,     // it must not be signalled: protected, under a lease, or without evidence of the GPU; `why` says which
    no_actor,   // no actor could be asked; nothing was sent
    uncertain,  // the actor was lost with the order, so the signal may have been sent
  };
  Kind kind = Kind::no_actor;
  std::string why{};           // a sentence; "" if done
  bool lasting = false;        // spared: as long as it executes the same file
  std::string exe{};           // path of the executable, if the actor could read it
  bool device_file = false;    // it has a device file of the GPU open
  bool mapping = false;        // it has memory of the GPU mapped
  int sent = 0;                // number of processes that got the signal
  int spared_descendants = 0;  // number of its descendants that were spared
};

// The ancestry of a process, with the parents that have ended.
struct Parents {
  bool asked = false;                      // false: nobody could be asked, and the rest is empty
  std::vector<proc::Ancestor> ancestry{};  // the parent first; empty: it has none that can be seen
  std::string missing{};                   // a sentence about a record that is missing; "": none is
};

// A source of links between processes, and whether it works on this machine.
struct LinkSource {
  std::string name;  // "connector", "accounting"
  bool works = false;
  std::string text;  // since when it works, or why it does not
};

class Unleased {
 public:
  using Done = std::function<void(const UnleasedResult&)>;
  virtual ~Unleased() = default;

  // Starts to hold the process: the pidfd that proves it in later orders. `inode`: of the pidfd of an earlier daemon;
  // 0: none, the process is held as it is now. Returns the inode; 0: this kernel has none. NotFound: it is gone, or it
  // is not the same process.
  virtual Result<std::uint64_t> hold(ProcessRef process, std::uint64_t inode) = 0;
  virtual void let_go(ProcessRef process) = 0;
  // Whether the process lives; false if it is not held.
  virtual bool lives(ProcessRef process) const = 0;
  virtual Result<proc::ProcessRecord> describe(ProcessRef process) const = 0;

  // Asks for the ancestry by all sources. `told` is called once, later.
  virtual void trace(ProcessRef process, std::function<void(const Parents&)> told) = 0;
  // The lease to which one of these processes belongs, or belonged while it lived. None: no lease. Such a link spares a
  // process below them.
  virtual LeaseId lease_above(const std::vector<proc::Ancestor>& ancestry) const = 0;
  // Opens the sources of links, or asks again whether they work. Call it at each pass: a new actor has none open.
  // `accounting`: path of the accounting file; "": none.
  virtual void open_sources(const std::string& accounting) = 0;
  // The sources by the last answers.
  virtual const std::vector<LinkSource>& sources() const = 0;

  // Looks for the evidence, and sends nothing. The process must be held.
  virtual void look(ProcessRef process, Done done) = 0;
  // Sends SIGTERM or SIGKILL to the process and its living descendants, after the actor has proven and judged it anew.
  // `verdict`: number of the record; the actor keeps for it which descendants got SIGTERM, and sends SIGKILL to what is
  // left of them too, also when the process itself is gone. `spare`: processes that get no signal, with all below them.
  virtual void end(std::uint64_t verdict, ProcessRef process, int signal, const std::vector<ProcessRef>& spare,
                   Done done) = 0;
  // The verdict is closed: the actor forgets its descendants.
  virtual void close(std::uint64_t verdict) = 0;
};

}  // namespace sublet::machine
