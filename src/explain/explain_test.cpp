// SPDX-License-Identifier: Apache-2.0
#include "core/testing/two_leases.h"

namespace sublet::core::testing {
namespace {

struct Explained : World {
  Explained() {
    rules.automatic = false;  // estimates by ends alone; estimates by time slices have tests of their own
    snapshot({gpu(0, 24 * GiB)});
  }
  // A lease waits so long for that much, behind others that want as much.
  void expect(Bytes vram, Duration waits, std::optional<Duration> eta, const std::string& basis, int waiting = 1) {
    SCOPED_TRACE(basis);
    LeaseId id;
    for (int i = 0; i < waiting; ++i) id = submit(vram);
    pass(waits);
    EXPECT_EQ(info(id).eta, eta);
    EXPECT_SAYS(info(id).basis, basis);
    EXPECT_EQ(info(id).device, waits > rules.max_age ? "" : uuid_of(0));
  }
  // A finished run of that length, so that there is something to go by.
  void learn(std::string consumer, Duration run_time) {
    const LeaseId id = run(GiB, 900, std::move(consumer));
    pass(run_time);
    step(ProgramEnded{id, 0, false});
    snapshot({gpu(0, 24 * GiB)});
  }
};

TEST(QueueInfo, GoesByTheRunsOfTheSameUserAlone) {
  Explained w;
  w.learn("train", 60s);
  for (const std::uint32_t uid : {1000U, 1001U}) {
    Lease holder = wish(20 * GiB);
    holder.uid = uid;
    holder.owner.kind = OwnerKind::connection;
    const LeaseId held = w.submit(holder, true), waits = w.submit(10 * GiB);
    EXPECT_EQ(w.info(held).place, 0u) << "it does not wait";
    EXPECT_EQ(w.info(waits).eta, uid == 1000 ? std::optional<Duration>(60s) : std::nullopt);
    w.step(Release{waits});
    w.step(Release{held});
  }
}

TEST(QueueInfo, SaysPlaceShortageAndHolders) {
  Explained w;
  const LeaseId big = w.run(12 * GiB, 100), small = w.run(3 * GiB, 200, "infer");
  w.snapshot({gpu(0, 24 * GiB, {uses(100, 5 * GiB, big), uses(4711, 2 * GiB)}, 1 * GiB)});
  const LeaseId first = w.submit(20 * GiB), second = w.submit(10 * GiB);
  const explain::QueueInfo info = w.info(second);
  EXPECT_EQ(info.place, 2u);
  EXPECT_EQ(w.info(first).place, 1u);
  EXPECT_EQ(info.device, uuid_of(0));
  EXPECT_EQ(info.short_bytes, 4 * GiB);
  EXPECT_EQ(info.free, 10 * GiB - info.short_bytes);
  EXPECT_EQ(info.unleased, 3 * GiB);
  const std::vector<std::tuple<LeaseId, std::string, Bytes>> holders{{big, "lease-1 (train, ana)", 12 * GiB},
                                                                     {small, "lease-2 (infer, ana)", 3 * GiB},
                                                                     {{}, "pid 4711 (without a lease)", 2 * GiB},
                                                                     {{}, "bytes of no listed process", 1 * GiB}};
  ASSERT_EQ(info.holders.size(), holders.size());
  for (std::size_t i = 0; i < holders.size(); ++i)
    EXPECT_EQ(std::tuple(info.holders[i].lease, info.holders[i].what, info.holders[i].bytes), holders[i]);
}

TEST(QueueInfo, OfWhoGrowsNamesTheOthersAndWhatItMayHaveAtOnce) {
  Explained w;
  const LeaseId other = w.run(12 * GiB, 100), mine = w.run(10 * GiB, 200, "grow");
  ASSERT_TRUE(w.accepts(Resize{mine, 0, 14 * GiB, true}));
  ASSERT_EQ(w.info(mine).holders.size(), 1u) << "not itself";
  EXPECT_EQ(w.info(mine).holders[0].lease, other);
  EXPECT_EQ(w.info(mine).short_bytes, 2 * GiB);
  EXPECT_SAYS(w.helps(mine), "ask for 12.0 GiB or less");
  EXPECT_SAYS(w.helps(mine), "the end of lease-1");
  EXPECT_FALSE(contains(w.helps(mine), "the end of lease-2"));
  ASSERT_TRUE(w.accepts(Resize{mine, 0, 12 * GiB, false})) << "as it was told";

  Explained odd;
  odd.run(24 * GiB - Bytes{3'919'157'658}, 100);  // 3.65 GiB are free
  EXPECT_SAYS(odd.helps(odd.submit(4 * GiB)), "ask for 3.6 GiB or less");
}

TEST(Estimate, GoesByTheKnownEndsOfTheHolders) {
  const auto held = [](Bytes vram, std::optional<Duration> ttl, const std::vector<Duration>& learned = {}) {
    Explained w;
    for (const Duration run : learned) w.learn("train", run);
    w.run(vram, 100, "train", ttl);
    return w;
  };
  held(20 * GiB, 10min).expect(20 * GiB, 4s, 10min - 4s, "lease-1 (train, ana) ends at its time limit");
  held(20 * GiB, 10min).expect(20 * GiB, 16s, {}, "last read 16 s ago");
  held(24 * GiB, 10min).expect(GiB, {}, {}, "more than 200 wait before it", 300);
  held(20 * GiB, {}, {10s, 60s, 20s}).expect(20 * GiB, 5s, 15s, "the median of 3 earlier runs of 'train'");
  const std::string overdue = "has run for 12 s, longer than the one earlier run of 'train' (10 s)";
  held(20 * GiB, {}, {10s}).expect(20 * GiB, 12s, {}, overdue);
  const std::vector<Duration> runs(3, 100s);
  held(20 * GiB, {}, runs).expect(20 * GiB, {}, 300s, "after the ends of 1 more before them", 3);

  Explained token;
  Lease lease = wish(20 * GiB, "session");
  lease.ttl = 5min;
  token.submit(lease);
  token.expect(20 * GiB, {}, {}, "its owner may renew it beyond its time limit");

  Explained several;
  for (const int i : {1, 2, 3}) several.run(8 * GiB, 100 * i, std::to_string(i), 1min * i);
  several.expect(16 * GiB, {}, 2min, "ends at its time limit");

  Explained unleased;
  unleased.run(4 * GiB, 100, "train", 1min);
  unleased.snapshot({gpu(0, 24 * GiB, {uses(4711, 10 * GiB)})});
  unleased.expect(20 * GiB, {}, {}, "without a lease hold 10.0 GiB on gpu0");
}

TEST(Estimate, ANameThatSaysNothingIsNoBasisAndTeachesNothing) {
  Explained w;
  Lease anything = wish(20 * GiB, "sh");
  anything.owner.kind = OwnerKind::connection;
  anything.nameless = true;
  w.learn("sh", 10s);  // somebody's --name
  const LeaseId holder = w.submit(anything, true), id = w.submit(20 * GiB);
  EXPECT_FALSE(w.info(id).eta);
  EXPECT_SAYS(w.info(id).basis, "no time limit, and its name says nothing of what runs");
  w.step(Release{id});
  w.pass(40s);
  w.step(Release{holder});
  EXPECT_EQ(history_of(w.state, anything.whose())->runs, std::vector<Duration>{10s});
}

// One program that has the card, is parked for 100 s, and runs on.
struct ParkedMeanwhile : TwoLeases {
  ParkedMeanwhile() {
    rules.automatic = false;
    step(Release{waiter});
  }
  void park_meanwhile() {
    settle();
    pass(100s);
    measure({});
    resume();
    unparked();
    ASSERT_EQ(state_of(victim), LeaseState::active);
  }
  void end() { step(ProgramEnded{victim, 0, false}); }
};

TEST(Estimate, TheTimeThatAHolderWasParkedIsNoneThatItHasRun) {
  ParkedMeanwhile w;
  const Consumer consumer = w.at(w.victim).whose();
  w.pass(3s);
  w.measure(9 * GiB);
  w.park_meanwhile();
  w.pass(2s);
  ASSERT_EQ(history_of(w.state, consumer), nullptr);
  w.end();
  ASSERT_NE(history_of(w.state, consumer), nullptr);
  const Duration ran = history_of(w.state, consumer)->median.value();
  EXPECT_GE(ran, 5s);
  EXPECT_LT(ran, 6s);

  w.snapshot({gpu(0, 24 * GiB)});
  w.victim = w.run(10 * GiB, 7);
  w.pass(2s);
  w.measure(9 * GiB);
  w.park_meanwhile();
  const explain::QueueInfo info = w.info(w.submit(20 * GiB));
  ASSERT_TRUE(info.eta) << info.basis;
  EXPECT_GT(*info.eta, ran - 3s) << info.basis;
  EXPECT_LE(*info.eta, ran - 2s) << info.basis;
}

TEST(Estimate, OfWhoGrowsDoesNotGoByItsOwnEnd) {
  for (const bool known : {true, false}) {
    Explained w;
    if (known) w.learn("longer", 6s);
    w.learn("short", 3s);
    w.run(16 * GiB, 100, "longer");
    const LeaseId grows = w.run(5 * GiB, 200, "short");
    w.pass(1s);
    ASSERT_TRUE(w.accepts(Resize{grows, 0, 12 * GiB, true}));
    EXPECT_FALSE(w.info(grows).eta);
    EXPECT_SAYS(w.info(grows).basis, "it is expected to end before it can grow");
    if (!known) continue;
    const LeaseId other = w.submit(6 * GiB), all = w.submit(20 * GiB);
    EXPECT_EQ(w.info(other).eta, 2s) << "whom the other's end makes room for";
    EXPECT_SAYS(w.info(other).basis, "lease-4 (short, ana) by the one earlier run of 'short'");
    EXPECT_FALSE(w.info(all).eta) << w.info(all).basis;
  }
}

TEST(Estimate, OfWhoIsParkedDoesNotGoByItsOwnEnd) {
  ParkedMeanwhile w;
  w.pass(5s);
  w.end();
  w.snapshot({gpu(0, 24 * GiB)});
  w.victim = w.run(10 * GiB, 7);
  w.measure(9 * GiB);
  w.settle();
  const LeaseId holder = w.run(20 * GiB, 9, "other", 1min);
  ASSERT_TRUE(w.resume().has_value());
  const LeaseId all = w.submit(wish(22 * GiB), true);
  EXPECT_EQ(w.info(w.victim).eta, 1min);
  EXPECT_SAYS(w.info(w.victim).basis, to_string(holder) + " (other, ana) ends at its time limit");
  EXPECT_FALSE(contains(w.info(w.victim).basis, to_string(w.victim)));
  const explain::QueueInfo info = w.info(all);
  ASSERT_TRUE(info.eta) << info.basis;
  EXPECT_GT(*info.eta, 1min + 4s) << "it comes back, and ends, once: " << info.basis;
  EXPECT_LT(*info.eta, 1min + 6s) << info.basis;
}

TEST(Estimate, IsUnknownWhenANeededHolderIs) {
  Explained w;
  w.rules.reserve_after = {};
  w.run(12 * GiB, 100, "train", 10min);
  w.run(12 * GiB, 200, "server");
  const LeaseId both = w.submit(20 * GiB), one = w.submit(10 * GiB);
  EXPECT_FALSE(w.info(both).eta);
  EXPECT_SAYS(w.info(both).basis, "lease-2 (server, ana) has no known end");
  EXPECT_EQ(w.info(one).eta, 10min) << "this one needs only the other holder";
}

TEST(Helps, NamesWhatWouldMakeRoom) {
  Explained w;
  const LeaseId holder = w.run(20 * GiB, 100);
  w.snapshot({gpu(0, 24 * GiB, {uses(100, 20 * GiB, holder)})});
  const auto helps = explain::what_would_help(w.state, w.rules, w.at(w.submit(6 * GiB)), w.now);
  ASSERT_EQ(helps.size(), 3u);
  EXPECT_SAYS(helps[0], "a request by its owner is enough: `sublet preempt lease-2` pauses lease-1 (train, ana)");
  EXPECT_SAYS(helps[1], "ask for 4.0 GiB or less");
  EXPECT_SAYS(helps[2], "the end of lease-1 (train, ana) would free 20.0 GiB, which is enough; it is the same user's");
  EXPECT_SAYS(helps[2], "pause it (`sublet pause lease-1`) or end it (`sublet stop lease-1`)");

  Explained offers;
  const LeaseId all = offers.submit(24 * GiB), offered = offers.submit(6 * GiB);
  offers.step(Release{all});
  EXPECT_EQ(offers.helps(offered), "claim it within 10 s: `sublet claim lease-2`\n");

  World two;
  two.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  Lease gang = wish(20 * GiB, "train");
  gang.device_count = 2;
  two.submit(gang);
  EXPECT_SAYS(two.helps(two.submit(gang)), "which is enough there");
}

TEST(Helps, CountsTheFreeMemoryWithTheMemoryOfAHolder) {
  Explained w;
  w.run(20 * GiB, 100);
  const auto helps = explain::what_would_help(w.state, w.rules, w.at(w.submit(22 * GiB)), w.now);
  EXPECT_SAYS(helps.at(1), "would free 20.0 GiB, which is enough together with the 4.0 GiB that is free now; it is");
}

TEST(Helps, DoesNotAdviseToEndALeaseThatIsBeingPaused) {
  TwoLeases w;
  ASSERT_TRUE(w.pause().has_value());
  std::string all;
  for (const std::string& text : explain::what_would_help(w.state, w.rules, w.at(w.waiter), w.now)) all += text + "\n";
  EXPECT_SAYS(all, "wait for the pause of lease-1 (train, ana), which is in progress: it frees memory");
  EXPECT_EQ(all.find("would free"), std::string::npos) << all;
}

TEST(Estimate, OfAGangIsWhenTheLastOfItsDevicesIsFree) {
  World w;
  w.rules.automatic = false;
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB), gpu(2, 24 * GiB)});
  w.run(20 * GiB, 100, "a", 10min);
  w.run(20 * GiB, 102, "b", 30min);
  w.run(20 * GiB, 104, "c", 20min);
  Lease lease = wish(20 * GiB);
  lease.device_count = 2;
  const LeaseId pair = w.submit(lease, true), one = w.submit(wish(20 * GiB), true);
  EXPECT_EQ(w.info(pair).eta, 20min);
  EXPECT_EQ(w.info(one).eta, 30min) << "by then the pair has waited long enough to have the first card held for it";
  EXPECT_EQ(w.info(pair).short_bytes, 16 * GiB);
  w.rules.reserve_after = {};
  EXPECT_EQ(w.info(one).eta, 10min) << "without that, who needs one passes";
  EXPECT_EQ(w.info(pair).eta, 30min);
}

}  // namespace
}  // namespace sublet::core::testing
