// SPDX-License-Identifier: Apache-2.0
// The credit of the processes of one lease on one device. A process may have charged its credit at once (record 0070),
// and all credits together are the limit of the lease at most. So 64 processes may race to the limit without asking
// anybody at each allocation. Values only: no clock, no I/O; one thread at a time.
#pragma once

#include "base/ids.h"
#include "base/units.h"

#include <map>
#include <vector>

namespace sublet::credit {

// The card hands out memory in blocks of this size, and credit too.
inline constexpr Bytes block = 2 * MiB;
// Credit that a process gets above its need while much is free.
inline constexpr Bytes largest_step = 256 * MiB;

// An order to lower the credit of a process. It holds once `confirm` is called, because the process may charge
// meanwhile (src/wire/limit.h).
struct Recall {
  ProcessRef process;
  Bytes credit;
  bool operator==(const Recall&) const = default;
};

struct Answer {
  bool enough = false;            // the credit is what the process needs
  Bytes credit;                   // of the process, now
  std::vector<Recall> recalls{};  // to be carried out before the process is refused; then it is answered again
};

class Ledger {
 public:
  explicit Ledger(Bytes limit) : limit_(limit) {}

  // Answers a process that needs `needed` bytes of credit in all. `charged` tells the bytes that each process has
  // charged, as its page says; a process that is not in it has charged nothing.
  Answer ask(ProcessRef process, Bytes needed, const std::map<ProcessRef, Bytes>& charged);

  // The process has this credit, as an earlier daemon gave it.
  void restore(ProcessRef process, Bytes credit) { holders_[process] = {.credit = credit}; }

  // The process charges no more than `credit` from now on.
  void confirm(const Recall& recall);

  // The process has ended. Its credit stays taken until the card shows that its bytes are gone, and is not recalled.
  void end(ProcessRef process);
  // The card shows nothing of this ended process any more.
  void forget(ProcessRef process);

  // A smaller limit takes no credit away by itself; `excess` is what has to be recalled.
  void resize(Bytes limit) { limit_ = limit; }
  Bytes limit() const { return limit_; }
  Bytes given() const;
  Bytes excess() const;
  Bytes credit_of(ProcessRef process) const;

  // The recalls that give `bytes` at most: of the largest unused credits first, and nothing of `except`.
  std::vector<Recall> find_recalls(Bytes bytes, ProcessRef except, const std::map<ProcessRef, Bytes>& charged) const;

 private:
  struct Holder {
    Bytes credit;
    bool ended = false;
  };
  Bytes limit_;
  std::map<ProcessRef, Holder> holders_;
};

}  // namespace sublet::credit
