// SPDX-License-Identifier: Apache-2.0
// Processes that share memory: while one of them is locked, requests to the other processes' drivers wait.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "table.h"

namespace simgpu {

using namespace layout;

namespace {

// Bytes of the file `alive` after the bytes of the processes: a byte for each group.
bool lock_group(int fd, std::uint64_t group, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(max_processes + group);
  lock.l_len = 1;
  int result = 0;
  while ((result = ::fcntl(fd, F_SETLKW, &lock)) != 0 && errno == EINTR) {
  }
  return result == 0;
}

}  // namespace

// Joins two groups under the lower number. Other processes may do the same at once, so the loop repeats until both have
// one number and no process has the other number.
void Process::tie(std::uint64_t owner) {
  auto& table = *table_.map_;
  const unsigned slots = std::min<std::uint64_t>(table.process_slots.load(), max_processes);
  const auto all = std::span(table.process).first(slots);
  const auto other = std::ranges::find_if(all, [&](const auto& process) { return process.owner.load() == owner; });
  if (other == all.end() || owner == owner_) return;
  for (;;) {
    std::uint64_t ours = mine().group.load(), theirs = other->group.load();
    if (ours == theirs && ours != 0) return;
    if (ours == 0 && theirs == 0) {
      other->group.compare_exchange_strong(theirs, table.next_nonce.fetch_add(1));
      continue;
    }
    const std::uint64_t into = ours == 0 || (theirs != 0 && theirs < ours) ? theirs : ours;
    mine().group.compare_exchange_strong(ours, into);
    other->group.compare_exchange_strong(theirs, into);
    for (bool found = true; found;) {
      found = false;
      for (auto& process : all)
        for (std::uint64_t from : {ours, theirs})
          if (from != 0 && from != into && process.group.compare_exchange_strong(from, into)) found = true;
    }
  }
}

void Process::wait_for_siblings() const {
  const std::uint64_t group = mine().group.load();
  if (group == 0 || blocked_group_ != 0 || !lock_group(table_.alive_fd_, group, F_WRLCK)) return;
  lock_group(table_.alive_fd_, group, F_UNLCK);
}

void Process::block_siblings() {
  const std::uint64_t group = mine().group.load();
  if (group != 0 && blocked_group_ == 0 && lock_group(table_.alive_fd_, group, F_WRLCK)) blocked_group_ = group;
}

void Process::let_siblings_go() {
  if (blocked_group_ != 0) lock_group(table_.alive_fd_, std::exchange(blocked_group_, 0), F_UNLCK);
}

}  // namespace simgpu
