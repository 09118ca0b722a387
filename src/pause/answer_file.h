// SPDX-License-Identifier: Apache-2.0
// Reads the answers of programs that get their orders by signals: one line in a file.
#pragma once

#include "base/ids.h"
#include "pause/cooperation.h"

#include <cstdint>
#include <optional>
#include <string>

namespace sublet::pause {

struct Said {
  YieldAnswer answer = YieldAnswer::yielded;
  std::string detail;
};

// The file for the answers of a lease's program, in the directory of its user (user_directory.h).
std::string answer_path(const std::string& dir, LeaseId lease, std::uint32_t uid);
// Removes an answer, or an empty directory or a link that the user left under its name.
void remove_answer(const std::string& path);
// Reads the answer. Nothing while there is no complete answer, or if the file does not belong to that user.
std::optional<Said> read_said(const std::string& path, std::uint32_t uid);

}  // namespace sublet::pause
