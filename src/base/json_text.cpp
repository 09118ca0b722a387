// SPDX-License-Identifier: Apache-2.0
#include "base/json_text.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace sublet {

void JsonText::separate() {
  if (comma_) text_ += ',';
  comma_ = true;
}

JsonText& JsonText::open(char bracket) {
  separate();
  text_ += bracket;
  comma_ = false;
  return *this;
}

JsonText& JsonText::close(char bracket) {
  text_ += bracket;
  comma_ = true;
  return *this;
}

JsonText& JsonText::key(std::string_view name) {
  separate();
  text_ += '"';
  text_ += name;
  text_ += "\":";
  comma_ = false;
  return *this;
}

JsonText& JsonText::raw(std::string_view json) {
  separate();
  text_ += json;
  return *this;
}

JsonText& JsonText::value(std::string_view text) {
  const auto plain = [](unsigned char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; };
  if (!std::all_of(text.begin(), text.end(), plain)) {
    using nlohmann::json;
    return raw(json(std::string(text)).dump(-1, ' ', false, json::error_handler_t::replace));
  }
  separate();
  text_ += '"';
  text_ += text;
  text_ += '"';
  return *this;
}

}  // namespace sublet
