// SPDX-License-Identifier: Apache-2.0
// One daemon per real card and machine: whoever manages a card holds the abstract Unix socket @sublet/gpu/UUID, which
// the kernel gives back when its holder ends, however it ends. Simulated cards need no lock: they are private.
#pragma once

#include "base/error.h"
#include "base/fd.h"

#include <map>
#include <string>

namespace sublet::engine {

class CardLocks {
 public:
  // Takes the lock, or has it already. InUse names the holder by its peer credentials.
  Status acquire(const std::string& uuid);

 private:
  std::map<std::string, Fd> held_;  // by uuid; close-on-exec, so that no helper inherits a lock
};

}  // namespace sublet::engine
