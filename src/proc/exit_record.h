// SPDX-License-Identifier: Apache-2.0
// The keeper's durable note of how its program ended. It outlives keeper, daemon and power loss, and is read
// by a daemon that may belong to another user: what is read is checked like any foreign input.
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
  std::optional<int> exit_status;  // 0 … 255; unset when killed by a signal, or not known
  std::optional<int> signal;       // 1 … 64
  Time ended_at;                   // to the millisecond
  bool operator==(const ExitRecord&) const = default;
};

std::string encode_exit_record(const ExitRecord& record);  // one JSON line
Result<ExitRecord> decode_exit_record(std::string_view text);

// Written beside `path`, flushed, renamed over it, and the directory flushed: after success the record is
// there whatever happens, before it there is the old one or none, never a part. Blocks for the disk.
Status write_exit_record(const std::string& path, const ExitRecord& record);

// NotFound: there is none. Denied: a link, not a plain file, not `owner`'s, or writable by others.
// BadRequest: not a record. Never blocks on what a hostile file might be (a FIFO, a device).
Result<ExitRecord> read_exit_record(const std::string& path, uid_t owner);

}  // namespace sublet::proc
