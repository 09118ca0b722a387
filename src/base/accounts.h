// SPDX-License-Identifier: Apache-2.0
// Asks the account database for users and groups. The database may be a network service: slow, or unreachable. The
// functions block and may be called on any thread.
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

// Return the gid of a group, or nothing if the database has no such group. An error means that the database could not
// be asked.
Result<std::optional<gid_t>> group_named(const std::string& name);
Result<bool> has_account(const std::string& name);
Result<std::optional<uid_t>> uid_named(const std::string& name);  // nothing if there is no such account
Result<std::optional<std::string>> account_named(uid_t uid);  // the user's name; nothing if there is no such account
Result<std::vector<gid_t>> groups_of_account(uid_t uid);      // empty if there is no such account

// For callers that ask the database through AskedAside (base/aside.h). `accounts_patience_ns`: longest wait of an event
// loop for an answer. `rights_fresh_ns`: age at which a user's rights are asked for again. `rights_serve_ns`: greatest
// age of an answer that is used while the database does not answer.
constexpr std::int64_t accounts_patience_ns = 250'000'000;
constexpr std::int64_t rights_fresh_ns = 60'000'000'000;
constexpr std::int64_t rights_serve_ns = 15 * 60'000'000'000;

// An entry of the database, with the memory that its pointers point into.
template <typename Entry>
struct Found {
  Entry entry{};
  std::vector<char> memory;
};

constexpr std::size_t largest_entry = std::size_t{64} << 20;  // a group of millions

// Whether an error of getgrnam_r() or a similar function means "no such entry". These functions may also return 0.
constexpr bool means_not_found(int error) {
  return error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM;
}

// Returns the errno that kept a database source from being read, or 0 if there was none. `error` is the errno that the
// C library left. Without a free descriptor the C library reports existing accounts as missing.
int untold_failure(int error);

// Calls `ask(entry, memory, size, found)`, which is getgrnam_r() or a similar function, with as much memory as the
// entry needs. A group is as long as its list of members. Returns nothing if there is no such entry.
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
