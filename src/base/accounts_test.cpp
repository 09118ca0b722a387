// SPDX-License-Identifier: Apache-2.0
#include "base/accounts.h"

#include <gtest/gtest.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace sublet {
namespace {

struct FakeEntry {
  std::size_t size = 0;
};

// Acts like getgrnam_r() for an entry that needs `needed` bytes of memory.
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
    ASSERT_TRUE(found && *found) << needed;
    EXPECT_EQ((*found)->entry.size, needed);
  }
  EXPECT_FALSE(look_up<FakeEntry>(entry_of(largest_entry + 1)));
}

TEST(Accounts, AskIsRepeatedWhenInterrupted) {
  int calls = 0;
  const auto interrupted = [&calls](FakeEntry* entry, char*, std::size_t, FakeEntry** found) {
    *found = entry;
    return ++calls < 3 ? EINTR : 0;
  };
  EXPECT_TRUE(look_up<FakeEntry>(interrupted).value());
  EXPECT_EQ(calls, 3);
}

TEST(Accounts, WhatCannotBeAskedIsNotTakenForMissing) {
  const auto says = [](int error) {
    return look_up<FakeEntry>([error](FakeEntry*, char*, std::size_t, FakeEntry**) { return error; });
  };
  for (const int error : {EIO, EMFILE, ENFILE, ENOMEM, ECONNREFUSED, EAGAIN}) EXPECT_FALSE(says(error)) << error;
  for (const int error : {0, ENOENT, ESRCH, EBADF, EPERM}) {
    ASSERT_TRUE(says(error)) << error;
    EXPECT_FALSE(*says(error)) << error;
  }
}

TEST(Accounts, WithoutDescriptorsNothingIsSaidOfAnybody) {
  // Some sources answer for root without reading a file, so the test does not ask for root. The first call loads all
  // libraries that the lookup needs.
  const auto told = [] { return group_named("no such group") || account_named(4'000'000'000) || groups_of_account(0); };
  ASSERT_TRUE(told());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool told_without = told();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(told_without);
}

TEST(Accounts, RootIsThereAndNobodyElseIs) {
  EXPECT_EQ(account_named(0).value(), "root");
  EXPECT_EQ(group_named("root").value(), 0u);
  const auto groups = groups_of_account(0).value();
  EXPECT_NE(std::find(groups.begin(), groups.end(), 0u), groups.end());
  EXPECT_FALSE(group_named("no such group").value());
  EXPECT_FALSE(account_named(4'000'000'000).value());
  EXPECT_TRUE(groups_of_account(4'000'000'000).value().empty());
}

}  // namespace
}  // namespace sublet
