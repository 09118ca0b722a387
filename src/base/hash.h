// SPDX-License-Identifier: Apache-2.0
// 64 bits of FNV-1a: tells texts apart, and is no defence against an attacker. Pure, any thread.
#pragma once

#include <cstdint>
#include <string_view>

namespace sublet {

inline constexpr std::uint64_t fnv1a_start = 0xcbf29ce484222325ULL;

// Returns the hash of the text; `before`: the hash of the text before it.
constexpr std::uint64_t fnv1a(std::string_view text, std::uint64_t before = fnv1a_start) {
  for (const char c : text) before = (before ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return before;
}

}  // namespace sublet
