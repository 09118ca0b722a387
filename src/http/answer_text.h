// SPDX-License-Identifier: Apache-2.0
// An answer as bytes. Thousands may be sent at once, so copies are avoided. Pure; any thread.
#pragma once

#include "http/message.h"

#include <string>
#include <string_view>

namespace sublet::http {

struct Framing {
  bool keep_alive = true;
  bool old_version = false;  // HTTP/1.0
  bool head_only = false;    // method HEAD: no body
};

struct AnswerParts {
  std::string head, body;
  std::size_t size() const { return head.size() + body.size(); }
};

AnswerParts answer_parts(Response response, const Framing& framing);
std::string answer_text(const Response& response, const Framing& framing);

}  // namespace sublet::http
