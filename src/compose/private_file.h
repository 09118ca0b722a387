// SPDX-License-Identifier: Apache-2.0
// Files that are replaced as a whole, and files that only their owner reads. Any thread.
#pragma once

#include "base/error.h"

#include <string>

namespace sublet::compose {

// Replaces the file at once with a new one of this mode. After an error the old content stays. The file is not synced.
Status replace_file(const std::string& path, const std::string& text, unsigned mode);
// The same with mode 0600.
Status write_private_file(const std::string& path, const std::string& text);
// Returns the content. BadRequest: it is larger than `most` bytes.
Result<std::string> read_private_file(const std::string& path, std::size_t most);

}  // namespace sublet::compose
