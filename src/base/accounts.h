// SPDX-License-Identifier: Apache-2.0
// The account database: it may be a network service, and slow. Any thread.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <optional>
#include <string>
#include <vector>

namespace sublet {

std::optional<gid_t> group_named(const std::string& name);
std::optional<std::string> account_named(uid_t uid);  // its name
std::vector<gid_t> groups_of_account(uid_t uid);      // none for one that is gone

// An entry of the database, and the memory that it points into.
template <typename Entry>
struct Found {
  Entry entry{};
  std::vector<char> memory;
};

constexpr std::size_t largest_entry = std::size_t{64} << 20;  // a group of millions

// Calls `ask(entry, memory, size, found)`, which is getgrnam_r() or its kin, with as much memory as the entry takes: a
// group is as long as the list of its members.
template <typename Entry, typename Ask>
std::optional<Found<Entry>> look_up(const Ask& ask) {
  Found<Entry> found;
  found.memory.resize(4096);
  while (true) {
    Entry* entry = nullptr;
    const int error = ask(&found.entry, found.memory.data(), found.memory.size(), &entry);
    if (error == 0 && entry != nullptr) return found;
    if (error == EINTR) continue;
    if (error != ERANGE || found.memory.size() >= largest_entry) return std::nullopt;
    found.memory.resize(found.memory.size() * 4);
  }
}

}  // namespace sublet
