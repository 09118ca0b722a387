// SPDX-License-Identifier: Apache-2.0
// Makes, checks and migrates the database file.
#pragma once

#include "store/sqlite.h"

#include <filesystem>
#include <memory>

namespace sublet::store {

// The database at `path`, made if `exists` is false, checked if it is true, with the newest schema, and everything in
// it synced. A corrupt one is set aside. The error of one that is newer than this program, or is not ours, leaves its
// files untouched.
Result<std::unique_ptr<Database>> open_database(const std::filesystem::path& path, bool exists);

}  // namespace sublet::store
