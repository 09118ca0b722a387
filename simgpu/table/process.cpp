// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "table.h"

namespace simgpu {

using namespace layout;

namespace {

std::uint64_t pages_of(std::uint64_t bytes) { return (bytes + account_page - 1) / account_page; }
constexpr std::uint64_t pending(std::uint64_t pages) { return pages << 32; }

// Sums the pages that all slots hold, and the pages that other slots have requested but not got.
struct Scan {
  std::uint64_t held = 0, asked = 0;
  bool earlier = false;  // a slot before ours has a pending request
};

Scan scan(layout::Cards& table, unsigned device, unsigned mine) {
  Scan found;
  const unsigned slots = std::min<std::uint64_t>(table.process_slots.load(), max_processes);
  for (unsigned i = 0; i < slots; ++i) {
    if ((table.process[i].owner.load() & ~owner_identity_mask) != owner_ready) continue;
    const std::uint64_t word = table.process[i].charge[device].load();
    found.held += held_pages(word);
    if (i == mine || pending_pages(word) == 0) continue;
    found.asked += pending_pages(word);
    if (i < mine) found.earlier = true;
  }
  const unsigned shared = std::min<std::uint64_t>(table.shared_slots.load(), max_shared);
  for (unsigned i = 0; i < shared; ++i)
    if ((table.shared[i].state.load() & ~owner_identity_mask) == owner_ready && table.shared[i].device == device)
      found.held += pages_of(table.shared[i].bytes.load());
  return found;
}

}  // namespace

// Announce, look, decide. Two processes that request at once see each other (all accesses are sequentially consistent),
// so the card is never given twice. The later slot then steps back. A process that is stopped in a request delays no
// other for long: after the wait its request counts as granted.
bool Process::settle(unsigned device, std::uint64_t pages) {
  auto& table = *table_.map_;
  auto& word = mine().charge[device];
  const auto& card = table.device[device];
  const std::uint64_t capacity = (card.total - card.reserve) / account_page;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  bool swept = false;
  word.fetch_add(pending(pages));
  for (;;) {
    if (mine().owner.load() != owner_) break;
    const Scan found = scan(table, device, slot_);
    if (found.held + found.asked + pages <= capacity) {
      word.fetch_add(pages - pending(pages));  // one instruction turns the request into a holding
      return true;
    }
    if (found.held + pages > capacity || std::chrono::steady_clock::now() > deadline) {
      if (swept) break;
      swept = true;
      table_.sweep();
      continue;
    }
    if (found.earlier) word.fetch_sub(pending(pages));
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    if (found.earlier) word.fetch_add(pending(pages));
  }
  word.fetch_sub(pending(pages));
  return false;
}

bool Process::charge(unsigned device, std::uint64_t bytes) {
  const std::uint64_t pages = pages_of(bytes);
  if (pages >= (std::uint64_t{1} << 31)) return false;
  if (pages == 0) return true;
  const std::lock_guard guard(mutex_);
  return settle(device, pages);
}

void Process::discharge(unsigned device, std::uint64_t bytes) {
  if (mine().owner.load() == owner_) mine().charge[device].fetch_sub(pages_of(bytes));
}

std::uint64_t Process::charged(unsigned device) const {
  return held_pages(mine().charge[device].load()) * account_page;
}

void Process::add_contexts(unsigned device, int change) {
  mine().contexts[device].fetch_add(static_cast<std::uint64_t>(static_cast<std::int64_t>(change)));
}

void Process::add_busy(unsigned device, std::uint64_t nanoseconds) {
  mine().busy_ns[device].fetch_add(nanoseconds);
  table_.map_->device[device].busy_ns.fetch_add(nanoseconds);
}

int Process::share(unsigned device, std::uint64_t bytes) {
  auto& table = *table_.map_;
  table_.sweep_shared();
  for (unsigned i = 0; i < max_shared; ++i) {
    auto& object = table.shared[i];
    std::uint64_t nobody = 0;
    if (!object.state.compare_exchange_strong(nobody, owner_claiming | (owner_ & owner_identity_mask))) continue;
    std::uint64_t used = table.shared_slots.load();
    while (used < i + 1 && !table.shared_slots.compare_exchange_weak(used, i + 1)) {
    }
    const std::uint64_t state = owner_ready | table.next_nonce.fetch_add(1);
    const std::string path = table_.shared_path(i, state);
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    struct flock lock {};
    lock.l_type = F_RDLCK;
    lock.l_len = 1;
    struct stat made;
    if (fd < 0 || ::fchmod(fd, 0666) != 0 || ::ftruncate(fd, static_cast<off_t>(bytes)) != 0 ||
        ::fcntl(fd, F_OFD_SETLK, &lock) != 0 || ::fstat(fd, &made) != 0) {
      const int saved = errno;
      if (fd >= 0) ::close(fd), ::unlink(path.c_str());
      object.state = 0;
      errno = saved;
      return -1;
    }
    object.creator = owner_;
    object.device = device;
    object.bytes = bytes;
    object.file_device = made.st_dev;
    object.file_inode = made.st_ino;
    object.state = state;  // from here on the object counts by itself, and for a moment twice: never too little
    discharge(device, bytes);
    return fd;
  }
  errno = ENFILE;
  return -1;
}

std::optional<Process::Imported> Process::identify(int fd) const {
  struct stat there;
  if (::fstat(fd, &there) != 0) return std::nullopt;
  auto& table = *table_.map_;
  const unsigned slots = std::min<std::uint64_t>(table.shared_slots.load(), max_shared);
  for (unsigned i = 0; i < slots; ++i) {
    const auto& object = table.shared[i];
    const std::uint64_t state = object.state.load();
    if ((state & ~owner_identity_mask) != owner_ready || object.file_inode != there.st_ino ||
        object.file_device != there.st_dev)
      continue;
    Imported found{static_cast<unsigned>(object.device.load()), object.bytes.load(), object.creator.load()};
    if (object.state.load() == state) return found;
  }
  return std::nullopt;
}

}  // namespace simgpu
