// SPDX-License-Identifier: Apache-2.0
// Answers the questions of wire/credit.h for the processes of one lease: their pages, and a ledger for each device. The
// caller has decided that a process belongs to the lease. One thread at a time; no call waits.
#pragma once

#include "credit/ledger.h"
#include "credit/pages.h"

#include <map>
#include <optional>
#include <vector>

namespace sublet::credit {

class Desk {
 public:
  explicit Desk(std::vector<DeviceLimit> devices);

  // The pages of a process that begins. A process that has executed another program begins again: it gets new pages,
  // and keeps its credit. Its earlier program has no memory any more, which the readings of the card prove or refute.
  Result<const Pages*> begin(ProcessRef process);
  // The process has its pages: their files are closed.
  void close_files(ProcessRef process);
  // A process of an earlier daemon: its credit on each device. It has pages that nobody can write any more, and keeps
  // all of its credit until it begins again.
  void restore(ProcessRef process, const std::vector<Bytes>& credits);
  // Whether the process may have `needed` bytes of credit. Unused credit of others is taken for it. Its page shows the
  // credit once it is published, so that the caller can store the credit before.
  bool ask(ProcessRef process, std::size_t device, std::uint64_t needed);
  void publish(ProcessRef process);
  // Both at once.
  bool more(ProcessRef process, std::size_t device, std::uint64_t needed);
  // Whether the process has pages of this desk.
  bool knows(ProcessRef process) const;
  bool is_uncovered(ProcessRef process) const;           // calls may pass its hooks
  Counts counts(ProcessRef process) const;               // what it has done; zero without pages
  std::vector<Bytes> credits(ProcessRef process) const;  // on each device

  // The process has ended; the card shows nothing of it any more.
  void end(ProcessRef process);
  void forget(ProcessRef process);

  // The limit of the lease on a device has changed. Credit that nobody uses is taken back if it is too much; call it
  // again for what is in use now.
  void resize(std::size_t device, Bytes limit);
  // Bytes that processes of the lease without pages use: the others share the rest.
  void set_outside(std::size_t device, Bytes bytes);
  // The lease has ended: each process keeps what it has charged, and gets no more.
  void retire();
  // Bytes that a context takes, for processes that begin from now on.
  void set_context(std::size_t device, Bytes context) { devices_[device].context = context; }

  // The gain of all processes, also of those that begin later.
  void set_gain(std::size_t device, std::uint32_t gain);

  // Tells each process what the others have charged. The daemon calls it after each reading.
  void tell_others();

  // Bytes that all processes have charged, those of ended processes as far as they had credit.
  Bytes charged(std::size_t device) const;
  // The same of one process; all of its credit where it has no pages here.
  Bytes charged_by(ProcessRef process, std::size_t device) const;
  const Ledger& ledger(std::size_t device) const { return ledgers_[device]; }
  const std::vector<DeviceLimit>& devices() const { return devices_; }

 private:
  struct Process {
    std::optional<Pages> pages{};
    std::vector<Bytes> promised{};  // by device: what it was told that it may have, until that is published
    bool ended = false;
  };
  std::map<ProcessRef, Bytes> charges(std::size_t device) const;
  void carry_out(std::size_t device, const Recall& recall);
  void take_excess(std::size_t device);

  std::vector<DeviceLimit> devices_;
  std::vector<Ledger> ledgers_;  // by device
  std::vector<Bytes> outside_;   // by device
  std::map<ProcessRef, Process> processes_;
};

}  // namespace sublet::credit
