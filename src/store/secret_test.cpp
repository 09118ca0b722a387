// SPDX-License-Identifier: Apache-2.0
#include "store/secret.h"

#include <gtest/gtest.h>

namespace sublet::store {
namespace {

TEST(Secret, IsHashedAsEverybodyHashes) {
  EXPECT_EQ(hash_secret("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Secret, IsKnownByItsHashAlone) {
  const std::string secret = random_hex(16);
  EXPECT_EQ(secret.size(), 32U);
  EXPECT_TRUE(is_secret(secret, hash_secret(secret)));
  EXPECT_FALSE(is_secret(secret + "0", hash_secret(secret)));
  EXPECT_FALSE(is_secret(secret, secret)) << "what is stored is not the secret";
  EXPECT_FALSE(is_secret("", ""));
  EXPECT_NE(random_hex(16), secret);
}

TEST(Secret, IsMadeAgainByWhoHasTheKey) {
  // The first case of RFC 4231, cut to 128 bits.
  EXPECT_EQ(derive_secret(std::string(20, '\x0b'), "Hi There"), "b0344c61d8db38535ca8afceaf0bf12b");
  EXPECT_NE(derive_secret("key", "salt"), derive_secret("key", "other"));
  EXPECT_NE(derive_secret("key", "salt"), derive_secret("another", "salt"));
}

}  // namespace
}  // namespace sublet::store
