// SPDX-License-Identifier: Apache-2.0
// What every Store promises, tried on each of them.
#include "store/memory_store.h"
#include "store/secret.h"
#include "store/sqlite_store.h"
#include "store/test_support.h"

#include <fmt/format.h>

namespace sublet::store::test {
namespace {

class MemoryHarness {
 public:
  void limit(Limits limits) { store_ = std::make_unique<MemoryStore>(limits); }
  Store& store() { return *store_; }
  void settle() { store_->pump(); }
  void restart() {}  // what is committed lives in the object

 private:
  std::unique_ptr<MemoryStore> store_ = std::make_unique<MemoryStore>();
};

class SqliteHarness {
 public:
  SqliteHarness() { restart(); }
  void limit(Limits limits) {
    limits_ = limits;
    restart();
  }
  Store& store() { return *store_; }
  void settle() {}
  void restart() {
    store_.reset();
    store_ = std::make_unique<SqliteStore>(dir_ / "store.db", limits_);
  }

 private:
  TempDir dir_;
  Limits limits_;
  std::unique_ptr<SqliteStore> store_;
};

// Without its thread, as simulations drive it.
class PumpedHarness {
 public:
  PumpedHarness() { restart(); }
  void limit(Limits limits) {
    limits_ = limits;
    restart();
  }
  Store& store() { return *store_; }
  void settle() {
    for (int round = 0; round < 8; ++round) store_->pump();  // what is too old goes in slices
  }
  void restart() {
    store_.reset();
    store_ = std::make_unique<SqliteStore>(dir_ / "store.db", limits_, [] {});
  }

 private:
  TempDir dir_;
  Limits limits_;
  std::unique_ptr<SqliteStore> store_;
};

template <typename Harness>
class StoreContract : public testing::Test {
 protected:
  Loaded open() {
    auto loaded = harness_.store().open(news_.events());
    EXPECT_TRUE(loaded) << loaded.error().detail;
    return loaded ? *loaded : Loaded{};
  }
  Loaded reopen() {
    harness_.store().close();
    harness_.restart();
    return open();
  }
  std::uint64_t intend(Batch batch) { return harness_.store().intend(std::move(batch)); }
  void commit(Batch batch) {
    const std::uint64_t sequence = intend(std::move(batch));
    harness_.settle();
    ASSERT_TRUE(news_.wait_for(sequence)) << news_.failure()->detail;
  }
  template <typename Question>
  auto ask(Question question) {
    auto answer = test::ask(harness_.store(), question, [this] { harness_.settle(); });
    EXPECT_TRUE(answer) << answer.error().detail;
    return *answer;
  }
  // Commits batches that change nothing, until pruning, which goes in slices, must have had its turn.
  void let_prune(Time now) {
    for (int i = 0; i < 20; ++i) commit({.now = now});
  }
  std::optional<core::Lease> stored(std::uint64_t id) {
    return ask([id](Reader& reader) { return reader.lease(LeaseId{id}); });
  }
  std::vector<std::uint64_t> ended_ids(std::size_t limit, std::optional<std::uint32_t> uid = {}) {
    std::vector<std::uint64_t> ids;
    for (const core::Lease& lease : ask([=](Reader& reader) { return reader.ended(limit, uid); })) {
      ids.push_back(lease.id.number);
    }
    return ids;
  }

  Harness harness_;
  News news_;
};

using Harnesses = testing::Types<MemoryHarness, SqliteHarness, PumpedHarness>;
class HarnessNames {
 public:
  template <typename T>
  static std::string GetName(int) {
    if (std::is_same_v<T, PumpedHarness>) return "SqlitePumped";
    return std::is_same_v<T, MemoryHarness> ? "Memory" : "Sqlite";
  }
};
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
  settling.exit_status = 0;  // a late report does not unsettle it
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
    batch.reasons = {{LeaseId{1}, {n}, "step", fmt::format("reason {}", n)}};
    if (n == 6) batch.reasons.push_back({LeaseId{2}, {n}, "other", "of another"});
    this->commit(batch);
  }
  this->reopen();
  const auto reasons = this->ask([](Reader& reader) { return reader.reasons(LeaseId{1}); });
  ASSERT_EQ(reasons.size(), 5U);
  EXPECT_EQ(reasons.front().text, "reason 8");
  EXPECT_EQ(reasons.back().text, "reason 12");
  EXPECT_EQ(reasons.back().at, Time{12});
  EXPECT_EQ(reasons.back().code, "step");
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
    batch.reasons.push_back({LeaseId{id}, {1}, "ended", "released"});
  }
  this->commit(batch);
  EXPECT_EQ(this->ended_ids(100).size(), 29U);
  this->let_prune({121});
  EXPECT_EQ(this->ended_ids(100).size(), 11U) << "21 … 30, and the one that settles";
  this->let_prune({1000});
  EXPECT_EQ(this->ended_ids(100), (std::vector<std::uint64_t>{2}));
  EXPECT_TRUE(this->ask([](Reader& reader) { return reader.reasons(LeaseId{30}); }).empty());
  const Loaded loaded = this->reopen();
  EXPECT_EQ(loaded.leases.size(), 2U);
  EXPECT_EQ(loaded.last_id, 30U);
}

TYPED_TEST(StoreContract, KeepsOnlySoManyEndedLeasesOfOneUser) {
  this->harness_.limit({.ended_per_user = 4});
  this->open();
  Batch batch{.now = {50}};
  // Numbered against the order of their ends, which is what counts.
  for (std::uint64_t id = 1; id <= 20; ++id) {
    core::Lease lease = ended_lease(id, {static_cast<std::int64_t>(100 - id)});
    lease.uid = id <= 10 ? 1000 : 2000;
    batch.changed.push_back(lease);
    batch.reasons.push_back({LeaseId{id}, {1}, "ended", "released"});
  }
  batch.changed.push_back(make_lease(30));
  this->commit(batch);
  this->let_prune({60});
  EXPECT_EQ(this->ended_ids(100), (std::vector<std::uint64_t>{1, 2, 3, 4, 11, 12, 13, 14}));
  EXPECT_TRUE(this->ask([](Reader& reader) { return reader.reasons(LeaseId{5}); }).empty());
  EXPECT_FALSE(this->ask([](Reader& reader) { return reader.reasons(LeaseId{4}); }).empty());

  EXPECT_EQ(this->reopen().last_id, 30U);  // counted anew; what has not settled stays, however many there are
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

TYPED_TEST(StoreContract, KeepsTheNewestMovesOfEachKindInTheirOrder) {
  this->open();
  Batch batch{.now = {1}};
  for (std::int64_t n = 1; n <= 40; ++n) {
    const auto move = n % 2 == 0 ? core::Move::pause : core::Move::resume;
    batch.learned.push_back({adas, core::PauseMethod::driver, move, {n * GiB, Duration(n)}, {n}});
  }
  const core::LearnedMove there{adas, core::PauseMethod::driver, core::Move::pause, {GiB, Duration(6)}, {41}, "GPU"};
  const core::LearnedMove other{bobs, core::PauseMethod::driver, core::Move::pause, {GiB, Duration(7)}, {42}};
  batch.learned.insert(batch.learned.end(), {there, other});
  this->commit(batch);
  const std::vector<core::LearnedMove> moves = this->reopen().moves;
  ASSERT_EQ(moves.size(), 34U) << "16 of each of two kinds, that on a device, and another user's";
  EXPECT_EQ(moves.front(), batch.learned[8]);
  EXPECT_EQ(moves[32], there);
  EXPECT_EQ(moves[33], other);
  EXPECT_TRUE(std::ranges::is_sorted(moves, {}, &core::LearnedMove::at));
}

TYPED_TEST(StoreContract, LearnsFromTheLastRunsOfEachConsumer) {
  this->open();
  Batch batch{.now = {1}};
  for (std::int64_t n = 1; n <= 20; ++n) {
    batch.changed.push_back(ended_lease(static_cast<std::uint64_t>(n), {n * 1000}, Duration(n)));
  }
  batch.changed[2].peak_used = 3 * GiB;  // of an older run, yet the peak
  batch.changed[19].peak_used = 2 * GiB;
  core::Lease killed = ended_lease(21, {21'000}, Duration(999));
  killed.exit_status = 137;
  killed.peak_used = 4 * GiB;
  core::Lease stopped = ended_lease(22, {22'000}, Duration(999));
  stopped.stop_requested = true;
  core::Lease cancelled = ended_lease(23, {23'000});
  cancelled.end_reason = core::EndReason::cancelled;
  cancelled.granted_at.reset();
  core::Lease nameless = ended_lease(24, {24'000});
  nameless.consumer = "";
  core::Lease other = ended_lease(25, {25'000}, Duration(77));
  other.consumer = "infer";
  core::Lease theirs = ended_lease(27, {15'000}, Duration(100));
  theirs.parked_for = Duration(9), theirs.parked_at = Time{14'997};  // it ended parked
  theirs.uid = 1001;
  batch.changed.insert(batch.changed.end(), {killed, stopped, cancelled, nameless, other, theirs, make_lease(26)});
  this->commit(batch);

  const Loaded loaded = this->reopen();
  ASSERT_EQ(loaded.history.size(), 3U);
  const ConsumerRuns& train = loaded.history.at(adas);
  ASSERT_EQ(train.runs.size(), 16U);
  EXPECT_EQ(train.runs.front(), Duration(5));
  EXPECT_EQ(train.runs.back(), Duration(20));
  EXPECT_EQ(train.peak_used, 4 * GiB);
  EXPECT_EQ(train.last_used, Time{21'000}) << "those that came later taught nothing";
  EXPECT_EQ(loaded.history.at({1000, "infer"}).runs, std::vector<Duration>{Duration(77)});
  EXPECT_EQ(loaded.history.at(bobs).runs, std::vector<Duration>{Duration(88)}) << "another user's";
}

TYPED_TEST(StoreContract, KeepsTheNewestEventsAndTheirNumbersOverARestart) {
  this->harness_.limit({.events = 16});
  this->open();
  for (std::uint64_t n = 1; n <= 40; ++n) {
    Batch batch;
    batch.now = {static_cast<std::int64_t>(n)};
    if (n == 1) batch.life = "5eed";
    batch.events = {std::make_shared<const LoggedEvent>(LoggedEvent{n, "lease", LeaseId{7}, std::to_string(n)})};
    this->commit(std::move(batch));
  }
  const Loaded loaded = this->reopen();
  EXPECT_EQ(loaded.last_event, 40U);
  EXPECT_EQ(loaded.life, "5eed");
  const auto all = this->ask([](Reader& reader) { return reader.events(0, 100); });
  EXPECT_GE(all.size(), 16U);
  EXPECT_LE(all.size(), 18U) << "a little more may stay: they go many at a time";
  EXPECT_EQ(all.back().number, 40U);
  EXPECT_EQ(all.back().lease, LeaseId{7});
  const auto some = this->ask([](Reader& reader) { return reader.events(37, 2); });
  ASSERT_EQ(some.size(), 2U);
  EXPECT_EQ(some[0].data, "38");
}

TYPED_TEST(StoreContract, KeepsAccessTokensUntilTheyAreRevoked) {
  this->open();
  const auto token = [](std::uint64_t number, std::optional<Time> expires) {
    return AccessToken{number, 1000, "ada", "ci", "submit", hash_secret("x"), Time{5}, expires};
  };
  this->commit({.tokens = {token(1, Time{9}), token(2, {}), token(3, {})}, .now = {1}});
  this->commit({.revoked = {3, 77}, .now = {2}});
  const Loaded loaded = this->reopen();
  ASSERT_EQ(loaded.tokens.size(), 2U);
  EXPECT_EQ(loaded.tokens[0].expires_at, Time{9});
  EXPECT_EQ(loaded.tokens[1].scope, "submit");
  EXPECT_FALSE(loaded.tokens[1].expires_at);
  EXPECT_EQ(loaded.last_token, 3U) << "a number is not given twice";
}

TYPED_TEST(StoreContract, KeepsGrantsUntilTheyAreTakenBackAndTheNewestRecords) {
  this->open();
  this->commit({.records = {{adas, {}, {1, 1}}, {{7, "x"}, {}, {0, 1}}, {adas, {}, {2, 2}}, {bobs, {}, {3, 3}}},
                .grants = {{1000, "ollama"}, {1000, "comfy"}, {1001, "ollama"}},
                .now = {1}});
  this->commit({.records = {{{7, "x"}, {}, {}}, {{7, "game"}, {}, {}}},
                .grants = {{1000, "ollama"}, {1000, "comfy", false}, {7, "nobody", false}},
                .now = {2}});
  const Loaded loaded = this->reopen();
  ASSERT_TRUE(loaded.grants.size() == 2 && loaded.grants[0].consumer == "ollama" && loaded.grants[1].uid == 1001U);
  EXPECT_EQ(loaded.records, std::vector<core::LearnedRecord>({{adas, {}, {2, 2}}, {bobs, {}, {3, 3}}}));
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
