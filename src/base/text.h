// SPDX-License-Identifier: Apache-2.0
// Small helpers on text that several folders need. Pure functions, any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace sublet {

// The text with control characters and bytes that are not UTF-8 shown as \xNN, cut at 200 characters: safe to print
// on a terminal and to put into JSON, whatever a user typed.
std::string printable(std::string_view text);

// Whether it is UTF-8 without control characters, whatever its length.
bool is_printable(std::string_view text);

// The entry of `known` that is nearest to `word` by edit distance, if one is near enough to have been meant; "" else.
std::string nearest(std::string_view word, std::span<const std::string_view> known);

// " – did you mean 'queue'?" or "".
std::string did_you_mean(std::string_view word, std::span<const std::string_view> known);

}  // namespace sublet
