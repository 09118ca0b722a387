// SPDX-License-Identifier: Apache-2.0
// Reads the answers of programs that get their orders by signals: one line in a file.
#pragma once

#include "engine/cooperation.h"

#include <cstdint>
#include <optional>
#include <string>

namespace sublet::engine {

struct Said {
  YieldAnswer answer = YieldAnswer::yielded;
  std::string detail;
};

// Reads the answer. Nothing while there is no complete answer, or if the file does not belong to that user.
std::optional<Said> read_said(const std::string& path, std::uint32_t uid);

}  // namespace sublet::engine
