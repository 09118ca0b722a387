// SPDX-License-Identifier: Apache-2.0
#include "core/testing/ideal_executor.h"
#include "explain/rehearse.h"

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
    const auto thought = explain::rehearse(w.state, w.rules, Submit{large, true}, w.now);
    ASSERT_TRUE(thought.has_value());
    EXPECT_EQ(thought->would, explain::Would::preempt);
    const LeaseId asks = w.submit(large, true);
    for (int i = 0; i < 3 && w.state_of(asks) == LeaseState::queued; ++i) {
      EXPECT_NE(w.info(asks).basis, "");
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
  // The estimate is about what then happens.
  void expect_estimate(LeaseId id) {
    const std::optional<Duration> eta = info(id).eta;
    ASSERT_TRUE(eta);
    const Time from = now;
    while (state_of(id) == LeaseState::queued && now < from + 10min) live(100ms);
    EXPECT_EQ(states(id), "active");
    EXPECT_GT(*eta, (now - from) / 2);
    EXPECT_LT(*eta, (now - from) * 2);
  }
};

TEST(Prospects, OfAHigherTierWhoseVictimIsOnlyJustComingBackOrBackForAMoment) {
  for (const bool back : {false, true}) {
    OnItsWay w;
    if (back) w.obey();
    ASSERT_EQ(w.states(w.back), back ? "active" : "resuming");
    const LeaseId next = w.queue(10 * GiB, Tier::interactive, "next");
    EXPECT_EQ(plan_for(w.state, next), nullptr);
    const std::string basis = w.info(next).basis;
    EXPECT_SAYS(basis, back ? "it resumed from a pause less than 2 s ago" : "it is resuming, for about ");
    EXPECT_SAYS(basis, "; then its pause takes about ");
    w.expect_estimate(next);
  }
  OnItsWay w;
  w.queue(10 * GiB, Tier::interactive, "first");
  EXPECT_FALSE(w.info(w.queue(10 * GiB, Tier::interactive, "second")).eta) << "the first may take the room";
}

TEST(Prospects, WhosePauseFailedOrWhoseProgramIsEndedPromisesNothing) {
  Card w;
  w.ram = {4 * GiB, std::nullopt};
  const LeaseId batch = w.start(20 * GiB, Tier::batch), urgent = w.start(10 * GiB, Tier::interactive, "infer");
  EXPECT_FALSE(w.info(urgent).eta);
  EXPECT_SAYS(w.info(urgent).basis, to_string(batch) + " (train, ana): its pause could not begin");

  Card spot;
  spot.pinned(20 * GiB, Tier::spot, "crawl");
  EXPECT_FALSE(spot.info(spot.start(10 * GiB, Tier::batch)).eta) << "it has its time";
}

TEST(Prospects, WhoTakesLongerThanItEverShouldPromisesNothing) {
  Card w;
  const LeaseId batch = w.start(20 * GiB, Tier::batch), urgent = w.start(10 * GiB, Tier::interactive, "infer");
  EXPECT_SAYS(w.info(urgent).basis, "by pausing lease-1 (train, ana): its pause takes about ");
  const Duration before = *w.info(urgent).eta;
  ASSERT_EQ(w.states(batch), "pausing");
  w.now = w.now + 2s;
  EXPECT_LE(*w.info(urgent).eta, before - 2s) << "what is over is not to come any more";
  w.now = w.now + 10min;
  EXPECT_FALSE(w.info(urgent).eta);
  EXPECT_SAYS(w.info(urgent).basis, "longer than it should");
}

TEST(Prospects, WhomHostMemoryCannotTakeNobodyCountsOn) {
  Card w;
  w.rules.ledger_limit = 12 * GiB;
  const LeaseId batch = w.start(20 * GiB, Tier::batch), urgent = w.start(10 * GiB, Tier::interactive, "infer");
  EXPECT_EQ(w.state.preemption.plans.size(), 0U) << "nobody is asked in vain";
  EXPECT_FALSE(w.info(urgent).eta);
  const PreemptionRequest by{1000, true};
  const VictimPlan room = explain::victim_plan(w.state, w.rules, w.at(urgent), by, w.now);
  EXPECT_FALSE(room.found);
  ASSERT_EQ(room.ineligible.size(), 1U);
  EXPECT_EQ(room.ineligible[0].lease, batch);
  EXPECT_EQ(room.ineligible[0].code, IneligibleCode::obstacle);
  EXPECT_SAYS(room.ineligible[0].why, "12.0 GiB");
  EXPECT_FALSE(w.accepts(Preempt{urgent, 0, by})) << "no word is taken for it";
  w.rules.ledger_limit = 20 * GiB;
  EXPECT_TRUE(explain::victim_plan(w.state, w.rules, w.at(urgent), {}, w.now).found);
}

TEST(Prospects, AWordIsTakenWhileTheVictimIsComingBack) {
  OnItsWay w(Tier::standard);
  w.rules.automatic = false;
  const LeaseId next = w.queue(10 * GiB, Tier::standard, "next");
  const PreemptionRequest by{1000, false};
  const VictimPlan room = explain::victim_plan(w.state, w.rules, w.at(next), by, w.now);
  ASSERT_TRUE(room.found);
  EXPECT_EQ(room.victims.front().lease, w.back);
  EXPECT_EQ(room.victims.front().bytes, 20 * GiB) << "what it will hold, not what it holds yet";
  EXPECT_SAYS(room.wait_for, "lease-1 (back, ana): it is resuming, for about ");
  ASSERT_TRUE(room.wait);
  EXPECT_GT(*room.wait, Duration{});
  ASSERT_TRUE(w.accepts(Preempt{next, 0, by}));
  EXPECT_SAYS(w.reason(next, ReasonKind::preemption_requested).text("later"), "lease-1");
  EXPECT_EQ(w.states(next), "queued");
  w.obey();
  EXPECT_EQ(w.states(next, w.back), "active paused");
}

TEST(Prospects, AWordIsTakenWhileTheVictimIsLeftAlone) {
  Card w;
  w.rules.automatic = false;
  w.ram = {4 * GiB, std::nullopt};
  const LeaseId first = w.start(20 * GiB, Tier::standard, "first"), next = w.queue(10 * GiB, Tier::standard, "next");
  const PreemptionRequest by{1000, false};
  w.step(Preempt{next, 0, by});
  const VictimPlan room = explain::victim_plan(w.state, w.rules, w.at(next), by, w.now);
  EXPECT_TRUE(room.found);
  EXPECT_FALSE(room.wait) << "who says that it can then?";
  EXPECT_SAYS(room.wait_for, "host memory");
  w.ram = plenty;
  EXPECT_TRUE(w.accepts(Preempt{next, 0, by}));
  w.live(15s);
  EXPECT_EQ(w.states(next, first), "active paused");
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
  // The refusal as the API tells it: the advice is that of the preview.
  Error refused(LeaseId id) {
    const PreemptionRequest by{at(id).uid, false};
    const VictimPlan preview = explain::victim_plan(state, rules, at(id), by, now);
    Error error = refusal(Preempt{id, 0, by});
    if (error.hint.empty()) error.hint = preview.hint;
    return error;
  }
};

TEST(Prospects, ARefusalSaysWhatElseCanBeDone) {
  const struct {
    std::uint32_t holder;
    Pausable pausable;
    std::vector<std::string> hints;
  } rows[] = {
      {1000,
       Pausable::automatic,
       {"it waits for about ", ": its time slice begins then: lease-1 (train, ana) is paused",
        "a request by an admin would pause lease-1 (train, ana), and so can its owner: `sublet pause lease-1`"}},
      {1001, Pausable::no, {"`sublet stop lease-1` ends a lease of the same user, which would free enough"}},
      {1000, Pausable::no, {"`sublet why lease-2` says what would help"}},
  };
  for (const auto& row : rows) {
    Equals w;
    w.of(row.holder, 20 * GiB, row.pausable);
    const Error refusal = w.refused(w.of(1001, 10 * GiB));
    EXPECT_EQ(refusal.code, Code::CannotPreempt);
    for (const std::string& hint : row.hints) EXPECT_SAYS(refusal.hint, hint);
  }
}

// A program that Sublet did not start is paused with a pause grant: no advice says only to end it.
TEST(Prospects, ARefusalNamesTheGrantThatIsLacking) {
  Equals w;
  const LeaseId first = w.of(1001, 20 * GiB);
  Attach attach{first, 0, w.at(first).owner, true, {}};
  attach.owner.keeper = {};
  ASSERT_TRUE(w.accepts(attach));
  const LeaseId next = w.of(1001, 10 * GiB);
  EXPECT_SAYS(w.refused(next).hint, "`sublet pause --grant train` lets its programs be parked; `kill ");
  EXPECT_SAYS(w.helps(next), "who can let it be parked (`sublet pause --grant train`) or end it");
  w.step(Grant{w.at(first).uid, w.at(first).consumer});
  EXPECT_TRUE(w.accepts(Preempt{next, 0, {1001, false}})) << "as the hint says";
}

TEST(Prospects, NobodyIsToldToResumeWhatNeverRunsAgain) {
  Equals w;
  const LeaseId first = w.of(1001, 20 * GiB);
  ASSERT_TRUE(w.accepts(Pause{first, 0, {}, plenty}));
  w.obey();
  EXPECT_SAYS(w.refused(first).hint, "`sublet resume lease-1`");
  w.step(Resume{first});
  w.step(AttemptEvent{first, Unparked{Unparked::How::never, "the driver says 2"}});
  EXPECT_SAYS(w.refused(first).hint, "`sublet stop lease-1` ends it");
}

TEST(Prospects, WhyOffersTheOwnersOwnWord) {
  for (const std::uint32_t holder : {1001U, 1000U}) {
    Equals w;
    w.of(holder, 20 * GiB);
    const LeaseId next = w.of(1001, 10 * GiB);
    const bool own = holder == 1001;
    EXPECT_EQ(contains(w.helps(next), "`sublet preempt lease-2` pauses lease-1 (train, ben) of the same user"), own);
    EXPECT_EQ(contains(w.helps(next), "who can pause it (`sublet pause lease-1`) or end it"), own);
    EXPECT_EQ(contains(w.helps(next), "sublet preempt"), own);
    if (!own) continue;
    w.step(Preempt{next, 0, {1001, false}});
    EXPECT_FALSE(contains(w.helps(next), "is enough: `sublet preempt")) << "it was said already";
  }
}

}  // namespace
}  // namespace sublet::core::testing
