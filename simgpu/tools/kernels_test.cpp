// SPDX-License-Identifier: Apache-2.0
#include "simgpu/tools/kernels.h"

#include "simgpu/tools/kernels_ptx.h"
#include "simgpu/tools/load.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace simgpu {
namespace {

TEST(Kernels, HashOfAPatternIsTheHashOfItsWords) {
  for (const std::uint64_t first : {0ULL, 5ULL, 1ULL << 33}) {
    for (const std::uint64_t pairs : {0ULL, 1ULL, 2ULL, 3ULL, 255ULL, 256ULL, 1000ULL}) {
      std::vector<std::uint64_t> words;
      for (std::uint64_t i = 0; i < pairs; ++i) {
        words.push_back(0x0123456789abcdefULL);
        words.push_back(77);
      }
      EXPECT_EQ(kernels::hash_of_pattern(0x0123456789abcdefULL, 77, pairs, first),
                kernels::hash_of_words(words.data(), words.size(), first))
          << pairs << " pairs from word " << first;
    }
  }
}

TEST(Kernels, HashOfARangeIsTheSumOfItsParts) {
  std::vector<std::uint64_t> words(100);
  for (std::uint64_t i = 0; i < words.size(); ++i) words[i] = kernels::random_word(9, i);
  EXPECT_EQ(kernels::hash_of_words(words.data(), 100, 0),
            kernels::hash_of_words(words.data(), 37, 0) + kernels::hash_of_words(words.data() + 37, 63, 37));
}

TEST(Kernels, TextNamesThemAll) {
  const std::string text = kernels::ptx;
  for (const char* name :
       {kernels::busy, kernels::fill, kernels::check, kernels::hash, kernels::fill16, kernels::check16})
    EXPECT_NE(text.find(std::string(".visible .entry ") + name + "("), std::string::npos) << name;
}

TEST(Pieces, DifferByNumberAndSeedAndStayInside) {
  std::set<std::uint64_t> seen;
  for (std::uint64_t number = 0; number < 1000; ++number) {
    const auto piece = tools::make_piece(3, number, 0, tools::piece_bytes);
    EXPECT_EQ(piece.page_offset % tools::page_bytes, 0U);
    EXPECT_LE(piece.page_offset + tools::page_bytes, piece.bytes);
    EXPECT_TRUE(seen.insert(piece.low).second && seen.insert(piece.high).second && seen.insert(piece.page_seed).second);
  }
  EXPECT_EQ(tools::make_piece(3, 0, 0, tools::page_bytes).page_offset, 0U);
  EXPECT_NE(tools::make_piece(3, 0, 0, tools::piece_bytes).low, tools::make_piece(4, 0, 0, tools::piece_bytes).low);
}

}  // namespace
}  // namespace simgpu
