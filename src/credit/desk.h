// SPDX-License-Identifier: Apache-2.0
// Answers the questions of wire/credit.h for the processes of one lease: their pages, and a ledger for each device. The
// caller has decided that a process belongs to the lease. One thread at a time; no call waits.
#pragma once

#include "credit/ledger.h"
#include "credit/pages.h"

#include <map>
#include <vector>

namespace sublet::credit {

class Desk {
 public:
  explicit Desk(std::vector<DeviceLimit> devices);

  // The pages of a process that begins. A process that has executed another program begins again: it gets new pages,
  // and keeps its credit. Its earlier program has no memory any more, which the readings of the card prove or refute.
  Result<const Pages*> begin(ProcessRef process);
  // Whether the process has `needed` bytes of credit now. Unused credit of others is taken for it.
  bool more(ProcessRef process, std::size_t device, std::uint64_t needed);
  bool knows(ProcessRef process) const { return processes_.contains(process); }

  // The process has ended; the card shows nothing of it any more.
  void end(ProcessRef process);
  void forget(ProcessRef process);

  // The limit of the lease on a device has changed. Credit that nobody uses is taken back if it is too much.
  void resize(std::size_t device, Bytes limit);

  // Tells each process what the others have charged. The daemon calls it after each reading.
  void tell_others();

  // Bytes that all processes have charged, those of ended processes as far as they had credit.
  Bytes charged(std::size_t device) const;
  const Ledger& ledger(std::size_t device) const { return ledgers_[device]; }

 private:
  struct Process {
    Pages pages;
    bool ended = false;
  };
  std::map<ProcessRef, Bytes> charges(std::size_t device) const;
  void carry_out(std::size_t device, const Recall& recall);

  std::vector<DeviceLimit> devices_;
  std::vector<Ledger> ledgers_;  // by device
  std::map<ProcessRef, Process> processes_;
};

}  // namespace sublet::credit
