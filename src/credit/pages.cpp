// SPDX-License-Identifier: Apache-2.0
#include "credit/pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <utility>

namespace sublet::credit {
namespace {

// Since Linux 5.1; glibc's header of older systems lacks it.
constexpr int seal_future_write = 0x0010;

using Word = std::atomic_ref<std::uint64_t>;
using Half = std::atomic_ref<std::uint32_t>;

Word word(const std::uint64_t& field) { return Word(const_cast<std::uint64_t&>(field)); }

// The mapping is made before the seal, which then refuses every other mapping that may write.
template <typename Page>
Result<Page*> make_page(Fd& file, int more_seals) {
  file = Fd(::memfd_create("sublet-credit", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return from_errno("memfd_create", errno);
  if (::ftruncate(file.get(), sizeof(Page)) != 0) return from_errno("ftruncate", errno);
  void* at = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) return from_errno("mmap", errno);
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | more_seals) != 0) {
    const auto error = from_errno("cannot seal a page", errno);
    ::munmap(at, sizeof(Page));
    return error;
  }
  return static_cast<Page*>(at);
}

}  // namespace

Result<Fd> make_share_page(std::uint32_t devices) {
  Fd file(::memfd_create("sublet-share", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file) return from_errno("memfd_create", errno);
  sublet_share_page page{};
  page.size = sizeof page;
  page.abi = SUBLET_LIMIT_ABI;
  page.devices = devices;
  if (::pwrite(file.get(), &page, sizeof page, 0) != static_cast<ssize_t>(sizeof page))
    return from_errno("write", errno);
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return from_errno("cannot seal a page", errno);
  return file;
}

Result<Pages> Pages::make(std::span<const DeviceLimit> devices) {
  if (devices.size() > SUBLET_LIMIT_DEVICES) return bad_request("more devices than a limit page has");
  Pages pages;
  auto limit = make_page<sublet_limit_page>(pages.limit_file_, seal_future_write);
  if (!limit) return limit.error();
  pages.limit_ = *limit;
  auto use = make_page<sublet_use_page>(pages.use_file_, 0);
  if (!use) return use.error();
  pages.use_ = *use;
  pages.limit_->size = sizeof *pages.limit_;
  pages.limit_->abi = SUBLET_LIMIT_ABI;
  pages.limit_->devices = static_cast<std::uint32_t>(devices.size());
  for (std::size_t i = 0; i < devices.size(); ++i) {
    auto& row = pages.limit_->device[i];
    std::ranges::copy(devices[i].uuid, row.uuid);
    row.limit = static_cast<std::uint64_t>(devices[i].limit.count);
    row.context = static_cast<std::uint64_t>(devices[i].context.count);
    row.share = devices[i].share;
    row.gain = devices[i].gain;
  }
  return pages;
}

Pages::Pages(Pages&& other) noexcept
    : limit_file_(std::move(other.limit_file_)),
      use_file_(std::move(other.use_file_)),
      limit_(std::exchange(other.limit_, nullptr)),
      use_(std::exchange(other.use_, nullptr)) {}

Pages& Pages::operator=(Pages&& other) noexcept {
  std::swap(limit_file_, other.limit_file_);
  std::swap(use_file_, other.use_file_);
  std::swap(limit_, other.limit_);
  std::swap(use_, other.use_);
  return *this;
}

Pages::~Pages() {
  if (limit_ != nullptr) ::munmap(limit_, sizeof *limit_);
  if (use_ != nullptr) ::munmap(use_, sizeof *use_);
}

void Pages::set_limit(std::size_t device, Bytes limit) {
  word(limit_->device[device].limit).store(static_cast<std::uint64_t>(limit.count));
}

void Pages::set_credit(std::size_t device, Bytes credit) {
  word(limit_->device[device].credit).store(static_cast<std::uint64_t>(credit.count));
}

void Pages::set_others(std::size_t device, Bytes others) {
  word(limit_->device[device].others).store(static_cast<std::uint64_t>(others.count));
}

void Pages::set_gain(std::size_t device, std::uint32_t gain) { Half(limit_->device[device].gain).store(gain); }

Bytes Pages::credit(std::size_t device) const {
  return {static_cast<std::int64_t>(word(limit_->device[device].credit).load())};
}

Counts Pages::counts() const { return read_counts(*use_); }

bool Pages::is_uncovered() const { return Half(use_->is_uncovered).load() != 0; }

// The process writes `size` after the bytes that it brings along.
Bytes Pages::charged(std::size_t device, Bytes most) const {
  if (Half(use_->size).load() != sizeof *use_) return most;
  const auto said = word(use_->device[device].charged).load();
  return said > static_cast<std::uint64_t>(most.count) ? most : Bytes{static_cast<std::int64_t>(said)};
}

}  // namespace sublet::credit
