// SPDX-License-Identifier: Apache-2.0
#include "base/json_text.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace sublet {

void JsonText::grow(std::size_t bytes) { text_.resize(std::max(2 * text_.size(), used_ + bytes)); }

char* JsonText::room(std::size_t bytes) {
  if (text_.size() - used_ < bytes + 1) grow(bytes + 1);
  if (comma_) text_[used_++] = ',';
  return text_.data() + used_;
}

JsonText& JsonText::wrote(const char* end, bool comma) {
  used_ = static_cast<std::size_t>(end - text_.data());
  comma_ = comma;
  return *this;
}

JsonText& JsonText::open(char bracket) {
  char* at = room(1);
  *at++ = bracket;
  return wrote(at, false);
}

JsonText& JsonText::close(char bracket) {
  comma_ = false;
  char* at = room(1);
  *at++ = bracket;
  return wrote(at);
}

JsonText& JsonText::key(std::string_view name) {
  char* at = room(name.size() + 3);
  *at++ = '"';
  at = std::copy(name.begin(), name.end(), at);
  *at++ = '"';
  *at++ = ':';
  return wrote(at, false);
}

JsonText& JsonText::raw(std::string_view json) {
  char* const at = room(json.size());
  return wrote(std::copy(json.begin(), json.end(), at));
}

JsonText& JsonText::value(std::string_view text) {
  const auto plain = [](unsigned char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; };
  if (!std::all_of(text.begin(), text.end(), plain)) {
    using nlohmann::json;
    return raw(json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace));
  }
  char* at = room(text.size() + 2);
  *at++ = '"';
  at = std::copy(text.begin(), text.end(), at);
  *at++ = '"';
  return wrote(at);
}

}  // namespace sublet
