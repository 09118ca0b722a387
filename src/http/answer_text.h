// SPDX-License-Identifier: Apache-2.0
// An answer as the bytes that are sent: made in one piece, since thousands may be due at a stroke. Pure; any thread.
#pragma once

#include "http/message.h"

#include <string>
#include <string_view>

namespace sublet::http {

struct Framing {
  bool keep_alive = true;
  bool old_version = false;  // of HTTP: 1.0
  bool head_only = false;    // asked by HEAD, which no body may follow
};

std::string answer_text(const Response& response, const Framing& framing);

}  // namespace sublet::http
