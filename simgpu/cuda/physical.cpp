// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "driver.h"

namespace simgpu {
namespace {

struct Registry {
  std::mutex mutex;
  std::set<Physical*> all;
};
Registry& registry() {
  static auto* made = new Registry;
  return *made;
}

}  // namespace

Physical::Physical(unsigned device_index, std::uint64_t size) : device(device_index), bytes(size) {
  const std::lock_guard lock(registry().mutex);
  registry().all.insert(this);
}

std::vector<std::shared_ptr<Physical>> Physical::all() {
  const std::lock_guard lock(registry().mutex);
  std::vector<std::shared_ptr<Physical>> living;
  for (Physical* physical : registry().all)
    if (auto held = physical->weak_from_this().lock()) living.push_back(std::move(held));
  return living;
}

bool Physical::exported() const {
  const std::lock_guard lock(mutex_);
  return fd_ >= 0;
}

void Physical::park() {
  const std::lock_guard lock(mutex_);
  std::vector<ParkedRun> runs;
  std::array<std::uint8_t, content_page> buffer;
  for (std::uint64_t at = 0; at < bytes;) {
    const Piece piece = content_->next(at, bytes - at, buffer.data());
    ParkedRun run{at, piece.size, piece.pattern, nullptr};
    if (!piece.uniform) {
      run.data = std::make_unique_for_overwrite<std::uint8_t[]>(piece.size);
      std::memcpy(run.data.get(), buffer.data(), piece.size);
    }
    if (!piece.uniform || piece.pattern != Pattern{}) runs.push_back(std::move(run));
    at += piece.size;
  }
  parked_ = std::move(runs);
}

void Physical::unpark() {
  const std::lock_guard lock(mutex_);
  content_ = std::make_unique<SparseContent>(bytes);
  for (auto& run : parked_) {
    if (run.data) content_->write(run.offset, run.data.get(), run.size);
    else content_->fill(run.offset, run.size, run.pattern);
    run.data.reset();
  }
  parked_.clear();
  parked_.shrink_to_fit();
}

std::shared_ptr<Physical> Physical::create(unsigned device, std::uint64_t bytes) {
  if (!driver().process->charge(device, bytes)) return nullptr;
  auto made = std::shared_ptr<Physical>(new Physical(device, bytes));
  made->content_ = std::make_unique<SparseContent>(bytes);
  return made;
}

std::shared_ptr<Physical> Physical::import(int fd) {
  const auto found = driver().process->identify(fd);
  if (!found) return nullptr;
  // The same open file has the same lock: the memory is held as long as this descriptor is open.
  const int own = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (own < 0) return nullptr;
  driver().process->tie(found->creator);
  auto made = std::shared_ptr<Physical>(new Physical(found->device, found->bytes));
  made->fd_ = own;
  made->content_ = std::make_unique<FileContent>(own);
  made->in_file_ = true;
  return made;
}

Physical::~Physical() {
  {
    const std::lock_guard lock(registry().mutex);
    registry().all.erase(this);
  }
  if (fd_ >= 0) ::close(fd_);
  else driver().process->discharge(device, bytes);
}

int Physical::export_fd() {
  const std::lock_guard lock(mutex_);
  // From here on the file is charged, even if the contents cannot be moved into it.
  if (fd_ < 0) fd_ = driver().process->share(device, bytes);
  if (fd_ < 0) return -1;
  if (!in_file_) {
    auto file = std::make_unique<FileContent>(fd_);
    std::array<std::uint8_t, content_page> buffer;
    for (std::uint64_t at = 0; at < bytes;) {
      const Piece piece = content_->next(at, bytes - at, buffer.data());
      if (!piece.uniform) file->write(at, buffer.data(), piece.size);
      else if (piece.pattern != Pattern{}) file->fill(at, piece.size, piece.pattern);
      at += piece.size;
    }
    content_ = std::move(file);
    in_file_ = true;
  }
  return ::fcntl(fd_, F_DUPFD_CLOEXEC, 3);
}

Piece Physical::next(std::uint64_t offset, std::uint64_t limit, std::uint8_t* buffer) const {
  const std::lock_guard lock(mutex_);
  return content_->next(offset, limit, buffer);
}

void Physical::write(std::uint64_t offset, const std::uint8_t* data, std::uint64_t size) {
  const std::lock_guard lock(mutex_);
  content_->write(offset, data, size);
}

void Physical::fill(std::uint64_t offset, std::uint64_t size, const Pattern& pattern) {
  const std::lock_guard lock(mutex_);
  content_->fill(offset, size, pattern);
}

// ------------------------------------------------------------------------------------------- addresses

// Reserved without access: a stray dereference faults, as with the real driver, and no other mapping of the process can
// take an address that the driver handed out.
bool AddressSpace::open_region() {
  for (std::uint64_t size = std::uint64_t{4} << 40; size >= std::uint64_t{64} << 30; size /= 2) {
    void* at =
        ::mmap(nullptr, size + (std::uint64_t{1} << 30), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) continue;
    region_ = round_up(reinterpret_cast<std::uint64_t>(at), std::uint64_t{1} << 30);
    region_size_ = size;
    free_[region_] = size;
    return true;
  }
  return false;
}

std::uint64_t AddressSpace::reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t hint) {
  if (region_ == 0 && !open_region()) return 0;
  const auto take = [&](std::map<std::uint64_t, std::uint64_t>::iterator gap, std::uint64_t at) {
    const std::uint64_t base = gap->first, end = gap->first + gap->second;
    free_.erase(gap);
    if (at > base) free_[base] = at - base;
    if (at + size < end) free_[at + size] = end - (at + size);
    return at;
  };
  if (hint != 0 && hint % alignment == 0) {
    auto gap = free_.upper_bound(hint);
    if (gap != free_.begin() && (--gap)->first + gap->second >= hint + size) return take(gap, hint);
  }
  for (auto gap = free_.begin(); gap != free_.end(); ++gap) {
    const std::uint64_t at = round_up(gap->first, alignment);
    if (at + size <= gap->first + gap->second) return take(gap, at);
  }
  return 0;
}

void AddressSpace::release(std::uint64_t base, std::uint64_t size) {
  auto [at, fresh] = free_.emplace(base, size);
  if (const auto after = std::next(at); after != free_.end() && base + size == after->first) {
    at->second += after->second;
    free_.erase(after);
  }
  if (at != free_.begin())
    if (const auto before = std::prev(at); before->first + before->second == base) {
      before->second += at->second;
      free_.erase(at);
    }
}

Range* AddressSpace::add(std::unique_ptr<Range> range) {
  range->id = next_id_++;
  Range* made = range.get();
  ranges_[made->base] = std::move(range);
  return made;
}

void AddressSpace::remove(Range* range) { ranges_.erase(range->base); }

Range* AddressSpace::find(std::uint64_t address) {
  auto at = ranges_.upper_bound(address);
  if (at == ranges_.begin()) return nullptr;
  Range* range = (--at)->second.get();
  return address - range->base < range->size ? range : nullptr;
}

bool AddressSpace::overlaps(std::uint64_t base, std::uint64_t size) const {
  auto at = ranges_.lower_bound(base);
  if (at != ranges_.end() && at->first < base + size) return true;
  return at != ranges_.begin() && (--at)->first + at->second->size > base;
}

}  // namespace simgpu
