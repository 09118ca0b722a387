// SPDX-License-Identifier: Apache-2.0
#include "machine/exit_records.h"

#include <filesystem>

namespace sublet::machine {
namespace {

namespace fs = std::filesystem;

void sweep_user(const fs::path& dir, const std::function<bool(LeaseId)>& keep) {
  std::error_code failure;
  for (auto entry = fs::directory_iterator(dir, failure); !failure && entry != end(entry); entry.increment(failure)) {
    const std::string name = entry->path().filename().string();  // lease-N-PID.json, lease-N-yield
    if (!name.starts_with("lease-") || (!name.ends_with(".json") && !name.ends_with("-yield"))) continue;
    const auto lease = parse_lease_id(name.substr(0, name.find('-', 6)));
    std::error_code ignored;
    if (lease && !keep(*lease)) fs::remove(*entry, ignored);
  }
}

}  // namespace

void sweep_exit_records(const std::string& dir, const std::function<bool(LeaseId)>& keep) {
  std::error_code failure;
  for (auto entry = fs::directory_iterator(dir, failure); !failure && entry != end(entry); entry.increment(failure)) {
    std::error_code unknown;
    if (fs::is_directory(entry->symlink_status(unknown))) sweep_user(entry->path(), keep);
  }
}

}  // namespace sublet::machine
