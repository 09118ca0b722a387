// SPDX-License-Identifier: Apache-2.0
// The keeper's durable record of how its program ended. The record outlives the keeper, the daemon and a loss of power.
// The reading daemon may belong to another user, so it checks the record like any foreign input.
#pragma once

#include "base/error.h"
#include "base/ids.h"
#include "base/units.h"

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

namespace sublet::proc {

struct ExitRecord {
  LeaseId lease;
  std::optional<int> exit_status;  // 0 … 255; unset if a signal ended the program, or if the status is not known
  std::optional<int> signal;       // 1 … 64
  Time ended_at;                   // in whole milliseconds
  bool forwarded = false;          // the keeper had got this signal and forwarded it
  bool operator==(const ExitRecord&) const = default;
};

std::string encode_exit_record(const ExitRecord& record);  // one JSON line
Result<ExitRecord> decode_exit_record(std::string_view text);

// Writes the record beside `path`, syncs it, renames it to `path` and syncs the directory. After success the record is
// durable. A failure leaves the old record or none, never a part. Blocks on the disk.
Status write_exit_record(const std::string& path, const ExitRecord& record);

// Reads a record. NotFound: there is none. Denied: a link, not a plain file, not owned by `owner`, or writable by
// others. BadRequest: not a record. Never blocks, even if the path is a FIFO or a device.
Result<ExitRecord> read_exit_record(const std::string& path, uid_t owner);

}  // namespace sublet::proc
