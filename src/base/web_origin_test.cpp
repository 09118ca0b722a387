// SPDX-License-Identifier: Apache-2.0
#include "base/web_origin.h"

#include <gtest/gtest.h>

namespace sublet {
namespace {

TEST(WebOrigin, OnlyLoopbackNamesAreThisMachine) {
  for (const char* host : {"127.0.0.1", "127.0.0.1:4711", "localhost", "localhost:80", "[::1]", "[::1]:4711"})
    EXPECT_TRUE(is_this_machine(host)) << host;
  for (const char* host : {"", "evil.example", "evil.example:4711", "127.0.0.1.evil.example", "localhost.evil.example",
                           "[::2]:80", "127.0.0.2", "0.0.0.0:4711"})
    EXPECT_FALSE(is_this_machine(host)) << host;
}

TEST(WebOrigin, AnOriginIsTheHostWithItsPort) {
  EXPECT_TRUE(is_own_origin("", "127.0.0.1:4711"));
  EXPECT_TRUE(is_own_origin("http://127.0.0.1:4711", "127.0.0.1:4711"));
  for (const char* origin : {"null", "http://127.0.0.1:4712", "http://127.0.0.1", "https://127.0.0.1:4711",
                             "http://localhost:4711", "http://evil.example", "http://127.0.0.1:4711.evil.example"})
    EXPECT_FALSE(is_own_origin(origin, "127.0.0.1:4711")) << origin;
}

}  // namespace
}  // namespace sublet
