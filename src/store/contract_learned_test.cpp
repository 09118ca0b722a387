// SPDX-License-Identifier: Apache-2.0
// Promises of every Store about learned records, events, tokens and grants, tested on each store.
#include "store/contract.h"
#include "store/secret.h"

#include <fmt/format.h>

namespace sublet::store::test {
namespace {

template <typename Harness>
class StoreContractLearned : public StoreContract<Harness> {};
TYPED_TEST_SUITE(StoreContractLearned, Harnesses, HarnessNames);

TYPED_TEST(StoreContractLearned, KeepsTheNewestMovesOfEachKindInTheirOrder) {
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

TYPED_TEST(StoreContractLearned, LearnsFromTheLastRunsOfEachConsumer) {
  this->open();
  Batch batch{.now = {1}};
  for (std::int64_t n = 1; n <= 20; ++n) {
    batch.changed.push_back(ended_lease(static_cast<std::uint64_t>(n), {n * 1000}, Duration(n)));
  }
  batch.changed[2].peak_used = 3 * GiB;  // of an older run, but the greatest value
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
  core::Lease anything = ended_lease(28, {25'000}, Duration(9));
  anything.consumer = "bash", anything.nameless = true;
  anything.peak_used = GiB;
  core::Lease other = ended_lease(25, {25'000}, Duration(77));
  other.consumer = "infer";
  core::Lease theirs = ended_lease(27, {15'000}, Duration(100));
  theirs.parked_for = Duration(9), theirs.parked_at = Time{14'997};  // it ended while it was paused
  theirs.uid = 1001;
  batch.changed.insert(batch.changed.end(),
                       {killed, stopped, cancelled, nameless, other, theirs, anything, make_lease(26)});
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

TYPED_TEST(StoreContractLearned, KeepsTheNewestEventsAndTheirNumbersOverARestart) {
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

TYPED_TEST(StoreContractLearned, KeepsAccessTokensUntilTheyAreRevoked) {
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

TYPED_TEST(StoreContractLearned, KeepsGrantsUntilTheyAreTakenBackAndTheNewestRecords) {
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

TYPED_TEST(StoreContractLearned, KeepsTheNewestRowOfEachKindAndKeyUntilItIsRemoved) {
  this->open();
  this->commit({.rows = {{"verdict", "1", "{1}"}, {"policy", "1", "{2}"}, {"verdict", "2", "{3}"}}, .now = {1}});
  // The last change of a batch wins, and a row that is not there can be removed.
  this->commit({.rows = {{"verdict", "1", "{4}"}, {"verdict", "2", ""}, {"policy", "7", ""}, {"verdict", "3", "{5}"}},
                .now = {2}});
  EXPECT_EQ(this->reopen().rows,
            std::vector<CapabilityRow>({{"policy", "1", "{2}"}, {"verdict", "1", "{4}"}, {"verdict", "3", "{5}"}}));
  this->commit({.rows = {{"verdict", "3", ""}, {"policy", "1", "{6}"}, {"policy", "1", "{7}"}}, .now = {3}});
  EXPECT_EQ(this->reopen().rows, std::vector<CapabilityRow>({{"policy", "1", "{7}"}, {"verdict", "1", "{4}"}}));
}

}  // namespace
}  // namespace sublet::store::test
