// SPDX-License-Identifier: Apache-2.0
#include "core/testing/two_leases.h"

namespace sublet::core::testing {
namespace {

struct Explained : World {
  Explained() {
    rules.automatic = false;  // estimates by ends alone; those by turns are tested with the turns
    snapshot({gpu(0, 24 * GiB)});
  }
  QueueInfo info(LeaseId id) const { return queue_info(state, rules, at(id), now); }
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
  Lease mine = wish(20 * GiB), theirs = wish(20 * GiB);
  theirs.uid = 1001;
  mine.owner.kind = theirs.owner.kind = OwnerKind::connection;
  for (const Lease& holder : {mine, theirs}) {
    const LeaseId held = w.submit(holder, true);
    const LeaseId waits = w.submit(10 * GiB);
    EXPECT_EQ(w.info(waits).eta, holder.uid == mine.uid ? std::optional<Duration>(60s) : std::nullopt);
    w.step(Release{waits});
    w.step(Release{held});
  }
}

TEST(QueueInfo, SaysPlaceShortageAndHolders) {
  Explained w;
  const LeaseId big = w.run(12 * GiB, 100), small = w.run(3 * GiB, 200, "infer");
  w.snapshot({gpu(0, 24 * GiB, {uses(100, 5 * GiB, big), uses(4711, 2 * GiB)}, 1 * GiB)});
  const LeaseId first = w.submit(20 * GiB), second = w.submit(10 * GiB);
  const QueueInfo info = w.info(second);
  EXPECT_EQ(info.place, 2u);
  EXPECT_EQ(w.info(first).place, 1u);
  EXPECT_EQ(info.device, uuid_of(0));
  EXPECT_EQ(info.short_bytes, 4 * GiB);
  ASSERT_EQ(info.holders.size(), 4u);
  EXPECT_EQ(info.holders[0].lease, big);
  EXPECT_EQ(info.holders[0].bytes, 12 * GiB);
  EXPECT_EQ(info.holders[1].lease, small);
  EXPECT_EQ(info.holders[2].what, "pid 4711 (without a lease)");
  EXPECT_EQ(info.holders[2].bytes, 2 * GiB);
  EXPECT_EQ(info.holders[3].what, "bytes of no listed process");
  EXPECT_EQ(info.holders[3].bytes, 1 * GiB);
}

TEST(QueueInfo, IsEmptyForALeaseThatDoesNotWait) {
  Explained w;
  EXPECT_EQ(w.info(w.submit(GiB)).place, 0u);
}

TEST(QueueInfo, OfWhoGrowsNamesTheOthersAndWhatItMayHaveAtOnce) {
  Explained w;
  const LeaseId other = w.run(12 * GiB, 100), mine = w.run(10 * GiB, 200, "grow");
  ASSERT_TRUE(w.step(Resize{mine, 0, 14 * GiB, true}).outcome.has_value());
  ASSERT_EQ(w.info(mine).holders.size(), 1u) << "not itself";
  EXPECT_EQ(w.info(mine).holders[0].lease, other);
  EXPECT_EQ(w.info(mine).short_bytes, 2 * GiB);
  std::string said;
  for (const std::string& help : what_would_help(w.state, w.rules, w.at(mine), w.now)) said += help + "\n";
  EXPECT_SAYS(said, "ask for 12.0 GiB or less");
  EXPECT_SAYS(said, "the end of lease-1");
  EXPECT_FALSE(contains(said, "the end of lease-2")) << said;
  ASSERT_TRUE(w.step(Resize{mine, 0, 12 * GiB, false}).outcome.has_value()) << "as it was told";

  Explained odd;
  odd.run(24 * GiB - Bytes{3'919'157'658}, 100);  // 3.65 GiB are free
  const LeaseId waits = odd.submit(4 * GiB);
  said.clear();
  for (const std::string& help : what_would_help(odd.state, odd.rules, odd.at(waits), odd.now)) said += help + "\n";
  EXPECT_SAYS(said, "ask for 3.6 GiB or less");
}

TEST(Estimate, ByTheTimeLimitOfTheHolder) {
  Explained w;
  w.run(20 * GiB, 100, "train", 10min);
  const LeaseId id = w.submit(20 * GiB);
  w.pass(4s);
  EXPECT_EQ(w.info(id).eta, 10min - 4s);
  EXPECT_SAYS(w.info(id).basis, "lease-1 (train, ana) ends at its time limit");
}

TEST(Estimate, ByTheMedianOfEarlierRuns) {
  Explained w;
  for (const Duration run : {10s, 60s, 20s}) w.learn("train", run);
  w.run(20 * GiB, 100);
  const LeaseId id = w.submit(20 * GiB);
  w.pass(5s);
  EXPECT_EQ(w.info(id).eta, 15s);
  EXPECT_SAYS(w.info(id).basis, "the median of 3 earlier runs of 'train'");
}

TEST(Estimate, ANameThatSaysNothingIsNoBasisAndTeachesNothing) {
  Explained w;
  Lease anything = wish(20 * GiB, "sh");
  anything.owner.kind = OwnerKind::connection;
  anything.nameless = true;
  w.learn("sh", 10s);  // somebody's --name
  const LeaseId holder = w.submit(anything, true);
  const LeaseId id = w.submit(20 * GiB);
  EXPECT_FALSE(w.info(id).eta);
  EXPECT_SAYS(w.info(id).basis, "no time limit, and its name says nothing of what runs");
  w.step(Release{id});
  w.pass(40s);
  w.step(Release{holder});
  EXPECT_EQ(w.state.history(anything.whose())->runs, std::vector<Duration>{10s});
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

TEST(Estimate, ARunIsNoLongerForHavingBeenParked) {
  ParkedMeanwhile w;
  const Consumer consumer = w.at(w.victim).whose();
  w.pass(3s);
  w.measure(9 * GiB);
  w.park_meanwhile();
  w.pass(2s);
  ASSERT_EQ(w.state.history(consumer), nullptr);
  w.end();
  ASSERT_NE(w.state.history(consumer), nullptr);
  EXPECT_GE(w.state.history(consumer)->median, 5s);
  EXPECT_LT(w.state.history(consumer)->median, 6s);
}

TEST(Estimate, TheTimeThatAHolderWasParkedIsNoneThatItHasRun) {
  ParkedMeanwhile w;
  w.pass(5s);
  w.end();
  w.snapshot({gpu(0, 24 * GiB)});
  w.victim = w.run(10 * GiB, 7);
  w.pass(2s);
  w.measure(9 * GiB);
  w.park_meanwhile();
  const LeaseId id = w.submit(20 * GiB);
  const QueueInfo info = queue_info(w.state, w.rules, w.at(id), w.now);
  ASSERT_TRUE(info.eta) << info.basis;
  EXPECT_GT(*info.eta, 2s) << info.basis;
  EXPECT_LE(*info.eta, 3s) << info.basis;
}

TEST(Estimate, OfWhoGrowsDoesNotGoByItsOwnEnd) {
  Explained w;
  w.learn("longer", 6s);
  w.learn("short", 3s);
  w.run(16 * GiB, 100, "longer");
  const LeaseId grows = w.run(5 * GiB, 200, "short");
  w.pass(1s);
  ASSERT_TRUE(w.step(Resize{grows, 0, 12 * GiB, true}).outcome.has_value());
  const LeaseId other = w.submit(6 * GiB), all = w.submit(20 * GiB);
  EXPECT_EQ(w.info(grows).eta, 5s);
  EXPECT_EQ(w.info(grows).basis, "lease-3 (longer, ana) by the one earlier run of 'longer'");
  EXPECT_EQ(w.info(other).eta, 2s) << "whom the other's end makes room for";
  EXPECT_SAYS(w.info(other).basis, "lease-4 (short, ana) by the one earlier run of 'short'");
  EXPECT_FALSE(w.info(all).eta) << w.info(all).basis;

  Explained alone;
  alone.learn("short", 3s);
  alone.run(16 * GiB, 100, "longer");
  const LeaseId grower = alone.run(5 * GiB, 200, "short");
  ASSERT_TRUE(alone.step(Resize{grower, 0, 12 * GiB, true}).outcome.has_value());
  EXPECT_FALSE(alone.info(grower).eta);
  EXPECT_SAYS(alone.info(grower).basis, "lease-2 (longer, ana) has no known end");
}

TEST(Estimate, OfWhoIsParkedDoesNotGoByItsOwnEnd) {
  ParkedMeanwhile w;
  w.pass(5s);
  w.end();
  w.snapshot({gpu(0, 24 * GiB)});
  w.victim = w.run(10 * GiB, 7);
  w.measure(9 * GiB);
  w.settle();
  Lease other = wish(20 * GiB, "other");
  other.owner.kind = OwnerKind::connection;
  other.ttl = 1min;
  const LeaseId holder = w.submit(other, true);
  ASSERT_EQ(w.state_of(holder), LeaseState::active);
  ASSERT_TRUE(w.resume().has_value());
  const LeaseId all = w.submit(wish(22 * GiB), true);
  QueueInfo info = queue_info(w.state, w.rules, w.at(w.victim), w.now);
  EXPECT_EQ(info.eta, 1min);
  EXPECT_SAYS(info.basis, to_string(holder) + " (other, ana) ends at its time limit");
  EXPECT_FALSE(contains(info.basis, to_string(w.victim))) << info.basis;
  info = queue_info(w.state, w.rules, w.at(all), w.now);
  ASSERT_TRUE(info.eta) << info.basis;
  EXPECT_GT(*info.eta, 1min + 4s) << "it comes back, and ends, once: " << info.basis;
  EXPECT_LT(*info.eta, 1min + 6s) << info.basis;
}

TEST(Estimate, AnOverdueHolderMakesItUnknownInsteadOfNow) {
  Explained w;
  w.learn("train", 10s);
  w.run(20 * GiB, 100);
  const LeaseId id = w.submit(20 * GiB);
  w.pass(12s);
  EXPECT_FALSE(w.info(id).eta);
  EXPECT_SAYS(w.info(id).basis, "has run for 12 s, longer than the one earlier run of 'train' (10 s)");
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

TEST(Estimate, ARenewedTokenHasNoKnownEnd) {
  Explained w;
  Lease lease = wish(20 * GiB, "session");
  lease.ttl = 5min;
  w.submit(lease);
  const LeaseId id = w.submit(20 * GiB);
  EXPECT_FALSE(w.info(id).eta);
  EXPECT_SAYS(w.info(id).basis, "its owner may renew it beyond its time limit");
}

TEST(Estimate, CountsThoseBeforeIt) {
  Explained w;
  for (int i = 0; i < 3; ++i) w.learn("train", 100s);
  w.run(20 * GiB, 100);
  const LeaseId first = w.submit(20 * GiB), second = w.submit(20 * GiB), third = w.submit(20 * GiB);
  EXPECT_EQ(w.info(first).eta, 100s);
  EXPECT_EQ(w.info(second).eta, 200s);
  EXPECT_EQ(w.info(third).eta, 300s);
  EXPECT_SAYS(w.info(third).basis, "after the ends of 1 more before them");
}

TEST(Estimate, SumsWhatSeveralEndsFree) {
  Explained w;
  w.run(8 * GiB, 100, "a", 1min);
  w.run(8 * GiB, 200, "b", 2min);
  w.run(8 * GiB, 300, "c", 3min);
  EXPECT_EQ(w.info(w.submit(16 * GiB)).eta, 2min);
}

TEST(Estimate, IsUnknownWhileTheDeviceIs) {
  Explained w;
  w.run(20 * GiB, 100, "train", 10min);
  const LeaseId id = w.submit(20 * GiB);
  w.pass(w.rules.max_age + 1s);
  const QueueInfo info = w.info(id);
  EXPECT_FALSE(info.eta);
  EXPECT_EQ(info.device, "");
  EXPECT_SAYS(info.basis, "last read 16 s ago");
}

TEST(Estimate, UnleasedProcessesHaveNoKnownEnd) {
  Explained w;
  w.run(4 * GiB, 100, "train", 1min);
  w.snapshot({gpu(0, 24 * GiB, {uses(4711, 10 * GiB)})});
  const LeaseId id = w.submit(20 * GiB);
  EXPECT_FALSE(w.info(id).eta);
  EXPECT_SAYS(w.info(id).basis, "without a lease hold 10.0 GiB on gpu0");
}

TEST(Estimate, IsNotGuessedForTheEndOfALongQueue) {
  Explained w;
  w.run(24 * GiB, 100, "train", 10min);
  LeaseId last;
  for (int i = 0; i < 300; ++i) last = w.submit(GiB);
  EXPECT_FALSE(w.info(last).eta);
  EXPECT_SAYS(w.info(last).basis, "more than 200 wait before it");
}

TEST(Helps, NamesWhatWouldMakeRoom) {
  Explained w;
  const LeaseId holder = w.run(20 * GiB, 100);
  w.snapshot({gpu(0, 24 * GiB, {uses(100, 20 * GiB, holder)})});
  const LeaseId id = w.submit(6 * GiB);
  const auto helps = what_would_help(w.state, w.rules, w.at(id), w.now);
  ASSERT_EQ(helps.size(), 3u);
  EXPECT_SAYS(helps[0], "a request by its owner is enough: `sublet preempt lease-2` pauses lease-1 (train, ana)");
  EXPECT_SAYS(helps[1], "ask for 4.0 GiB or less");
  EXPECT_SAYS(helps[2],
              "the end of lease-1 (train, ana) would free 20.0 GiB, which is enough; it is the same user's, who can "
              "pause it (`sublet pause lease-1`) or end it (`sublet stop lease-1`)");
}

TEST(Helps, CountsTheFreeMemoryWithTheMemoryOfAHolder) {
  Explained w;
  w.run(20 * GiB, 100);
  const auto helps = what_would_help(w.state, w.rules, w.at(w.submit(22 * GiB)), w.now);
  EXPECT_SAYS(helps.at(1), "would free 20.0 GiB, which is enough together with the 4.0 GiB that is free now; it is");
}

TEST(Helps, DoesNotAdviseToEndALeaseThatIsBeingPaused) {
  TwoLeases w;
  ASSERT_TRUE(w.pause().has_value());
  std::string all;
  for (const std::string& text : what_would_help(w.state, w.rules, w.at(w.waiter), w.now)) all += text + "\n";
  EXPECT_SAYS(all, "wait for the pause of lease-1 (train, ana), which is under way: it frees memory");
  EXPECT_EQ(all.find("would free"), std::string::npos) << all;
}

TEST(Helps, OneOfSeveralDevicesIsToldWhatIsEnoughThere) {
  World w;
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
  Lease gang = wish(20 * GiB, "train");
  gang.device_count = 2;
  w.submit(gang);
  std::string all;
  for (const std::string& text : what_would_help(w.state, w.rules, w.at(w.submit(gang)), w.now)) all += text + "\n";
  EXPECT_SAYS(all, "which is enough there");
}

TEST(Helps, AnOfferIsToBeClaimed) {
  Explained w;
  const LeaseId holder = w.submit(24 * GiB), id = w.submit(6 * GiB);
  w.step(Release{holder});
  EXPECT_EQ(what_would_help(w.state, w.rules, w.at(id), w.now),
            std::vector<std::string>{"claim it within 10 s: `sublet claim lease-2`"});
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
  const LeaseId pair = w.submit(lease, true);
  const LeaseId one = w.submit(wish(20 * GiB), true);
  const auto eta = [&w](LeaseId id) { return queue_info(w.state, w.rules, w.at(id), w.now).eta; };
  EXPECT_EQ(eta(pair), 20min);
  EXPECT_EQ(eta(one), 30min) << "by then the pair has waited long enough to have the first card held for it";
  EXPECT_EQ(queue_info(w.state, w.rules, w.at(pair), w.now).short_bytes, 16 * GiB);
  w.rules.reserve_after = {};
  EXPECT_EQ(eta(one), 10min) << "without that, who needs one passes";
  EXPECT_EQ(eta(pair), 30min);
}

}  // namespace
}  // namespace sublet::core::testing
