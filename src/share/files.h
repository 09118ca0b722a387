// SPDX-License-Identifier: Apache-2.0
// The share pages of leases (wire/limit.h), as files of the runtime directory: a restarted daemon hands out the same
// page. The daemon never maps one, because a process of the lease could make it smaller. One thread.
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "base/ids.h"

#include <cstdint>
#include <set>
#include <string>

namespace sublet::share {

class Files {
 public:
  // Only our own user may enter the directory, which is made with the first page.
  explicit Files(std::string directory) : directory_(std::move(directory)) {}

  // Opens the page of a lease, and makes it if it is missing or is no page.
  Result<Fd> open(LeaseId lease, std::uint32_t devices);
  // A process of the lease may have made the file larger or smaller.
  void mend(LeaseId lease);
  void remove(LeaseId lease);
  // Removes all pages but those of these leases.
  void keep_only(const std::set<LeaseId>& leases);

 private:
  std::string path_of(LeaseId lease) const { return directory_ + "/" + to_string(lease); }

  std::string directory_;
};

}  // namespace sublet::share
