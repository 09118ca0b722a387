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
  std::string_view allow{};  // what the path would take, with status 405
};

std::string answer_text(const Response& response, const Framing& framing);

}  // namespace sublet::http
