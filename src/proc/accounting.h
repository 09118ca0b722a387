// SPDX-License-Identifier: Apache-2.0
// Process accounting of the kernel (acct(5), version 3): one record of 64 bytes for each process that has ended.
// Another program turns the accounting on, and owns the file.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace sublet::proc {

struct AccountingRecord {
  std::int32_t pid = 0;
  std::int32_t parent = 0;  // pid of its parent when it ended
  std::uint32_t uid = 0;    // real
  Time started;             // wall clock, to a second
  Time ended;               // wall clock, to some seconds
  std::string name;         // the first 15 bytes of the program's name, printable
  bool operator==(const AccountingRecord&) const = default;
};

inline constexpr std::size_t accounting_record_size = 64;

// Unset: not a record of version 3 in this machine's byte order.
std::optional<AccountingRecord> parse_accounting_record(std::span<const std::byte> record);

// Returns the last records of a file, the oldest first, at most `most` of them. Never blocks, and follows no link at
// the end of the path. Unavailable: it cannot be read. Denied: not a plain file, not owned by root or by `owner`, or
// others, or a group except root's, may write to it. BadRequest: the last record is not of version 3.
Result<std::vector<AccountingRecord>> read_accounting(const std::string& path, uid_t owner, std::size_t most);

}  // namespace sublet::proc
