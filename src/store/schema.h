// SPDX-License-Identifier: Apache-2.0
// Makes, checks and migrates the database file.
#pragma once

#include "store/sqlite.h"

#include <filesystem>
#include <memory>

namespace sublet::store {

// Opens the database at `path` with the newest schema, and syncs it. Makes it if `exists` is false, else checks it. A
// corrupt database is set aside. If the database is newer than this program, or is not ours, the result is an error and
// the files stay untouched.
Result<std::unique_ptr<Database>> open_database(const std::filesystem::path& path, bool exists);

}  // namespace sublet::store
