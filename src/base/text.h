// SPDX-License-Identifier: Apache-2.0
// Small helpers on text that several folders need. Pure functions, any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace sublet {

// The text as it may be shown on a terminal and put into JSON, whatever a user typed: what is not UTF-8 and control
// characters as \xNN, other characters that steer a terminal or turn the direction of text as \uNNNN.
std::string visible(std::string_view text);

// The same, cut at 200 bytes (then ending in "…"): for messages that repeat what was given.
std::string printable(std::string_view text);

// Whether visible() would leave it as it is.
bool is_printable(std::string_view text);

// The character that one valid, not empty UTF-8 sequence stands for.
char32_t decode_utf8(std::string_view sequence);

// The entry of `known` that is nearest to `word` by edit distance, if one is near enough to have been meant; "" else.
std::string nearest(std::string_view word, std::span<const std::string_view> known);

// " – did you mean 'queue'?" or "".
std::string did_you_mean(std::string_view word, std::span<const std::string_view> known);

}  // namespace sublet
