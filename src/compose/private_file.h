// SPDX-License-Identifier: Apache-2.0
// Files that only their owner reads. Any thread.
#pragma once

#include "base/error.h"

#include <string>

namespace sublet::compose {

// Replaces the file at once with a new one of mode 0600. After an error the old content stays.
Status write_private_file(const std::string& path, const std::string& text);
// Returns the content. BadRequest: it is larger than `most` bytes.
Result<std::string> read_private_file(const std::string& path, std::size_t most);

}  // namespace sublet::compose
