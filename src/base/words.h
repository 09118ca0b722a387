// SPDX-License-Identifier: Apache-2.0
// Tables of the words for the values of an enum.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <utility>

namespace sublet {

template <typename Enum, std::size_t N>
using Words = std::array<std::pair<Enum, std::string_view>, N>;

template <typename Enum, std::size_t N>
constexpr std::string_view word_of(const Words<Enum, N>& words, Enum value) {
  for (const auto& [known, word] : words)
    if (known == value) return word;
  return {};
}

template <typename Enum, std::size_t N>
constexpr std::optional<Enum> value_of(const Words<Enum, N>& words, std::string_view text) {
  for (const auto& [known, word] : words)
    if (word == text) return known;
  return std::nullopt;
}

}  // namespace sublet
