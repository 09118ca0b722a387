// SPDX-License-Identifier: Apache-2.0
// The files around the database: the directory, the lock that excludes a second daemon, and a corrupt database that was
// set aside. For a store at /d/store.db they are /d/store.db-wal, /d/store.lock, /d/store.db.new during creation, and
// /d/store.db.corrupt-20261121T160005Z (with …-wal).
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "base/units.h"

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::store {

// Makes the directory with mode 0700 if it is missing. Refuses a directory in which other users could replace our
// files.
Status prepare_directory(const std::filesystem::path& directory);

// Takes the lock of the store, which lasts until the descriptor is closed. The descriptor is close-on-exec, so no child
// keeps it. The file contains our pid. An error names the pid of the holder.
Result<Fd> take_lock(const std::filesystem::path& database);

// Whether a database may be made or opened here. A store that was set aside remains an error until its file is moved
// away, because a restart must not turn a corrupt store into an empty one. `exists`: there is a database to open.
struct Site {
  bool exists = false;
};
Result<Site> inspect(const std::filesystem::path& database);

// Renames the database and its log; nothing is deleted. Returns the error that open() returns from now on.
Error set_aside(const std::filesystem::path& database, std::string_view why);

// Makes the rename of `path` durable.
Status sync_directory(const std::filesystem::path& directory);

std::optional<Bytes> bytes_free(const std::filesystem::path& directory);  // unset: not known
std::string free_space(const std::filesystem::path& directory);           // "17.2 GiB free in /d"

}  // namespace sublet::store
