// SPDX-License-Identifier: Apache-2.0
#include "base/accounts.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>

namespace sublet {
namespace {

struct FakeEntry {
  std::size_t size = 0;
};

// As getgrnam_r() of an entry that takes so much memory.
auto entry_of(std::size_t needed) {
  return [needed](FakeEntry* entry, char* memory, std::size_t size, FakeEntry** found) {
    if (size < needed) return ERANGE;
    std::fill(memory, memory + needed, 'x');
    entry->size = needed;
    *found = entry;
    return 0;
  };
}

TEST(Accounts, AnEntryMayBeLong) {
  for (const std::size_t needed : {std::size_t{1}, std::size_t{4097}, std::size_t{1} << 20, largest_entry}) {
    const auto found = look_up<FakeEntry>(entry_of(needed));
    ASSERT_TRUE(found) << needed;
    EXPECT_EQ(found->entry.size, needed);
  }
  EXPECT_FALSE(look_up<FakeEntry>(entry_of(largest_entry + 1)));
}

TEST(Accounts, AskIsRepeatedWhenInterruptedAndGivenUpOnErrors) {
  int calls = 0;
  const auto interrupted = [&calls](FakeEntry* entry, char*, std::size_t, FakeEntry** found) {
    *found = entry;
    return ++calls < 3 ? EINTR : 0;
  };
  EXPECT_TRUE(look_up<FakeEntry>(interrupted));
  EXPECT_EQ(calls, 3);
  EXPECT_FALSE(look_up<FakeEntry>([](FakeEntry*, char*, std::size_t, FakeEntry**) { return EIO; }));
  EXPECT_FALSE(look_up<FakeEntry>([](FakeEntry*, char*, std::size_t, FakeEntry**) { return 0; }));  // there is none
}

TEST(Accounts, RootIsThereAndNobodyElseIs) {
  EXPECT_EQ(account_named(0), "root");
  EXPECT_EQ(group_named("root"), 0u);
  const auto groups = groups_of_account(0);
  EXPECT_NE(std::find(groups.begin(), groups.end(), 0u), groups.end());
  EXPECT_FALSE(group_named("no such group"));
  EXPECT_FALSE(account_named(4'000'000'000));
  EXPECT_TRUE(groups_of_account(4'000'000'000).empty());
}

}  // namespace
}  // namespace sublet
