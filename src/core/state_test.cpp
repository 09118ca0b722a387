// SPDX-License-Identifier: Apache-2.0
// Restarts: what load() makes of what the store held.
#include "core/testing/world.h"

namespace sublet::core::testing {
namespace {

TEST(Load, ChargesEveryLeaseBeforeAnythingIsMeasuredAndGrantsNothing) {
  OneCard w;
  const LeaseId id = w.run(20 * GiB, 100), waiter = w.submit(6 * GiB);
  w.restart();
  EXPECT_EQ(w.states(id, waiter), "active queued");
  EXPECT_EQ(w.state.devices.by_uuid.at(uuid_of(0)).charged, 20 * GiB);
  EXPECT_EQ(w.free(0), Bytes{}) << "unknown until read";
  w.snapshot({gpu(0, 24 * GiB, {uses(100, 5 * GiB, id)})});
  EXPECT_EQ(w.free(0), 4 * GiB);
  EXPECT_EQ(w.states(waiter), "queued");
  EXPECT_EQ(w.submit(GiB).number, 3u) << "ids go on";
}

TEST(Load, GivesOwnersTimeToComeBack) {
  OneCard w;
  Lease lease = wish(2 * GiB);
  lease.owner.kind = OwnerKind::connection;
  const LeaseId hold = w.submit(lease, true), other = w.submit(lease, true);
  lease.owner.kind = OwnerKind::token;
  lease.ttl = 10s;
  const LeaseId token = w.submit(lease);
  const LeaseId holder = w.submit(18 * GiB), offered = w.submit(6 * GiB);
  w.step(Release{holder});
  w.pass(w.rules.claim_window - 1s);
  w.restart();
  w.pass(w.rules.claim_window - 1s);
  EXPECT_EQ(w.states(offered), "offered") << "for a fresh window";
  EXPECT_TRUE(w.accepts(Claim{offered}));
  w.pass(w.rules.reconnect - w.rules.claim_window);
  EXPECT_EQ(w.states(hold, token), "active active");
  w.step(HeldChanged{hold, true});
  w.pass(1s);
  EXPECT_EQ(w.states(hold, other, token), "active gone gone");
  w.step(HeldChanged{hold, false});
  w.pass(w.rules.linger);
  EXPECT_TRUE(w.gone(hold)) << "who was back has the usual linger";
}

TEST(Load, GoesOnSettlingWhatWasNotMeasured) {
  OneCard w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.step(ProgramEnded{id, 0, false});
  w.restart();
  EXPECT_EQ(w.state.devices.by_uuid.at(uuid_of(0)).charged, 6 * GiB);
  w.step(ProgramEnded{id, std::nullopt, false});  // the engine looks again whether the program lives
  w.snapshot({gpu(0, 24 * GiB, {uses(100, 5 * GiB, id)})});
  EXPECT_EQ(w.free(0), 19 * GiB);
  w.snapshot({gpu(0, 24 * GiB)});
  EXPECT_TRUE(w.gone(id));
  EXPECT_EQ(w.at(w.submit(24 * GiB)).state, LeaseState::active);
}

TEST(Load, RepeatsTheOrderToEndAProgram) {
  OneCard w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.step(Release{id, 0, false, true});
  w.actions.clear();
  w.restart();
  EXPECT_EQ(w.signals(id, false), 1);
  w.step(Tick{});
  EXPECT_EQ(w.signals(id, false), 1);
  w.pass(w.rules.grace);
  EXPECT_EQ(w.signals(id, true), 1) << "counted from the first time it was asked";
}

TEST(Load, KeepsTheOrderOfTheQueue) {
  OneCard w;
  w.submit(24 * GiB);
  for (int i = 0; i < 50; ++i) {
    Lease lease = wish(GiB);
    lease.priority = (i * 7) % 5;
    lease.tier = i % 3 == 0 ? Tier::batch : Tier::standard;
    if (i % 4 == 0) w.now = w.now + 20s;
    w.submit(lease);
  }
  const auto order = w.state.queue.in_order();
  w.restart();
  EXPECT_EQ(w.state.queue.in_order(), order);
}

TEST(Load, ADeviceThatNeverComesBackFailsItsLeases) {
  OneCard w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.restart();
  for (int i = 0; i < 4; ++i) {
    w.snapshot({gpu(1, 24 * GiB)});
    w.pass(5s);
  }
  EXPECT_EQ(w.at(id).end_reason, EndReason::failed);
  w.step(ProgramEnded{id, 1, false});
  EXPECT_TRUE(w.gone(id));
}

TEST(Load, KeepsTheConsumersThatWereUsedLastWhateverTheirNames) {
  std::map<Consumer, ConsumerHistory> stored;
  const auto name = [](int i) { return anas(std::to_string(10'000 + i)); };
  // The larger the name the longer ago it was used: an order by name would drop the wrong ones.
  for (int i = 0; i < 5000; ++i) stored[name(i)] = {{10s}, GiB, Time{5000 - i}};
  State state = State::load({}, stored, 0, {}, Time{10'000});
  ASSERT_EQ(state.learned.history.size(), 4096U);
  EXPECT_NE(history_of(state, name(4095)), nullptr);
  EXPECT_EQ(history_of(state, name(4096)), nullptr);
  EXPECT_EQ(history_of(state, name(0))->median, 10s);

  // A new one displaces the one whose last use is now the oldest.
  Rules rules;
  rules.headroom = {};
  const auto tell = [&](const Fact& fact) { return step(state, rules, fact, Time{20'000}); };
  tell(Snapshot{Time{20'000}, {gpu(0, 24 * GiB)}});
  const LeaseId id = *tell(Submit{wish(GiB, "new"), true, false}).outcome;
  tell(Release{id, 0, false});
  EXPECT_NE(history_of(state, anas("new")), nullptr);
  EXPECT_EQ(history_of(state, name(4095)), nullptr);
  EXPECT_NE(history_of(state, name(4094)), nullptr);
  EXPECT_EQ(state.learned.history.size(), 4096U);
}

TEST(Load, IsEmptyFromAnEmptyStore) {
  World w;
  w.restart();
  EXPECT_TRUE(w.state.leases.by_id.empty());
  EXPECT_EQ(w.last.wake_at, Time::never());
  w.snapshot({gpu(0, 24 * GiB)});
  EXPECT_EQ(w.submit(GiB).number, 1u);
}

}  // namespace
}  // namespace sublet::core::testing
