// SPDX-License-Identifier: Apache-2.0
// The files around the database: its directory, the lock that keeps a second daemon out, and what happens to a database
// that is corrupt. For a store at /d/store.db these are /d/store.db-wal, /d/store.lock, /d/store.db.new while it is
// being made, and /d/store.db.corrupt-20261121T160005Z (with …-wal) once it was set aside.
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "base/units.h"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::store {

// Makes the directory of mode 0700 if it is missing; refuses one in which others could replace our files.
Status prepare_directory(const std::filesystem::path& directory);

// The lock of the store, held while the descriptor is open; it is closed on exec, so no child keeps it. Our pid stands
// in the file. An error names the pid of the holder.
Result<Fd> take_lock(const std::filesystem::path& database);

// Whether a database may be made, or opened, here. A store that was set aside stays an error until its file is moved
// away: a restart must not turn a corrupt store into an empty one. `exists` says which of the two it is.
struct Site {
  bool exists = false;
};
Result<Site> inspect(const std::filesystem::path& database);

// Renames the database and its log; nothing is ever deleted. Returns the error that open gives from now on.
Error set_aside(const std::filesystem::path& database, std::string_view why);

// Makes the rename of `path` durable.
Status sync_directory(const std::filesystem::path& directory);

std::optional<Bytes> bytes_free(const std::filesystem::path& directory);  // unset: cannot be told
std::string free_space(const std::filesystem::path& directory);           // "17.2 GiB free in /d"

}  // namespace sublet::store
