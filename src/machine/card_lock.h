// SPDX-License-Identifier: Apache-2.0
// Ensures that only one daemon manages a real device. The daemon holds the abstract Unix socket @sublet/gpu/UUID, which
// the kernel releases when the daemon ends. Simulated cards are private and need no lock.
#pragma once

#include "base/error.h"
#include "base/fd.h"

#include <map>
#include <string>

namespace sublet::machine {

class CardLocks {
 public:
  // Takes the lock; succeeds if this daemon has it already. InUse names the holder by its peer credentials.
  Status acquire(const std::string& uuid);

 private:
  std::map<std::string, Fd> held_;  // by UUID; close-on-exec, so that no helper inherits a lock
};

}  // namespace sublet::machine
