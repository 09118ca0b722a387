// SPDX-License-Identifier: Apache-2.0
#include "store/faulty_store.h"

#include "store/memory_store.h"
#include "store/sqlite_store.h"
#include "store/test_support.h"

namespace sublet::store::test {
namespace {

const Error planned{Code::Unavailable, "planned", {}};

class Faulty : public testing::TestWithParam<FaultyStore::Fate> {};

TEST_P(Faulty, FailsTheCommitAndIsUsableAfterOpeningAgain) {
  TempDir dir;
  SqliteStore inner(dir / "store.db");
  FaultyStore store(inner);
  News news;
  ASSERT_TRUE(store.open(news.events()));
  store.fail_commit(3, GetParam(), planned);
  const std::uint64_t first = store.intend(step(1));
  const std::uint64_t second = store.intend(step(2));
  const std::uint64_t third = store.intend(step(3));
  const std::uint64_t fourth = store.intend(step(4));
  EXPECT_EQ(fourth, first + 3);
  EXPECT_FALSE(news.wait_for(third));
  EXPECT_EQ(news.failure()->detail, "planned");
  EXPECT_EQ(news.committed(), second) << "what was committed before is told, and nothing after";
  const auto refused = ask(store, [](Reader& reader) { return reader.lease(LeaseId{1}); });
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().detail, "planned");

  News later;
  const auto loaded = store.open(later.events());
  ASSERT_TRUE(loaded);
  const std::uint64_t kept = GetParam() == FaultyStore::Fate::kept ? 3 : 2;
  EXPECT_EQ(*count_steps(store, *loaded), kept);
  EXPECT_TRUE(later.wait_for(store.intend(step(kept + 1))));
}

INSTANTIATE_TEST_SUITE_P(Fates, Faulty, testing::Values(FaultyStore::Fate::lost, FaultyStore::Fate::kept),
                         [](const auto& test) { return test.param == FaultyStore::Fate::lost ? "Lost" : "Kept"; });

TEST(MemoryStoreTest, ACrashLosesWhatWasNotCommitted) {
  MemoryStore store;
  News news;
  ASSERT_TRUE(store.open(news.events()));
  store.intend(step(1));
  store.pump();
  const std::uint64_t lost = store.intend(step(2));
  EXPECT_EQ(store.backlog().batches, 1U);
  store.crash();
  const auto loaded = store.open(news.events());
  store.pump();
  EXPECT_EQ(loaded->leases.size(), 2U);
  EXPECT_LT(news.committed(), lost);
}

TEST(MemoryStoreTest, WakesWhoeverPumps) {
  int woken = 0;
  MemoryStore store({}, [&] { ++woken; });
  ASSERT_TRUE(store.open({}));
  store.intend(step(1));
  store.read([](Reader&) {});
  EXPECT_EQ(woken, 2);
  store.pump();
  EXPECT_EQ(woken, 2);
}

}  // namespace
}  // namespace sublet::store::test
