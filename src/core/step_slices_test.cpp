// SPDX-License-Identifier: Apache-2.0
#include "core/slices.h"
#include "core/testing/slice_helpers.h"

namespace sublet::core::testing {
namespace {

TEST(Slices, TwoThatDoNotFitTogetherShareTheCardEqually) {
  Sharing w(20s);
  const LeaseId a = w.start(14 * GiB, Tier::standard, "a"), b = w.start(14 * GiB, Tier::standard, "b");
  Shares shares = share(w, {a, b}, 1200s);
  EXPECT_GT(shares.switches, 6);
  EXPECT_LE(shares.apart(a, b), 200s) << "a quantum";
  EXPECT_GE(shares.had[a] + shares.had[b], 1200s * 85 / 100) << "the rest is spent on switching";
}

// Nobody had the card while the machine slept, and nobody's quantum is over by that.
TEST(Slices, SleepIsNoTimeWithTheCard) {
  Sharing w(60s);
  const LeaseId a = w.start(14 * GiB, Tier::standard, "a"), b = w.start(14 * GiB, Tier::standard, "b");
  const auto doze = [&w] {
    w.now = w.now + 1h;
    w.step(ClockGap{1h});
    w.measure();
  };
  w.live(10s);
  doze();
  w.live(45s);
  EXPECT_EQ(w.states(a), "active") << "it has had it for less than a minute";
  w.live(30s);
  EXPECT_EQ(w.states(b), "active");
  w.attach(b);
  share(w, {a, b}, 600s);
  doze();
  Shares shares = share(w, {a, b}, 1200s);
  EXPECT_LE(shares.apart(a, b), 200s) << "a quantum";
}

// Priority orders the queue, and so a lease that waits to resume may stand before the member with the next slice.
TEST(Slices, PriorityOrdersOnlyThoseWhoHadAsMuch) {
  Sharing w(20s, 64 * GiB);  // all three, for a moment
  Lease dear = w.want(14 * GiB, Tier::standard, "a");
  dear.priority = 10;
  const LeaseId a = w.submit(dear, true);
  w.attach(a);
  const LeaseId b = w.start(14 * GiB, Tier::standard, "b"), c = w.start(14 * GiB, Tier::standard, "c");
  Shares shares = share(w, {a, b, c}, 1800s);
  for (const LeaseId id : {a, b, c}) {
    EXPECT_GT(shares.had[id], 400s) << to_string(id);
    EXPECT_LT(shares.had[id], 800s) << to_string(id);
  }
}

// Together they fit only as long as what they keep while they are paused is in the headroom: a lease that has just left
// does not take back the memory that it freed, though it stands before the member with the next slice.
TEST(Slices, ATurnIsNotTakenBackByWhoLeftForIt) {
  Card w;
  w.rules.headroom = 512 * MiB;
  w.rules.min_residency = 20s;
  const Bytes all = capacity_of(*find_device(w.state, uuid_of(0)), w.rules);
  const Bytes size{all.count / 2 + (48 * MiB).count};  // both of which keep 64 MiB
  Lease dear = w.want(size, Tier::standard, "a");
  dear.priority = 10;
  const LeaseId a = w.submit(dear, true);
  w.attach(a);
  const LeaseId b = w.start(size, Tier::standard, "b");
  Shares shares = share(w, {a, b}, 1200s);
  EXPECT_GT(shares.switches, 6);
  for (const LeaseId id : {a, b}) EXPECT_GT(shares.had[id], 450s) << to_string(id);
}

// All leases of a slice enter: a lease with the least service time does not wait for leases that stand before it.
TEST(Slices, BringInAllWhoseTurnItIs) {
  Sharing w(20s, 64 * GiB);
  std::vector<LeaseId> all;
  for (const auto& [size, priority] : {std::pair{10400, 0}, {10700, 30}, {15200, 10}, {9900, 0}}) {
    Lease lease = w.want(size * MiB, Tier::standard, "train");
    lease.priority = priority;
    all.push_back(w.submit(lease, true));
    if (w.state_of(all.back()) == LeaseState::active) w.attach(all.back());
  }
  int several = 0;
  for (int tries = 0; several < 4 && tries < 3600; ++tries) {
    const auto slice = w.state.preemption.slices.find(uuid_of(0));
    std::vector<LeaseId> enters;
    if (slice != w.state.preemption.slices.end() && slice->second.at <= w.now + 1s) enters = slice->second.enters;
    share(w, all, 1s);
    if (enters.size() < 2) continue;
    share(w, all, 10s);  // those who leave have left by then
    ++several;
    for (const LeaseId id : enters) ASSERT_EQ(w.state_of(id), LeaseState::active) << to_string(id);
  }
  EXPECT_EQ(several, 4);
}

// A lease that needs memory of an equal and of a spot program has its slice as well.
TEST(Slices, ComeToOneForWhomEqualsAndThoseBelowHaveToLeave) {
  Sharing w(20s, 64 * GiB);
  const LeaseId a = w.start(12 * GiB, Tier::standard, "a"), spot = w.start(6 * GiB, Tier::spot, "spot");
  const LeaseId c = w.start(19 * GiB, Tier::standard, "c"), b = w.start(12 * GiB, Tier::standard, "b");
  ASSERT_EQ(w.states(spot), "active");
  Shares shares = share(w, {a, b, c}, 1200s);
  for (const LeaseId id : {a, b, c}) EXPECT_GT(shares.had[id], 250s) << to_string(id);
}

// With three it is known as well when the next slice begins.
TEST(Slices, OfThreeBeginWhenTheyWereSaidTo) {
  Sharing w(20s, 64 * GiB);
  std::vector<LeaseId> all;
  for (const auto& [name, size] : {std::pair{"a", 14 * GiB}, {"b", 9 * GiB}, {"c", 15 * GiB}, {"d", 6 * GiB}})
    all.push_back(w.start(size, Tier::standard, name));
  share(w, all, 60s);
  int kept = 0;
  for (int tries = 0; kept < 12 && tries < 1000; ++tries) {
    const bool settled = w.state.preemption.plans.empty() && std::ranges::all_of(all, [&w](LeaseId id) {
                           return w.state_of(id) == LeaseState::active || w.state_of(id) == LeaseState::paused;
                         });
    const auto slice = w.state.preemption.slices.find(uuid_of(0));
    if (!settled || slice == w.state.preemption.slices.end()) {
      share(w, all, 1s);
      continue;
    }
    const Time at = slice->second.at;
    while (w.state.preemption.plans.empty() && w.now < at) {
      ASSERT_TRUE(w.state.preemption.slices.contains(uuid_of(0)));
      ASSERT_EQ(w.state.preemption.slices.at(uuid_of(0)).at, at);
      share(w, all, std::min<Duration>(1s, at - w.now));
    }
    ASSERT_GE(w.now, at);
    ++kept;
  }
  EXPECT_EQ(kept, 12);
}

// A new lease starts level with the leases that are there, on each card separately.
TEST(Slices, AreOfEachCardByItself) {
  Sharing w(20s, 128 * GiB, 2);
  const auto on = [&w](unsigned card, const char* name, int priority) {
    Lease lease = w.want(14 * GiB, Tier::standard, name);
    lease.wanted_devices = {uuid_of(card)};
    lease.priority = priority;
    const LeaseId id = w.submit(lease, true);
    if (w.state_of(id) == LeaseState::active) w.attach(id);
    return id;
  };
  const LeaseId a = on(1, "a", 0), b = on(1, "b", 0);
  share(w, {a, b}, 3600s);
  const LeaseId c = on(0, "c", 100), d = on(0, "d", 100);
  share(w, {a, b, c, d}, 300s);
  // It goes where the next slice ends, on the card with more service time; who waits for the other is looked at first.
  const auto had_room = [&w](LeaseId one, LeaseId other) {
    const LeaseId has = w.state_of(one) == LeaseState::active ? one : other;
    return w.state_of(has) == LeaseState::active ? w.now - standing_of(w.state, has).came_back : Duration{};
  };
  while (had_room(c, d) < 3s || had_room(a, b) < had_room(c, d) + 20s) w.live(1s);
  const LeaseId any = w.start(14 * GiB, Tier::standard, "any");
  Shares shares = share(w, {a, b, c, d, any}, 1800s);
  for (const LeaseId id : {a, b, c, d, any}) EXPECT_GT(shares.had[id], 450s) << to_string(id);
}

TEST(Slices, OneOnSeveralCardsTakesThemWithThoseOfEachAndLeavesForWhoWantsOne) {
  for (const bool both : {true, false}) {
    Several w(20s);
    std::vector<LeaseId> all{w.both, w.on_card(0, "a")};
    if (both) all.push_back(w.on_card(1, "b"));
    ASSERT_EQ(w.states(all[1]), "queued");
    Shares shares = share(w, all, both ? 2400s : 1200s);
    EXPECT_GT(shares.switches, both ? 12 : 2);
    for (const LeaseId id : all) EXPECT_GT(shares.had[id], both ? 900s : 450s) << to_string(id);
  }
}

// The turns on its cards end at times of their own: it waits for the last, and nobody comes in before it meanwhile.
TEST(Slices, OneOnSeveralCardsIsNotKeptOutByThoseWhoseTurnsEndAtOtherTimes) {
  Several w(40s);
  std::vector<LeaseId> all{w.both};
  for (unsigned card = 0; card < 2; ++card)
    for (const char* name : {"a", "b"}) {
      all.push_back(w.on_card(card, name));
      share(w, all, 25s);
    }
  Shares shares = share(w, all, 3600s);
  for (const LeaseId id : all) EXPECT_GT(shares.had[id], 800s) << to_string(id);
}

TEST(Slices, ThatOfOneOnSeveralCardsIsAnnouncedOnAllOfThem) {
  Several w(100s);
  const LeaseId a = w.on_card(0, "a"), b = w.on_card(1, "b");
  // Once it has left its cards, and those who came in have had almost as much.
  const auto announced = [&w] {
    return w.state_of(w.both) == LeaseState::paused && !w.state.preemption.slices.empty();
  };
  for (int second = 0; second < 900 && !announced(); ++second) share(w, {w.both, a, b}, 1s);
  ASSERT_EQ(w.state.preemption.slices.size(), 2u);
  for (const auto& [uuid, slice] : w.state.preemption.slices) {
    EXPECT_EQ(slice.enters, std::vector<LeaseId>{w.both});
    EXPECT_EQ(slice.leaves.size(), 2u);
    EXPECT_EQ(slice.devices.size(), 2u);
  }
  EXPECT_GT(explain::leaves_in(w.state, a, w.now), 0s);
  EXPECT_SAYS(w.info(w.both).basis, "its time slice begins then: ");
}

// On all of its cards or on none.
TEST(Slices, NobodyLeavesOneCardWhereThereIsNoTurnOnTheOther) {
  Sharing w(20s, 128 * GiB, 2);
  w.pinned(14 * GiB, Tier::standard, "pinned");
  const LeaseId other = w.start(14 * GiB, Tier::standard, "other");
  Lease lease = w.want(14 * GiB, Tier::standard, "both");
  lease.device_count = 2;
  const LeaseId both = w.submit(lease, true);
  EXPECT_EQ(share(w, {other, both}, 600s).switches, 0);
  EXPECT_TRUE(w.state.preemption.slices.empty());
}

TEST(Slices, WhoAlwaysFitsIsNeverPaused) {
  Sharing w(15s);
  const LeaseId a = w.start(14 * GiB, Tier::standard, "a"), b = w.start(12 * GiB, Tier::standard, "b"),
                c = w.start(8 * GiB, Tier::standard, "c");
  Shares shares = share(w, {a, b, c}, 1200s);
  EXPECT_GE(shares.had[c], 1190s) << "60, 50 and 35 % of the card: the third fits with either";
  EXPECT_LE(shares.apart(a, b), 200s);
}

TEST(Slices, AWorkingSetThatFitsIsNeverRotated) {
  Sharing w(1s);
  const LeaseId a = w.start(12 * GiB, Tier::standard, "a"), b = w.start(12 * GiB, Tier::standard, "b");
  EXPECT_EQ(share(w, {a, b}, 300s).switches, 0);
}

TEST(Slices, NobodyTakesTurnsWithWhoHasNothingOnTheCardYet) {
  Sharing w(20s);
  const LeaseId early = w.imports(20 * GiB, Tier::standard), other = w.start(20 * GiB, Tier::standard, "other");
  w.live(300s);
  EXPECT_EQ(w.states(early), "active");
  w.programs[early] = {50, 6 * GiB};
  EXPECT_GT(share(w, {early, other}, 300s).switches, 0) << "and then they do";
}

// A lease that just got its memory holds little yet. The announced time is that of a slice in which it fills its
// memory.
TEST(Slices, AnAnnouncementCountsAWholeLease) {
  Sharing w(10s);
  const LeaseId a = w.start(20 * GiB, Tier::standard, "a");
  w.start(2 * GiB, Tier::interactive, "c");
  w.programs[a].second = GiB;
  w.measure();
  w.start(20 * GiB, Tier::standard, "b");
  w.measure();
  ASSERT_EQ(w.state.preemption.slices.size(), 1u);
  const NextSlice slice = w.state.preemption.slices.begin()->second;
  EXPECT_GT(slice.said, slice.at + 60s) << "a quantum of 20 GiB, not of one";
  EXPECT_GT(explain::leaves_in(w.state, a, w.now), slice.at - w.now + 60s);
}

TEST(Slices, TheNextOneIsAnnounced) {
  Sharing w(100s);
  const LeaseId a = w.start(14 * GiB, Tier::standard, "a"), b = w.start(14 * GiB, Tier::standard, "b");
  ASSERT_EQ(w.state.preemption.slices.size(), 1u);
  const NextSlice& slice = w.state.preemption.slices.begin()->second;
  EXPECT_EQ(slice.leaves, std::vector<LeaseId>{a});
  EXPECT_EQ(slice.enters, std::vector<LeaseId>{b});
  EXPECT_GT(slice.at, w.now + 90s);
  EXPECT_LE(slice.at, w.now + 130s);
  EXPECT_GT(explain::leaves_in(w.state, a, w.now), 90s);
  EXPECT_EQ(explain::leaves_in(w.state, b, w.now), std::nullopt);
  const explain::QueueInfo info = w.info(b);
  EXPECT_GT(info.eta, slice.at - w.now) << "the pause takes time";
  EXPECT_SAYS(info.basis, "its time slice begins then: " + to_string(a));
}

TEST(Slices, WhoWantsToGrowIsNotPausedForItself) {
  Sharing w(1s);
  w.start(6 * GiB, Tier::standard, "a");
  const LeaseId b = w.start(14 * GiB, Tier::standard, "b");
  w.step(Resize{b, 0, 22 * GiB});
  for (int second = 0; second < 120; ++second) {
    w.pass(1s);
    w.measure();
    w.obey();
    ASSERT_TRUE(!w.at(b).parking || w.at(b).parking->cause.preemptor != b);
  }
}

}  // namespace
}  // namespace sublet::core::testing
