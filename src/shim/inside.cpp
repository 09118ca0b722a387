// SPDX-License-Identifier: Apache-2.0
#include "shim/inside.h"

#include "proc/process_table.h"
#include "shim/place.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace sublet::shim {
namespace {

constexpr int most_ancestors = 1000;

}  // namespace

bool is_below_keeper() {
  const char* lease = std::getenv("SUBLET_LEASE");
  if (lease == nullptr || *lease == '\0') return false;
  std::vector<struct stat> keepers;
  for (const char* name : {"/sublet", "/sublet-keep"}) {
    struct stat status {};
    if (::stat((directory_of(program_path()) + name).c_str(), &status) == 0) keepers.push_back(status);
  }
  const auto root = proc::ProcRoot::open();
  if (!root) return false;
  std::int32_t pid = ::getppid();
  for (int i = 0; i < most_ancestors && pid > 1; ++i) {
    struct stat status {};
    if (::stat(fmt::format("/proc/{}/exe", pid).c_str(), &status) == 0) {
      for (const struct stat& keeper : keepers)
        if (keeper.st_dev == status.st_dev && keeper.st_ino == status.st_ino) return true;
    }
    const auto process = root->read(pid);
    if (!process) return false;
    pid = process->ppid;
  }
  return false;
}

}  // namespace sublet::shim
