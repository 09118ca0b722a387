// SPDX-License-Identifier: Apache-2.0
// Writes JSON as text in one pass, without a tree. For text that is written thousands of times a second, where a tree
// takes most of the time. Values; any thread.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sublet {

class JsonText {
 public:
  // `expected`: the expected size in bytes, so that the text need not be moved as it grows.
  explicit JsonText(std::size_t expected = 0) : text_(expected, '\0') {}
  JsonText& begin_object() { return open('{'); }
  JsonText& end_object() { return close('}'); }
  JsonText& begin_array() { return open('['); }
  JsonText& end_array() { return close(']'); }
  JsonText& key(std::string_view name);  // plain ASCII without quotes

  JsonText& value(std::string_view text);  // replaces text that is not UTF-8
  JsonText& value(const char* text) { return value(std::string_view(text)); }
  JsonText& value(const std::string& text) { return value(std::string_view(text)); }
  JsonText& value(std::same_as<bool> auto truth) { return raw(truth ? "true" : "false"); }
  JsonText& value(std::nullptr_t) { return raw("null"); }
  JsonText& value(std::integral auto number) requires(!std::same_as<decltype(number), bool>) {
    char* const end = room(digits_at_most);
    return wrote(std::to_chars(end, end + digits_at_most, number).ptr);
  }
  template <typename T>
  JsonText& value(const std::optional<T>& maybe) {
    return maybe ? value(*maybe) : value(nullptr);
  }
  JsonText& raw(std::string_view json);  // a value that is JSON already

  template <typename T>
  JsonText& field(std::string_view name, const T& content) {
    key(name);
    return value(content);
  }

  // The text so far. It is complete when every begun object and array has been ended.
  std::string_view text() const { return {text_.data(), used_}; }
  std::string take() {
    text_.resize(used_);
    return std::move(text_);
  }

 private:
  static constexpr std::size_t digits_at_most = 24;

  JsonText& open(char bracket);
  JsonText& close(char bracket);
  // Returns where a value or key of at most `bytes` bytes is to be written, after a comma if one is needed.
  char* room(std::size_t bytes);
  JsonText& wrote(const char* end, bool comma = true);  // the text ends here
  void grow(std::size_t bytes);

  // Longer than the written part, so that each piece is copied once to its place.
  std::string text_;
  std::size_t used_ = 0;
  bool comma_ = false;  // the next value or key needs a comma before it
};

}  // namespace sublet
