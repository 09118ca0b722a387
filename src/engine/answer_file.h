// SPDX-License-Identifier: Apache-2.0
// The answers of programs that are told by signals: one line in a file.
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

// Nothing while there is no whole answer of that user: a file that is another's, or no file, is nobody's word.
std::optional<Said> read_said(const std::string& path, std::uint32_t uid);

}  // namespace sublet::engine
