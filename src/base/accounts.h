// SPDX-License-Identifier: Apache-2.0
// The account database: it may be a network service, slow, and away. Any thread.
#pragma once

#include "base/error.h"

#include <sys/types.h>

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sublet {

// An error means that it could not be asked, which says nothing of what is in it.
Result<std::optional<gid_t>> group_named(const std::string& name);
Result<std::optional<std::string>> account_named(uid_t uid);  // its name
Result<std::vector<gid_t>> groups_of_account(uid_t uid);      // none for one that is gone

// For those who ask it aside (base/aside.h): how long a loop waits for it; after what time it is asked anew for
// somebody's rights, and how long what it said of them serves while it does not answer.
constexpr std::int64_t accounts_patience_ns = 250'000'000;
constexpr std::int64_t rights_fresh_ns = 60'000'000'000;
constexpr std::int64_t rights_serve_ns = 15 * 60'000'000'000;

// An entry of the database, and the memory that it points into.
template <typename Entry>
struct Found {
  Entry entry{};
  std::vector<char> memory;
};

constexpr std::size_t largest_entry = std::size_t{64} << 20;  // a group of millions

// How getgrnam_r() and its kin may say that there is no such entry, besides by saying nothing.
constexpr bool means_not_found(int error) {
  return error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM;
}

// What kept a source of the database from being read, where the C library speaks for the others alone: it tells of
// accounts that it had no descriptor to look for that they are not there. By errno as it left it; 0: nothing did.
int untold_failure(int error);

// Calls `ask(entry, memory, size, found)`, which is getgrnam_r() or its kin, with as much memory as the entry takes: a
// group is as long as the list of its members. Nothing where there is no such entry.
template <typename Entry, typename Ask>
Result<std::optional<Found<Entry>>> look_up(const Ask& ask) {
  Found<Entry> found;
  found.memory.resize(4096);
  while (true) {
    Entry* entry = nullptr;
    errno = 0;
    int error = ask(&found.entry, found.memory.data(), found.memory.size(), &entry);
    if (error == 0 && entry != nullptr) return std::optional(std::move(found));
    if (error == EINTR) continue;
    if (means_not_found(error)) {
      error = untold_failure(errno);
      if (error == 0) return std::optional<Found<Entry>>();
    }
    if (error != ERANGE || found.memory.size() >= largest_entry) {
      return from_errno("cannot ask the account database", error);
    }
    found.memory.resize(found.memory.size() * 4);
  }
}

}  // namespace sublet
