// SPDX-License-Identifier: Apache-2.0
// Promises of every Store about leases, answers and their numbers, tested on each store.
#include "store/contract.h"

#include <fmt/format.h>

namespace sublet::store::test {
namespace {

TYPED_TEST_SUITE(StoreContract, Harnesses, HarnessNames);

TYPED_TEST(StoreContract, StartsEmpty) {
  const Loaded loaded = this->open();
  EXPECT_TRUE(loaded.leases.empty());
  EXPECT_TRUE(loaded.history.empty());
  EXPECT_EQ(loaded.last_id, 0U);
  EXPECT_EQ(loaded.last_time, Time{});
  EXPECT_EQ(loaded.boot_id, "");
}

TYPED_TEST(StoreContract, KeepsEveryFieldOfALeaseOverARestart) {
  this->open();
  this->commit({.changed = {full_lease(), make_lease(8)}, .now = {10}});
  const Loaded loaded = this->reopen();
  ASSERT_EQ(loaded.leases.size(), 2U);
  EXPECT_EQ(describe(loaded.leases[0]), describe(full_lease()));
  EXPECT_EQ(describe(loaded.leases[1]), describe(make_lease(8)));
  ASSERT_TRUE(this->stored(7));
  EXPECT_EQ(describe(*this->stored(7)), describe(full_lease()));
  EXPECT_FALSE(this->stored(9));
}

TYPED_TEST(StoreContract, NumbersBatchesOneByOneAndCommitsAllUpToTheOneTold) {
  this->open();
  const std::uint64_t first = this->intend(step(1));
  std::uint64_t last = first;
  for (std::uint64_t n = 2; n <= 40; ++n) {
    last = this->intend(step(n));
    EXPECT_EQ(last, first + n - 1);
  }
  this->harness_.settle();
  ASSERT_TRUE(this->news_.wait_for(last));
  const auto second = this->reopen();
  EXPECT_EQ(second.leases.size(), 41U);
}

TYPED_TEST(StoreContract, TheLaterValueOfALeaseWins) {
  this->open();
  core::Lease early = make_lease(1), late = make_lease(1);
  late.generation = 2;
  this->commit({.changed = {early, late}, .now = {1}});
  late.generation = 3;
  this->commit({.changed = {late}, .now = {2}});
  EXPECT_EQ(this->stored(1)->generation, 3U);
}

TYPED_TEST(StoreContract, EveryFieldOfALivingLeaseMayChange) {
  this->open();
  core::Lease changed = full_lease();
  changed.ended_at.reset();
  this->commit({.changed = {make_lease(7)}, .now = {1}});
  this->commit({.changed = {changed}, .now = {2}});
  EXPECT_EQ(describe(*this->stored(7)), describe(changed));
  const Loaded loaded = this->reopen();  // updates rows that an earlier run stored
  ASSERT_EQ(loaded.leases.size(), 1U);
  EXPECT_EQ(describe(loaded.leases[0]), describe(changed));
  this->commit({.changed = {make_lease(7)}, .now = {3}});
  EXPECT_EQ(describe(*this->stored(7)), describe(make_lease(7)));
  core::Lease ended = ended_lease(7, {4});
  this->commit({.changed = {ended}, .now = {4}});
  EXPECT_EQ(describe(*this->stored(7)), describe(ended));
  this->reopen();
  EXPECT_EQ(this->ended_ids(9), (std::vector<std::uint64_t>{7}));
}

TYPED_TEST(StoreContract, AReadSeesWhatWasIntendedBeforeIt) {
  this->open();
  for (std::uint64_t n = 1; n <= 50; ++n) {
    this->intend({.changed = {make_lease(n)}, .now = {1}});
    EXPECT_TRUE(this->stored(n)) << n;
  }
}

TYPED_TEST(StoreContract, AnEndedLeaseIsLoadedUntilItIsMeasuredGone) {
  this->open();
  core::Lease settling = ended_lease(1, {100});
  settling.had_process = true;
  core::Lease never_ran = ended_lease(2, {100});
  this->commit({.changed = {settling, never_ran}, .now = {100}});
  Loaded loaded = this->reopen();
  ASSERT_EQ(loaded.leases.size(), 1U);
  EXPECT_EQ(loaded.leases[0].id.number, 1U);

  this->commit({.settled = {LeaseId{1}}, .now = {200}});
  EXPECT_TRUE(this->reopen().leases.empty());
  settling.exit_status = 0;  // a late report does not make it unsettled
  this->commit({.changed = {settling}, .now = {300}});
  EXPECT_TRUE(this->reopen().leases.empty());
  EXPECT_EQ(this->stored(1)->exit_status, 0);
}

TYPED_TEST(StoreContract, ALiveLeaseCannotBeSettled) {
  this->open();
  this->commit({.changed = {make_lease(1)}, .settled = {LeaseId{1}}, .now = {1}});
  EXPECT_EQ(this->reopen().leases.size(), 1U);
}

TYPED_TEST(StoreContract, NumbersAndTimeOnlyGrow) {
  this->open();
  this->commit({.changed = {make_lease(41)}, .boot_id = "boot-a", .now = {500}});
  this->commit({.changed = {make_lease(7)}, .now = {400}});
  Loaded loaded = this->reopen();
  EXPECT_EQ(loaded.last_id, 41U);
  EXPECT_EQ(loaded.last_time, Time{500});
  EXPECT_EQ(loaded.boot_id, "boot-a");
  this->commit({.boot_id = "boot-b", .now = {600}});
  EXPECT_EQ(this->reopen().boot_id, "boot-b");
}

TYPED_TEST(StoreContract, ListsEndedLeasesNewestFirst) {
  this->open();
  Batch batch{.changed = {ended_lease(1, {300}), ended_lease(2, {100}), ended_lease(3, {200}), make_lease(4)},
              .now = {300}};
  batch.changed[2].uid = 7;
  this->commit(batch);
  EXPECT_EQ(this->ended_ids(10), (std::vector<std::uint64_t>{1, 3, 2}));
  EXPECT_EQ(this->ended_ids(2), (std::vector<std::uint64_t>{1, 3}));
  EXPECT_EQ(this->ended_ids(10, 1000), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(this->ended_ids(10, 7), (std::vector<std::uint64_t>{3}));
  EXPECT_TRUE(this->ended_ids(10, 8).empty());
}

TYPED_TEST(StoreContract, FindsTheNewestLeaseOfATag) {
  this->open();
  Batch batch{.changed = {ended_lease(1, {100}), ended_lease(2, {200}), ended_lease(3, {300}), ended_lease(4, {400})},
              .now = {400}};
  for (core::Lease& lease : batch.changed) lease.tag = "nightly";
  batch.changed[2].uid = 7;
  batch.changed[3].tag = "";
  this->commit(batch);
  const auto find = [&](const char* tag, std::optional<std::uint32_t> uid) {
    const auto found = this->ask([=](Reader& reader) { return reader.by_tag(tag, uid); });
    return found ? found->id.number : 0;
  };
  EXPECT_EQ(find("nightly", std::nullopt), 3U);
  EXPECT_EQ(find("nightly", 1000), 2U);
  EXPECT_EQ(find("nightly", 8), 0U);
  EXPECT_EQ(find("", std::nullopt), 0U);
  EXPECT_EQ(find("night", std::nullopt), 0U);
}

TYPED_TEST(StoreContract, KeepsTheNewestReasonsOfALease) {
  this->harness_.limit({.reasons_per_lease = 5});
  this->open();
  for (int n = 1; n <= 12; ++n) {
    Batch batch{.now = {n}};
    if (n == 1) batch.changed = {make_lease(1), make_lease(2)};
    batch.reasons = {{LeaseId{1}, {n}, core::ReasonKind::granted, core::args("free", Bytes{n})}};
    if (n == 6) batch.reasons.push_back({LeaseId{2}, {n}, core::ReasonKind::queued});
    this->commit(batch);
  }
  this->reopen();
  const auto reasons = this->ask([](Reader& reader) { return reader.reasons(LeaseId{1}); });
  ASSERT_EQ(reasons.size(), 5U);
  EXPECT_EQ(reasons.front().args.bytes("free"), Bytes{8});
  EXPECT_EQ(reasons.back().args.bytes("free"), Bytes{12});
  EXPECT_EQ(reasons.back().at, Time{12});
  EXPECT_EQ(reasons.back().kind, core::ReasonKind::granted);
  EXPECT_EQ(reasons.back().lease, LeaseId{1});
  EXPECT_EQ(this->ask([](Reader& reader) { return reader.reasons(LeaseId{2}); }).size(), 1U);
  EXPECT_TRUE(this->ask([](Reader& reader) { return reader.reasons(LeaseId{3}); }).empty());
}

TYPED_TEST(StoreContract, RemembersTheFirstAnswerOverARestart) {
  this->open();
  const Remembered answer{1000, "key-1", "00ff", 201, R"({"id":"lease-1","token":"x"})", {5}};
  EXPECT_FALSE(this->harness_.store().maybe_remembered(1000, "key-1"));
  this->intend({.remembered = answer, .now = {5}});
  EXPECT_TRUE(this->harness_.store().maybe_remembered(1000, "key-1")) << "queued counts";
  Remembered second = answer;
  second.body = "another";
  this->commit({.remembered = second, .now = {6}});
  this->reopen();
  EXPECT_TRUE(this->harness_.store().maybe_remembered(1000, "key-1"));
  EXPECT_FALSE(this->harness_.store().maybe_remembered(1001, "key-1")) << "keys are each user's own";
  EXPECT_FALSE(this->harness_.store().maybe_remembered(1000, "key-2"));
  const auto found = this->ask([](Reader& reader) { return reader.remembered(1000, "key-1"); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->uid, answer.uid);
  EXPECT_EQ(found->key, answer.key);
  EXPECT_EQ(found->fingerprint, answer.fingerprint);
  EXPECT_EQ(found->status, answer.status);
  EXPECT_EQ(found->body, answer.body);
  EXPECT_EQ(found->at, answer.at);
  EXPECT_FALSE(this->ask([](Reader& reader) { return reader.remembered(1001, "key-1"); }));
}

TYPED_TEST(StoreContract, ForgetsOldAnswersAndTheOldestOfTooMany) {
  this->harness_.limit({.keep_remembered = Duration(100), .remembered_rows = 5});
  this->open();
  const auto remember = [&](int n, Time at) {
    this->commit({.remembered = Remembered{1, std::to_string(n), "f", 200, "b", at}, .now = at});
  };
  const auto known = [&] {
    std::string keys;
    for (int n = 1; n <= 8; ++n) {
      const std::string key = std::to_string(n);
      const bool there = this->ask([=](Reader& reader) { return reader.remembered(1, key); }).has_value();
      EXPECT_EQ(there, this->harness_.store().maybe_remembered(1, key)) << n;
      if (there) keys += key;
    }
    return keys;
  };
  for (int n = 1; n <= 8; ++n) remember(n, {n});
  EXPECT_EQ(known(), "45678");
  this->let_prune({106});
  EXPECT_EQ(known(), "678");
  this->reopen();
  EXPECT_EQ(known(), "678");
  this->let_prune({1000});
  EXPECT_EQ(known(), "");
}

TYPED_TEST(StoreContract, ForgetsOldEndedLeasesButNoNumber) {
  this->harness_.limit({.keep_ended = Duration(100)});
  this->open();
  core::Lease settling = ended_lease(2, {2});
  settling.had_process = true;
  Batch batch{.changed = {make_lease(1), settling}, .now = {50}};
  for (std::uint64_t id = 3; id <= 30; ++id) {
    batch.changed.push_back(ended_lease(id, {static_cast<std::int64_t>(id)}));
    batch.reasons.push_back({LeaseId{id}, {1}, core::ReasonKind::released_by_owner});
  }
  this->commit(batch);
  const auto forgotten = [&] { return this->ask([](Reader& reader) { return reader.forgotten(); }); };
  EXPECT_EQ(this->ended_ids(100).size(), 29U);
  EXPECT_EQ(forgotten(), Time{});
  this->let_prune({121});
  EXPECT_EQ(this->ended_ids(100).size(), 11U) << "21 … 30, and the one that settles";
  EXPECT_EQ(forgotten(), Time{20});
  this->let_prune({1000});
  EXPECT_EQ(this->ended_ids(100), (std::vector<std::uint64_t>{2}));
  EXPECT_TRUE(this->ask([](Reader& reader) { return reader.reasons(LeaseId{30}); }).empty());
  const Loaded loaded = this->reopen();
  EXPECT_EQ(loaded.leases.size(), 2U);
  EXPECT_EQ(loaded.last_id, 30U);
  EXPECT_EQ(forgotten(), Time{30});
}

TYPED_TEST(StoreContract, KeepsOnlySoManyEndedLeasesOfOneUser) {
  this->harness_.limit({.ended_per_user = 4});
  this->open();
  Batch batch{.now = {50}};
  // The ids are opposite to the order of the ends; the order of the ends counts.
  for (std::uint64_t id = 1; id <= 20; ++id) {
    core::Lease lease = ended_lease(id, {static_cast<std::int64_t>(100 - id)});
    lease.uid = id <= 10 ? 1000 : 2000;
    batch.changed.push_back(lease);
    batch.reasons.push_back({LeaseId{id}, {1}, core::ReasonKind::released_by_owner});
  }
  batch.changed.push_back(make_lease(30));
  this->commit(batch);
  this->let_prune({60});
  EXPECT_EQ(this->ended_ids(100), (std::vector<std::uint64_t>{1, 2, 3, 4, 11, 12, 13, 14}));
  EXPECT_EQ(this->ask([](Reader& reader) { return reader.forgotten(); }), Time{95}) << "of lease 5";
  EXPECT_TRUE(this->ask([](Reader& reader) { return reader.reasons(LeaseId{5}); }).empty());
  EXPECT_FALSE(this->ask([](Reader& reader) { return reader.reasons(LeaseId{4}); }).empty());

  EXPECT_EQ(this->reopen().last_id, 30U);  // counted again; unsettled leases stay, however many there are
  Batch more{.now = {70}};
  for (std::uint64_t id = 41; id <= 46; ++id) {
    core::Lease lease = ended_lease(id, {static_cast<std::int64_t>(100 + id)});
    lease.uid = 1000;
    lease.had_process = true;
    more.changed.push_back(lease);
  }
  this->commit(more);
  this->let_prune({80});
  EXPECT_EQ(this->ended_ids(100), (std::vector<std::uint64_t>{46, 45, 44, 43, 42, 41, 11, 12, 13, 14}));
  this->commit({.settled = {LeaseId{41}, LeaseId{42}, LeaseId{43}}, .now = {90}});
  batch.changed = {ended_lease(50, {200})};
  batch.changed[0].uid = 1000;
  this->commit({.changed = batch.changed, .now = {91}});
  this->let_prune({92});
  EXPECT_EQ(this->ended_ids(100), (std::vector<std::uint64_t>{50, 46, 45, 44, 11, 12, 13, 14}));
}

TYPED_TEST(StoreContract, AClosedStoreAnswersReadsWithAnError) {
  this->open();
  this->harness_.store().close();
  const auto answer = test::ask(this->harness_.store(), [](Reader& reader) { return reader.lease(LeaseId{1}); });
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, Code::Unavailable);
  const std::uint64_t dropped = this->intend(step(1));
  this->harness_.settle();
  EXPECT_LT(this->news_.committed(), dropped);
  EXPECT_TRUE(this->open().leases.empty());
}

TYPED_TEST(StoreContract, CommitsWhatIsQueuedWhenItCloses) {
  this->open();
  for (std::uint64_t n = 1; n <= 100; ++n) this->intend(step(n));
  EXPECT_EQ(this->reopen().leases.size(), 101U);
}

}  // namespace
}  // namespace sublet::store::test
