// SPDX-License-Identifier: Apache-2.0
#include "store/key_set.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

namespace sublet::store {
namespace {

TEST(KeySet, TellsUsersAndKeysApart) {
  KeySet keys;
  keys.insert(1, "a");
  EXPECT_TRUE(keys.contains(1, "a"));
  EXPECT_FALSE(keys.contains(2, "a"));
  EXPECT_FALSE(keys.contains(1, "b"));
  EXPECT_FALSE(keys.contains(1, ""));
  EXPECT_FALSE(keys.contains(1, std::string("a\0", 2))) << "padding is not part of a key";
  keys.clear();
  EXPECT_FALSE(keys.contains(1, "a"));
}

TEST(KeySet, CountsEachInsert) {
  KeySet keys;
  keys.insert(1, "a");
  keys.insert(1, "a");
  keys.erase(1, "a");
  EXPECT_TRUE(keys.contains(1, "a"));
  keys.erase(1, "a");
  EXPECT_FALSE(keys.contains(1, "a"));
  keys.erase(1, "a");
  EXPECT_EQ(keys.size(), 0U);
}

TEST(KeySet, AgreesWithASetUnderRandomChange) {
  const unsigned seed = 20261121;
  std::mt19937 random(seed);
  KeySet keys;
  std::set<int> model;
  for (int i = 0; i < 200'000; ++i) {
    const int n = static_cast<int>(random() % 20'000);
    const std::string key = "key-" + std::to_string(n);
    ASSERT_EQ(keys.contains(7, key), model.contains(n)) << "seed " << seed << " step " << i;
    if (model.insert(n).second) {
      keys.insert(7, key);
    } else if (random() % 3 != 0) {
      model.erase(n);
      keys.erase(7, key);
    }
  }
  EXPECT_EQ(keys.size(), model.size());
}

}  // namespace
}  // namespace sublet::store
