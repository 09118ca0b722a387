// SPDX-License-Identifier: Apache-2.0
#include "core/rehearse.h"
#include "core/testing/ideal_executor.h"

namespace sublet::core::testing {
namespace {

Lease pinned_spot(Card& w, Bytes vram) {
  Lease lease = w.want(vram, Tier::spot, "crawl");
  lease.owner.kind = OwnerKind::token;
  lease.ttl = 1h;
  lease.pausable = Pausable::no;
  return lease;
}

// Each is gone as soon as it is ended, and one after the other is.
TEST(Prospects, AreTheSameWhereManyAreEndedAtOnce) {
  for (int count = 1; count <= 6; ++count) {
    Card w;
    for (int i = 0; i < count; ++i) w.submit(pinned_spot(w, Bytes{23 * GiB.count / count}), true);
    const Lease large = w.want(20 * GiB, Tier::standard, "large");
    const auto thought = rehearse(w.state, w.rules, Submit{large, true}, w.now);
    ASSERT_TRUE(thought.has_value());
    EXPECT_EQ(thought->would, Would::preempt);
    const LeaseId asks = w.submit(large, true);
    for (int i = 0; i < 3 && w.state_of(asks) == LeaseState::queued; ++i) {
      EXPECT_NE(queue_info(w.state, w.rules, w.at(asks), w.now).basis, "");
      w.live(1s);
    }
    EXPECT_EQ(w.state_of(asks), LeaseState::active) << count;
  }
}

// One that was paused for another and is on its way back; what is ordered of it is carried out by hand.
struct OnItsWay : Card {
  LeaseId back;

  explicit OnItsWay(Tier tier = Tier::batch) {
    back = start(20 * GiB, tier, "back");
    const LeaseId urgent = start(10 * GiB, Tier::critical, "urgent");
    obey();
    EXPECT_EQ(state_of(urgent), LeaseState::active);
    attach(urgent);
    programs.erase(urgent);
    step(ProgramEnded{urgent, 0, false});
    measure();
    EXPECT_EQ(state_of(back), LeaseState::resuming);
  }
  QueueInfo info(LeaseId id) const { return queue_info(state, rules, at(id), now); }
  Duration until_started(LeaseId id) {
    const Time from = now;
    while (state_of(id) == LeaseState::queued && now < from + 10min) live(100ms);
    return now - from;
  }
};

TEST(Prospects, OfAHigherTierWhoseVictimIsOnlyJustComingBack) {
  OnItsWay w;
  const LeaseId next = w.submit(w.want(10 * GiB, Tier::interactive, "next"), true);
  const QueueInfo info = w.info(next);
  ASSERT_TRUE(info.eta);
  EXPECT_SAYS(info.basis, "lease-1 (back, ana): it is resuming, for about ");
  EXPECT_SAYS(info.basis, "; then its pause takes about ");
  const Duration real = w.until_started(next);
  EXPECT_EQ(w.state_of(next), LeaseState::active);
  EXPECT_GT(*info.eta, real / 2) << "foreseen is what then happens";
  EXPECT_LT(*info.eta, real * 2);
}

TEST(Prospects, OfAHigherTierWhoseVictimCameBackAMomentAgo) {
  OnItsWay w;
  w.obey();
  ASSERT_EQ(w.state_of(w.back), LeaseState::active);
  const LeaseId next = w.submit(w.want(10 * GiB, Tier::interactive, "next"), true);
  ASSERT_EQ(w.state.plan_for(next), nullptr);
  const QueueInfo info = w.info(next);
  EXPECT_SAYS(info.basis, "it resumed from a pause less than 2 s ago; then its pause takes about ");
  ASSERT_TRUE(info.eta);
  const Duration real = w.until_started(next);
  EXPECT_GT(*info.eta, real / 2);
  EXPECT_LT(*info.eta, real * 2);
}

TEST(Prospects, WhoStandsBeforeItMayTakeTheRoomAndNothingIsPromised) {
  OnItsWay w;
  w.submit(w.want(10 * GiB, Tier::interactive, "first"), true);
  const LeaseId second = w.submit(w.want(10 * GiB, Tier::interactive, "second"), true);
  EXPECT_FALSE(w.info(second).eta);
}

TEST(Prospects, WhosePauseFailedPromisesNothing) {
  Card w;
  const LeaseId batch = w.start(20 * GiB, Tier::batch);
  const LeaseId urgent = w.start(10 * GiB, Tier::interactive, "infer");
  w.obey(HostMemory{4 * GiB, std::nullopt}, 1);  // there is no host memory for it
  const QueueInfo info = queue_info(w.state, w.rules, w.at(urgent), w.now);
  EXPECT_FALSE(info.eta);
  EXPECT_SAYS(info.basis, to_string(batch) + " (train, ana): its pause could not begin");
}

TEST(Prospects, WhoTakesLongerThanItEverShouldPromisesNothing) {
  Card w;
  const LeaseId batch = w.start(20 * GiB, Tier::batch);
  const LeaseId urgent = w.start(10 * GiB, Tier::interactive, "infer");
  const auto info = [&] { return queue_info(w.state, w.rules, w.at(urgent), w.now); };
  EXPECT_SAYS(info().basis, "memory is being freed for it by pausing lease-1 (train, ana): its pause takes about ");
  const Duration before = *info().eta;
  w.step(HostWeighed{batch, plenty});
  ASSERT_EQ(w.state_of(batch), LeaseState::pausing);
  w.now = w.now + 2s;
  EXPECT_LE(*info().eta, before - 2s) << "what is over is not to come any more";
  w.now = w.now + 10min;
  EXPECT_FALSE(info().eta);
  EXPECT_SAYS(info().basis, "longer than it should");
}

TEST(Prospects, ASpotLeaseThatIsEndedHasItsTime) {
  Card w;
  Lease lease = w.want(20 * GiB, Tier::spot, "crawl");
  lease.pausable = Pausable::no;
  const LeaseId spot = w.submit(lease, true);
  w.attach(spot);
  const LeaseId urgent = w.start(10 * GiB, Tier::batch);
  EXPECT_FALSE(queue_info(w.state, w.rules, w.at(urgent), w.now).eta);
}

TEST(Prospects, WhomHostMemoryCannotTakeNobodyCountsOn) {
  Card w;
  w.rules.ledger_limit = 12 * GiB;
  const LeaseId batch = w.start(20 * GiB, Tier::batch);
  const LeaseId urgent = w.start(10 * GiB, Tier::interactive, "infer");
  EXPECT_EQ(w.state.plans().size(), 0U) << "nobody is asked in vain";
  EXPECT_FALSE(queue_info(w.state, w.rules, w.at(urgent), w.now).eta);
  const VictimPlan room = victim_plan(w.state, w.rules, w.at(urgent), PreemptionRequest{w.at(urgent).uid, true}, w.now);
  EXPECT_FALSE(room.found);
  ASSERT_EQ(room.ineligible.size(), 1U);
  EXPECT_EQ(room.ineligible[0].lease, batch);
  EXPECT_EQ(room.ineligible[0].code, IneligibleCode::obstacle);
  EXPECT_SAYS(room.ineligible[0].why, "12.0 GiB");
  EXPECT_FALSE(w.step(Preempt{urgent, 0, PreemptionRequest{w.at(urgent).uid, true}}).outcome.has_value())
      << "no word is taken for it";
  w.rules.ledger_limit = 20 * GiB;
  EXPECT_TRUE(victim_plan(w.state, w.rules, w.at(urgent), {}, w.now).found);
}

TEST(Prospects, AWordIsTakenWhileTheVictimIsComingBack) {
  OnItsWay w(Tier::standard);
  w.rules.automatic = false;
  const LeaseId next = w.submit(w.want(10 * GiB, Tier::standard, "next"), true);
  const PreemptionRequest by{w.at(next).uid, false};
  const VictimPlan room = victim_plan(w.state, w.rules, w.at(next), by, w.now);
  ASSERT_TRUE(room.found);
  EXPECT_EQ(room.victims.front().lease, w.back);
  EXPECT_EQ(room.victims.front().bytes, 20 * GiB) << "what it will hold, not what it holds yet";
  EXPECT_SAYS(room.wait_for, "lease-1 (back, ana): it is resuming, for about ");
  ASSERT_TRUE(room.wait);
  EXPECT_GT(*room.wait, Duration{});
  ASSERT_TRUE(w.step(Preempt{next, 0, by}).outcome);
  EXPECT_SAYS(w.reason(next, ReasonKind::preemption_requested).text("later"), "lease-1");
  EXPECT_EQ(w.state_of(next), LeaseState::queued);
  w.obey();
  EXPECT_EQ(w.state_of(next), LeaseState::active);
  EXPECT_EQ(w.state_of(w.back), LeaseState::paused);
}

TEST(Prospects, AWordIsTakenWhileTheVictimIsLeftAlone) {
  Card w;
  w.rules.automatic = false;
  const LeaseId first = w.start(20 * GiB, Tier::standard, "first");
  const LeaseId next = w.submit(w.want(10 * GiB, Tier::standard, "next"), true);
  const PreemptionRequest by{w.at(next).uid, false};
  w.step(Preempt{next, 0, by});
  w.obey(HostMemory{4 * GiB, std::nullopt}, 1);
  const VictimPlan room = victim_plan(w.state, w.rules, w.at(next), by, w.now);
  EXPECT_TRUE(room.found);
  EXPECT_FALSE(room.wait) << "who says that it can then?";
  EXPECT_SAYS(room.wait_for, "host memory");
  EXPECT_TRUE(w.step(Preempt{next, 0, by}).outcome);
  w.live(15s);
  EXPECT_EQ(w.state_of(next), LeaseState::active);
  EXPECT_EQ(w.state_of(first), LeaseState::paused);
}

// Two users of equal standing.
struct Equals : Card {
  Equals() { rules.min_residency = 100s; }
  LeaseId of(std::uint32_t uid, Bytes vram, Pausable pausable = Pausable::automatic) {
    Lease lease = want(vram, Tier::standard, "train");
    lease.uid = uid;
    lease.user = uid == 1000 ? "ana" : "ben";
    lease.pausable = pausable;
    const LeaseId id = submit(lease, true);
    if (state_of(id) == LeaseState::active) attach(id);
    return id;
  }
  Error refused(LeaseId id) {
    const Result<LeaseId> outcome = step(Preempt{id, 0, {at(id).uid, false}}).outcome;
    EXPECT_FALSE(outcome);
    return outcome ? Error{} : outcome.error();
  }
};

TEST(Prospects, ARefusalBetweenEqualsSaysWhenTheTurnComesAndWhoElseCan) {
  Equals w;
  w.of(1000, 20 * GiB);
  const LeaseId next = w.of(1001, 10 * GiB);
  const Error refusal = w.refused(next);
  EXPECT_EQ(refusal.code, Code::CannotPreempt);
  EXPECT_SAYS(refusal.hint, "it waits for about ");
  EXPECT_SAYS(refusal.hint, ": its time slice begins then: lease-1 (train, ana) is paused");
  EXPECT_SAYS(refusal.hint,
              "a request by an admin would pause lease-1 (train, ana), and so can its owner: `sublet pause "
              "lease-1`");
}

TEST(Prospects, ARefusalNamesWhatTheUserCouldGiveUp) {
  Equals w;
  w.of(1001, 20 * GiB, Pausable::no);
  const LeaseId next = w.of(1001, 10 * GiB);
  EXPECT_EQ(w.refused(next).hint, "`sublet stop lease-1` ends a lease of the same user, which would free enough");
}

// A program that Sublet did not start is paused with a pause grant: no advice says only to end it.
TEST(Prospects, ARefusalNamesTheGrantThatIsLacking) {
  Equals w;
  const LeaseId first = w.of(1001, 20 * GiB);
  Attach attach{first, 0, w.at(first).owner, true, {}};
  attach.owner.keeper = {};
  ASSERT_TRUE(w.step(attach).outcome.has_value());
  const LeaseId next = w.of(1001, 10 * GiB);
  EXPECT_SAYS(w.refused(next).hint, "`sublet pause --grant train` lets its programs be parked; `kill ");
  const auto helps = what_would_help(w.state, w.rules, w.at(next), w.now);
  EXPECT_TRUE(std::ranges::any_of(helps, [](const std::string& help) {
    return contains(help, "who can let it be parked (`sublet pause --grant train`) or end it");
  }));
  w.step(Grant{w.at(first).uid, w.at(first).consumer});
  EXPECT_TRUE(w.step(Preempt{next, 0, {1001, false}}).outcome) << "as the hint says";
}

TEST(Prospects, NobodyIsToldToResumeWhatNeverRunsAgain) {
  Equals w;
  const LeaseId first = w.of(1001, 20 * GiB);
  ASSERT_TRUE(w.step(Pause{first, 0, {}, plenty}).outcome.has_value());
  w.obey();
  EXPECT_SAYS(w.refused(first).hint, "`sublet resume lease-1`");
  w.step(Resume{first});
  w.step(Unparked{first, Unparked::How::never, "the driver says 2"});
  EXPECT_SAYS(w.refused(first).hint, "`sublet stop lease-1` ends it");
}

TEST(Prospects, ARefusalWithoutAnyWayOutSaysWhereToLook) {
  Equals w;
  w.of(1000, 20 * GiB, Pausable::no);
  const LeaseId next = w.of(1001, 10 * GiB);
  EXPECT_EQ(w.refused(next).hint, "`sublet why lease-2` says what would help");
}

TEST(Prospects, WhyOffersTheOwnersOwnWord) {
  Equals w;
  w.of(1001, 20 * GiB);
  const LeaseId next = w.of(1001, 10 * GiB);
  const auto helps = what_would_help(w.state, w.rules, w.at(next), w.now);
  EXPECT_SAYS(helps.at(0),
              "a request by its owner is enough: `sublet preempt lease-2` pauses lease-1 (train, ben) of the same "
              "user for it; its pause takes about ");
  EXPECT_SAYS(helps.at(2), "it is the same user's, who can pause it (`sublet pause lease-1`) or end it");
  w.step(Preempt{next, 0, {1001, false}});
  EXPECT_FALSE(contains(what_would_help(w.state, w.rules, w.at(next), w.now).at(0), "word is enough"))
      << "it was said already";
  Equals v;
  v.of(1000, 20 * GiB);
  const LeaseId other = v.of(1001, 10 * GiB);
  for (const std::string& help : what_would_help(v.state, v.rules, v.at(other), v.now))
    EXPECT_FALSE(contains(help, "sublet preempt")) << help;
}

}  // namespace
}  // namespace sublet::core::testing
