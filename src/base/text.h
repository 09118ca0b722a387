// SPDX-License-Identifier: Apache-2.0
// Small helpers on text that several folders need. Pure functions, any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace sublet {

// Returns the text in a form that is safe on a terminal and in JSON. Bytes that are not UTF-8 and control characters
// become \xNN. Other characters that control a terminal or change the direction of text become \uNNNN.
std::string visible(std::string_view text);

// The same, cut at 200 bytes and then ending in "…". For messages that repeat a user's text.
std::string printable(std::string_view text);

// Whether visible() returns the text unchanged.
bool is_printable(std::string_view text);

// Whether the text can name a consumer or a lease: 1 to 64 printable characters of UTF-8, none of them '/'.
bool is_label(std::string_view text);

// Returns the character of a valid UTF-8 sequence, which must not be empty.
char32_t decode_utf8(std::string_view sequence);

// Returns the entry of `known` nearest to `word` by edit distance, or "" if no entry is near enough.
std::string nearest(std::string_view word, std::span<const std::string_view> known);

// Returns the name of a signal: "SIGTERM", or "signal 40" if the number has no name.
std::string signal_name(int number);

// Returns " – did you mean 'queue'?", or "".
std::string did_you_mean(std::string_view word, std::span<const std::string_view> known);

}  // namespace sublet
