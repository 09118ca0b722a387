// SPDX-License-Identifier: Apache-2.0
// The share of the computing time of leases, as the part that hands out the pages of processes asks for it. One thread;
// no call waits.
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "base/ids.h"

#include <cstdint>
#include <set>
#include <string>

namespace sublet::credit {

// The work of all processes of a lease on one device since the start of the daemon, as they say.
struct ComputeUse {
  std::int64_t busy = 0;    // ns of the device's time that they were charged
  std::int64_t waited = 0;  // ns that their launches waited for the share
};

class Shares {
 public:
  virtual ~Shares() = default;
  // Percent of the time of each device of the lease; 0: the lease has no share.
  virtual int percent(LeaseId lease) const = 0;
  // The file of the page that all processes of the lease write (wire/limit.h), for as many devices as the limit page
  // has. -1: the share needs none. It belongs to this object.
  virtual Result<int> page(LeaseId lease, std::uint32_t devices) = 0;
  // Takes in the use of a device by `members` until now. Returns their gain, in thousandths.
  virtual std::uint32_t take_use(LeaseId lease, const std::string& device, const ComputeUse& use,
                                 const std::set<ProcessRef>& members) = 0;
};

}  // namespace sublet::credit
