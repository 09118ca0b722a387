// SPDX-License-Identifier: Apache-2.0
// Which helpers are at work, in files that outlive the actor, so that one that is started anew knows those of the one
// before it. What /proc shows of a helper would not do: it is its user's, who may have it show anything, or have
// whoever reads its command line wait. Belongs to one thread.
#pragma once

#include "base/fd.h"
#include "base/ids.h"

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace sublet::actor {

class Records {
 public:
  // An absolute path, gone with a reboot; it is made where it is missing, and not used, which is said on stderr, where
  // others could write into it. "": nothing is kept.
  explicit Records(const std::string& directory);

  struct Record {
    ProcessRef helper;
    ProcessRef process;  // that it parks
    std::uint32_t uid = 0;
    bool operator==(const Record&) const = default;
  };
  std::vector<Record> read() const;  // in no order; whoever is named may have ended
  void write(const Record& record) const;
  void remove(pid_t helper) const;

 private:
  Fd directory_;
};

}  // namespace sublet::actor
