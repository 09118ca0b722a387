// SPDX-License-Identifier: Apache-2.0
#include "proc/accounting.h"

#include "base/fd.h"
#include "base/text.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <linux/acct.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>

namespace sublet::proc {
namespace {

static_assert(sizeof(acct_v3) == accounting_record_size);

constexpr char version = 3 | (std::endian::native == std::endian::big ? ACCT_BYTEORDER : 0);
constexpr std::int64_t second_ns = 1'000'000'000;
constexpr float ticks = 100;  // of ac_etime in a second

std::span<const std::byte> bytes_of(const std::vector<char>& data, std::size_t at) {
  return std::as_bytes(std::span(data).subspan(at, accounting_record_size));
}

}  // namespace

std::optional<AccountingRecord> parse_accounting_record(std::span<const std::byte> record) {
  acct_v3 raw{};
  if (record.size() != sizeof raw) return {};
  std::memcpy(&raw, record.data(), sizeof raw);
  if (raw.ac_version != version || raw.ac_pid < 1 || raw.ac_pid > INT32_MAX || raw.ac_ppid > INT32_MAX) return {};
  const bool lasted = std::isfinite(raw.ac_etime) && raw.ac_etime >= 0 && raw.ac_etime < 1e11F;
  const std::int64_t started = std::int64_t{raw.ac_btime} * second_ns;
  const char* end = std::find(std::begin(raw.ac_comm), std::end(raw.ac_comm), '\0');
  return AccountingRecord{
      .pid = static_cast<std::int32_t>(raw.ac_pid),
      .parent = static_cast<std::int32_t>(raw.ac_ppid),
      .uid = raw.ac_uid,
      .started = Time{started},
      .ended = Time{started + (lasted ? static_cast<std::int64_t>(raw.ac_etime / ticks) * second_ns : 0)},
      .name = printable({raw.ac_comm, static_cast<std::size_t>(end - raw.ac_comm)})};
}

Result<std::vector<AccountingRecord>> read_accounting(const std::string& path, uid_t owner, std::size_t most) {
  const auto failed = [&](int problem) {
    return from_errno(fmt::format("cannot read the accounting file {}", printable(path)), problem);
  };
  // A device or a FIFO is not opened: that alone may have an effect.
  const Fd place(::open(path.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (!place) return failed(errno);
  struct stat about {};
  if (::fstat(place.get(), &about) != 0) return failed(errno);
  const bool owned = about.st_uid == 0 || about.st_uid == owner;
  const bool by_others = (about.st_mode & S_IWOTH) != 0 || ((about.st_mode & S_IWGRP) != 0 && about.st_gid != 0);
  if (!S_ISREG(about.st_mode) || !owned || by_others) {
    return denied(fmt::format("{} is not an accounting file of root that only root writes", printable(path)),
                  "name the file that accton writes");
  }
  const Fd file(::open(fmt::format("/proc/self/fd/{}", place.get()).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return failed(errno);
  const auto count = std::min<std::size_t>(most, static_cast<std::size_t>(about.st_size) / accounting_record_size);
  const std::size_t whole = static_cast<std::size_t>(about.st_size) / accounting_record_size;
  std::vector<char> data(count * accounting_record_size);
  std::size_t got = 0;
  while (got < data.size()) {
    const auto at = static_cast<off_t>((whole - count) * accounting_record_size + got);
    const ssize_t part = ::pread(file.get(), data.data() + got, data.size() - got, at);
    if (part < 0 && errno == EINTR) continue;
    if (part < 0) return failed(errno);
    if (part == 0) break;  // it was cut meanwhile
    got += static_cast<std::size_t>(part);
  }
  std::vector<AccountingRecord> records;
  records.reserve(got / accounting_record_size);
  bool last = true;
  for (std::size_t at = 0; at + accounting_record_size <= got; at += accounting_record_size) {
    auto record = parse_accounting_record(bytes_of(data, at));
    last = record.has_value();
    if (record) records.push_back(std::move(*record));
  }
  if (!last) return bad_request(fmt::format("{} has no records of version 3", printable(path)));
  return records;
}

}  // namespace sublet::proc
