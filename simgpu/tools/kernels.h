// SPDX-License-Identifier: Apache-2.0
// The built-in kernels: the names under which the simulated driver finds them in PTX text, their arguments,
// and what they compute, as C++ that the simulated driver may run and tests compare with. tools/kernels_ptx.h
// is the same in PTX, for a real card. A "word" is 8 bytes, little endian; pointers are 8-byte aligned, those
// of *16 16-byte aligned.
//
//   sublet_busy   (u64 nanoseconds)                              keeps the device busy for so long
//   sublet_fill   (ptr, u64 words, u64 seed)                     word i = random_word(seed, i)
//   sublet_check  (ptr, u64 words, u64 seed, ptr out)            out[0] += words that differ from that
//   sublet_hash   (ptr, u64 words, ptr out)                      out[0] += Σ word i · hash_factor^(i+1), mod
//   2^64 sublet_fill16 (ptr, u64 pairs, u64 low, u64 high)            words 2i = low, 2i+1 = high
//   sublet_check16(ptr, u64 pairs, u64 low, u64 high, ptr out)   out[0] += words that differ from that
//
// The hash is a polynomial so that a run of one 16-byte pattern has a closed form (hash_of_pattern): a sparse
// store hashes it, or zeroes, without making it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace simgpu::kernels {

inline constexpr const char* busy = "sublet_busy";
inline constexpr const char* fill = "sublet_fill";
inline constexpr const char* check = "sublet_check";
inline constexpr const char* hash = "sublet_hash";
inline constexpr const char* fill16 = "sublet_fill16";
inline constexpr const char* check16 = "sublet_check16";

// Returns the i-th word of the stream `seed`. The generator is counter-based, so that any thread can make any word.
constexpr std::uint64_t random_word(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed + (index + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

inline constexpr std::uint64_t hash_factor = 0xD1342543DE82EF95ULL;

constexpr std::uint64_t power(std::uint64_t base, std::uint64_t exponent) {
  std::uint64_t result = 1;
  for (; exponent != 0; exponent >>= 1, base *= base)
    if (exponent & 1) result *= base;
  return result;
}

// Returns Σ word i · factor^(first+i+1) of `words` stored words; the first has index `first` in the hashed range.
constexpr std::uint64_t hash_of_words(const std::uint64_t* word, std::uint64_t words, std::uint64_t first) {
  std::uint64_t sum = 0, weight = power(hash_factor, first + 1);
  for (std::uint64_t i = 0; i < words; ++i, weight *= hash_factor) sum += word[i] * weight;
  return sum;
}

// Returns the same sum for `pairs` times (low, high), in logarithmic time. Σ q^i for i < pairs is computed by halving,
// as 2^64 has no division.
constexpr std::uint64_t hash_of_pattern(std::uint64_t low, std::uint64_t high, std::uint64_t pairs,
                                        std::uint64_t first) {
  std::uint64_t sum = 0, q = hash_factor * hash_factor, span = 1, weight = 1;  // span = Σ q^i, i < 2^k
  for (std::uint64_t n = pairs; n != 0; n >>= 1) {
    if (n & 1) {
      sum += weight * span;
      weight *= q;
    }
    span *= 1 + q;
    q *= q;
  }
  return (low + high * hash_factor) * sum * power(hash_factor, first + 1);
}

}  // namespace simgpu::kernels
