// SPDX-License-Identifier: Apache-2.0
#include "base/ids.h"

#include <gtest/gtest.h>

#include <unordered_set>

namespace sublet {
namespace {

TEST(LeaseIdText, GoesThereAndBack) {
  for (const std::uint64_t number : {std::uint64_t{1}, std::uint64_t{7}, UINT64_MAX}) {
    const auto parsed = parse_lease_id(to_string(LeaseId{number}));
    ASSERT_TRUE(parsed);
    EXPECT_EQ(parsed->number, number);
  }
  EXPECT_EQ(to_string(LeaseId{7}), "lease-7");
  EXPECT_EQ(parse_lease_id("7")->number, 7U);
}

TEST(LeaseIdText, RefusesEverythingElse) {
  for (const char* text :
       {"", "lease-", "lease-0", "0", "-1", "lease--1", "+7", " 7", "7 ", "7a", "lease-7/", "LEASE-7", "lease-lease-7",
        "0x7", "1.0", "18446744073709551616", "lease-99999999999999999999999"}) {
    const auto refused = parse_lease_id(text);
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().code, Code::BadRequest);
    EXPECT_FALSE(refused.error().hint.empty());
  }
}

TEST(LeaseIdValue, IsNoneWhenZero) {
  EXPECT_FALSE(LeaseId{});
  EXPECT_TRUE(LeaseId{1});
  EXPECT_LT(LeaseId{1}, LeaseId{2});
}

TEST(ProcessRefValue, IsItsPidAndItsStart) {
  EXPECT_FALSE(ProcessRef{});
  const ProcessRef first{4321, 100}, recycled{4321, 200};
  EXPECT_NE(first, recycled) << "the same pid later is another process";
  EXPECT_EQ((std::unordered_set<ProcessRef>{first, recycled, first}.size()), 2U);
}

}  // namespace
}  // namespace sublet
