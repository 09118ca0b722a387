// SPDX-License-Identifier: Apache-2.0
// Facts for the next actor, in files that outlive this actor: the helpers at work, and the control groups that are kept
// from swap. /proc is no substitute: a helper belongs to its user, who may change its command line or block its reader.
// A file in the control group is no substitute either, because its directory may belong to the user. Belongs to one
// thread.
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
  // `directory`: an absolute path that a reboot clears. It is made if it is missing. If others can write to it, it is
  // not used, and stderr says so. "": nothing is recorded.
  explicit Records(const std::string& directory);

  struct Record {
    ProcessRef helper;
    ProcessRef process;  // the process that the helper parks
    std::uint32_t uid = 0;
    bool operator==(const Record&) const = default;
  };
  std::vector<Record> read() const;  // unordered; named processes may have ended
  void write(const Record& record) const;
  void remove(pid_t helper) const;

  // A control group that is kept from swap. A later group of the same path has another inode.
  struct Limit {
    std::string path;
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    std::string before;  // its swap limit before: "max", or a number
    bool operator==(const Limit&) const = default;
  };
  std::vector<Limit> limits() const;  // unordered; named groups may be gone
  // False, with errno, if the record could not be written. True if nothing is recorded.
  bool write(const Limit& limit) const;
  void remove(const Limit& limit) const;

 private:
  template <typename Found>
  void each(const char* first, Found found) const;

  Fd directory_;
};

}  // namespace sublet::actor
