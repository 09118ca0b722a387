// SPDX-License-Identifier: Apache-2.0
// What an actor that is started anew has to know of the one before it, in files that outlive it: which helpers are at
// work, and which control groups it keeps from swap. What /proc shows of a helper would not do: it is its user's, who
// may have it show anything, or have whoever reads its command line wait. Nor would a note at the group itself, whose
// directory may be its user's too. Belongs to one thread.
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

  // A control group that is kept from swap. One that is made later under the same path has another inode.
  struct Limit {
    std::string path;
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::string before;  // what its limit on swap space was: "max", or a number
    bool operator==(const Limit&) const = default;
  };
  std::vector<Limit> limits() const;  // in no order; whichever is named may be gone
  // False, with errno: it could not be written down. True where nothing is kept.
  bool write(const Limit& limit) const;
  void remove(const Limit& limit) const;

 private:
  template <typename Found>
  void each(const char* first, Found found) const;

  Fd directory_;
};

}  // namespace sublet::actor
