// SPDX-License-Identifier: Apache-2.0
#include "gpu/json_line.h"

namespace sublet::gpu {
namespace {

constexpr int max_depth = 6;

}  // namespace

std::string fit(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  if (text.size() > max_text) {
    std::size_t end = max_text;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
    text.resize(end);
  }
  return text;
}

Json parse_line(std::string_view line) {
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > max_depth) too_deep = true;
    return !too_deep;
  };
  Json json = Json::parse(line, watch, /*allow_exceptions=*/false);
  return too_deep ? Json(Json::value_t::discarded) : json;
}

std::string to_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

}  // namespace sublet::gpu
