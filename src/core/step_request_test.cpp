// SPDX-License-Identifier: Apache-2.0
// A lease that got its memory by a preemption request keeps it against the leases that the request reached.
#include "core/testing/ideal_executor.h"

namespace sublet::core::testing {
namespace {

// A of a low tier, and one of the same user above it that has the room.
struct Word : Card {
  LeaseId above, low;
  explicit Word(bool admins = false) {
    above = start(20 * GiB, Tier::standard, "above");
    low = submit(want(10 * GiB, Tier::batch, "low"), true);
    EXPECT_TRUE(step(Preempt{low, 0, PreemptionRequest{admins ? 0U : 1000U, admins}}).outcome.has_value());
    obey();
    EXPECT_EQ(state_of(low), LeaseState::active);
    attach(low);
  }
};

TEST(Word, WhoYieldedOnItDoesNotTakeItsRoomBack) {
  for (const bool admins : {false, true}) {
    Word w(admins);
    EXPECT_EQ(w.state_of(w.above), LeaseState::paused);
    const PauseCause& cause = w.at(w.above).parking->cause;
    EXPECT_EQ(cause.kind, admins ? PauseCauseKind::admin_preemption : PauseCauseKind::owner_preemption);
    EXPECT_EQ(cause.preemptor, w.low);
    w.live(300s);
    EXPECT_EQ(w.state_of(w.low), LeaseState::active) << "no two displace each other back and forth";
    const auto helps = what_would_help(w.state, w.rules, w.at(w.above), w.now);
    EXPECT_TRUE(std::any_of(helps.begin(), helps.end(), [&](const std::string& help) {
      return contains(help, to_string(w.low)) &&
             contains(help, admins ? "an administrator requested" : "its owner requested");
    }));
    w.quit(w.low);
    EXPECT_EQ(w.state_of(w.above), LeaseState::active) << "then it comes back";
  }
}

// Two leases are paused for the request: the first stands above the preemptor, the second does not.
TEST(Word, TheFirstWhoYieldsOnItStaysAwayUntilTheLastHas) {
  for (const bool admins : {false, true}) {
    Card w;
    const LeaseId above = w.start(6 * GiB, Tier::standard, "above");
    const LeaseId equal = w.start(14 * GiB, Tier::batch, "equal");
    const LeaseId meant = w.submit(w.want(22 * GiB, Tier::batch, "meant"), true);
    ASSERT_TRUE(w.step(Preempt{meant, 0, PreemptionRequest{admins ? 0U : 1000U, admins}}).outcome.has_value());
    w.live(60s);
    EXPECT_EQ(w.state_of(meant), LeaseState::active);
    EXPECT_EQ(w.times_told(above, ReasonKind::paused), 1);
    EXPECT_EQ(w.times_told(above, ReasonKind::resumed), 0) << "not into the room that it has made";
    EXPECT_EQ(w.times_told(equal, ReasonKind::paused), 1);
  }
}

// Its next victim ends just then, and what that held is not measured gone.
TEST(Word, WhatWasMadeOnItIsKeptWhileAReadingIsLate) {
  Card w;
  const LeaseId above = w.start(6 * GiB, Tier::standard, "above");
  const LeaseId equal = w.start(14 * GiB, Tier::batch, "equal");
  const LeaseId meant = w.submit(w.want(22 * GiB, Tier::batch, "meant"), true);
  w.step(Preempt{meant, 0, PreemptionRequest{1000, false}});
  w.obey(plenty, 2);  // the first is weighed, and yields
  ASSERT_EQ(w.state_of(above), LeaseState::paused);
  w.now = w.now + w.rules.max_age + 1s;
  w.step(Tick{});
  w.measure();
  w.step(ProgramEnded{equal, 0, false});
  EXPECT_EQ(w.state_of(above), LeaseState::paused);
  w.programs.erase(equal);
  w.live(60s);
  EXPECT_EQ(w.state_of(meant), LeaseState::active);
  EXPECT_EQ(w.times_told(above, ReasonKind::resumed), 0);
}

TEST(Word, WhoYieldedOnItIsLetInAtMostOnceByARestart) {
  Card w;
  const LeaseId above = w.start(6 * GiB, Tier::standard, "above");
  w.start(14 * GiB, Tier::batch, "equal");
  const LeaseId meant = w.submit(w.want(22 * GiB, Tier::batch, "meant"), true);
  w.step(Preempt{meant, 0, PreemptionRequest{1000, false}});
  w.obey(plenty, 2);  // the first is weighed, and yields
  ASSERT_EQ(w.state_of(above), LeaseState::paused);
  w.restart();
  w.step(HeldChanged{meant, true});
  w.measure();
  w.live(60s);
  EXPECT_EQ(w.state_of(meant), LeaseState::active);
  EXPECT_LE(w.times_told(above, ReasonKind::resumed), 1);
}

TEST(Word, AnAdministratorsIsNotMadeLessByItsOwners) {
  Card w;
  w.rules.ledger_limit = 128 * GiB;
  Lease theirs = w.want(20 * GiB, Tier::standard, "theirs");
  theirs.uid = 1001;
  const LeaseId other = w.submit(theirs, true);
  w.attach(other);
  const LeaseId meant = w.submit(w.want(10 * GiB, Tier::batch, "meant"), true);
  ASSERT_TRUE(w.step(Preempt{meant, 0, PreemptionRequest{0, true}}).outcome.has_value());
  ASSERT_TRUE(w.step(Preempt{meant, 0, PreemptionRequest{1000, false}}).outcome.has_value());
  EXPECT_TRUE(w.at(meant).preemption_request->any_user);
  w.obey();
  EXPECT_EQ(w.state_of(meant), LeaseState::active);
}

// One is paused for it, and then one is ended who cannot be: nobody comes back into what the first has made free.
TEST(Word, WhatYieldsOnItDoesNotGoBackWhenTheNextIsEnded) {
  Card w;
  Lease pinned = w.want(14 * GiB, Tier::spot, "pinned");
  pinned.pausable = Pausable::no;
  const LeaseId ends = w.submit(pinned, true);
  w.attach(ends);
  const LeaseId parks = w.start(6 * GiB, Tier::spot, "parks");
  const LeaseId meant = w.submit(w.want(22 * GiB, Tier::standard, "meant"), true);
  w.step(Preempt{meant, 0, PreemptionRequest{1000, false}});
  w.obey();
  ASSERT_EQ(w.at(ends).end_reason, EndReason::revoked);
  EXPECT_EQ(w.state_of(parks), LeaseState::paused);
  w.quit(ends);
  w.live(5s);
  EXPECT_EQ(w.state_of(meant), LeaseState::active);
  EXPECT_EQ(w.state_of(parks), LeaseState::paused);
  EXPECT_EQ(w.times_told(parks, ReasonKind::resuming), 0) << "it has not been away twice";
}

TEST(Word, OutlivesARestart) {
  Word w;
  w.restart();
  w.measure();
  w.live(60s);
  EXPECT_EQ(w.state_of(w.low), LeaseState::active);
}

// Two wait for as much, and an administrator has room made for the second.
TEST(Word, WhatYieldsOnItDoesNotGoToWhoStandsBefore) {
  for (const Duration waited : {0s, 310s}) {
    Card w;
    w.rules.min_residency = 3600s;
    const LeaseId holder = w.start(20 * GiB, Tier::standard, "holder");
    const LeaseId first = w.submit(w.want(15 * GiB, Tier::standard, "first"), true);
    w.live(waited);
    const LeaseId meant = w.submit(w.want(15 * GiB, Tier::standard, "meant"), true);
    ASSERT_TRUE(w.step(Preempt{meant, 0, PreemptionRequest{1000, true}}).outcome.has_value());
    w.obey();
    EXPECT_EQ(w.state_of(holder), LeaseState::paused);
    EXPECT_EQ(w.state_of(meant), LeaseState::active) << "after " << waited.count();
    EXPECT_EQ(w.state_of(first), LeaseState::queued);
  }
}

TEST(Word, DoesNotKeepBackWhoGoesAheadOfIt) {
  Card w;
  w.rules.min_residency = 3600s;
  w.start(20 * GiB, Tier::standard, "holder");
  const LeaseId meant = w.submit(w.want(15 * GiB, Tier::standard, "meant"), true);
  ASSERT_TRUE(w.step(Preempt{meant, 0, PreemptionRequest{1000, true}}).outcome.has_value());
  const LeaseId urgent = w.submit(w.want(15 * GiB, Tier::interactive, "urgent"), true);
  w.obey();
  EXPECT_EQ(w.state_of(urgent), LeaseState::active);
}

// One whose growth was ordered, and another of its user that yielded for it.
struct Growth : Card {
  LeaseId other = start(10 * GiB, Tier::standard, "other");
  LeaseId grows = start(10 * GiB, Tier::batch, "tree_changing");
  Growth() {
    step(Resize{grows, 0, 16 * GiB});
    EXPECT_TRUE(step(Preempt{grows, 0, PreemptionRequest{1000, true}}).outcome.has_value());
    obey();
    EXPECT_EQ(at(grows).vram, 16 * GiB);
    EXPECT_EQ(state_of(other), LeaseState::paused);
  }
};

TEST(Word, OfAGrowthOutlivesARestart) {
  for (const bool restart : {false, true}) {
    Growth w;
    ASSERT_TRUE(w.at(w.grows).preemption_request);
    EXPECT_GT(w.at(w.grows).preemption_request->given_at, w.at(w.grows).granted_at);
    if (restart) w.restart();
    w.live(300s);
    EXPECT_EQ(w.state_of(w.grows), LeaseState::active) << "the other waits for it";
    EXPECT_EQ(w.state_of(w.other), LeaseState::paused);
  }
}

TEST(Word, ThatWasCarriedOutBeforeThatWasNotedIsNotedAfterARestart) {
  Word w;
  std::vector<Lease> stored = w.stored();
  for (Lease& lease : stored)
    if (lease.preemption_request) lease.preemption_request->given_at.reset();  // as by an earlier version
  w.state = State::load(stored, {}, w.state.last_id(), w.rules, w.now);
  w.step(Tick{});
  EXPECT_EQ(w.at(w.low).preemption_request->given_at, w.now);
  EXPECT_EQ(w.told(w.low).preemption_request->given_at, w.now);
}

TEST(Word, OutlivesAPauseThatFails) {
  for (const bool restart : {false, true}) {
    Word w;
    ASSERT_TRUE(w.step(Pause{w.low, 0, {}, plenty}).outcome.has_value());
    EXPECT_TRUE(w.at(w.low).preemption_request) << "until it is paused";
    if (restart) w.restart();
    else w.step(Parked{w.low, false, "it is traced"});
    ASSERT_EQ(w.state_of(w.low), LeaseState::resuming);
    w.obeyed = w.actions.size();
    w.step(Unparked{w.low});
    w.measure();
    w.live(300s);
    EXPECT_EQ(w.state_of(w.low), LeaseState::active) << "who yielded for it waits still";
    EXPECT_EQ(w.state_of(w.above), LeaseState::paused);
  }
}

TEST(Word, APauseThatFailsIsNoNewOne) {
  Word w;
  w.rules.min_residency = 40s;
  w.rules.cooldown = 1s;
  const LeaseId later = w.submit(w.want(20 * GiB, Tier::standard, "later"), true);
  w.step(Pause{w.low, 0, {}, plenty});
  w.step(Parked{w.low, false, "it is traced"});
  w.obeyed = w.actions.size();
  w.step(Unparked{w.low});
  w.live(100s);
  EXPECT_EQ(w.state_of(w.low), LeaseState::paused) << "who came after the word may have it yield";
  EXPECT_EQ(w.state_of(later), LeaseState::queued);
}

TEST(Word, AnotherOneGoesBeforeIt) {
  Word w;
  ASSERT_TRUE(w.step(Preempt{w.above, 0, PreemptionRequest{1000, false}}).outcome.has_value());
  w.obey();
  EXPECT_EQ(w.state_of(w.above), LeaseState::active);
  EXPECT_EQ(w.state_of(w.low), LeaseState::paused);
  w.live(60s);
  EXPECT_EQ(w.state_of(w.above), LeaseState::active);
}

TEST(Word, WhoComesLaterLeavesItTheTimeOfATurn) {
  Word w;
  w.rules.min_residency = 40s;
  const LeaseId later = w.submit(w.want(20 * GiB, Tier::standard, "later"), true);
  w.live(30s);
  EXPECT_EQ(w.state_of(w.low), LeaseState::active);
  w.live(30s);
  EXPECT_EQ(w.state_of(w.low), LeaseState::paused) << "then its tier counts";
  EXPECT_EQ(w.state_of(w.above), LeaseState::active) << "who stands first is first";
  EXPECT_EQ(w.state_of(later), LeaseState::queued);
  EXPECT_FALSE(w.at(w.low).preemption_request) << "the word was about the room that it had";
}

TEST(Word, DoesNotHoldAgainstTheCriticalThatComeLater) {
  Word w;
  w.rules.min_residency = 1h;
  w.start(20 * GiB, Tier::critical, "alarm");
  w.obey();
  EXPECT_EQ(w.state_of(w.low), LeaseState::paused);
}

TEST(Word, ReachesNobodyElsesPrograms) {
  Card w;
  w.rules.min_residency = 40s;
  w.rules.ledger_limit = 128 * GiB;
  const LeaseId own = w.start(20 * GiB, Tier::standard);
  Lease theirs = w.want(20 * GiB, Tier::standard, "theirs");
  theirs.uid = 1001;
  theirs.pausable = Pausable::no;  // it takes no turns
  w.rules.automatic = false;
  const LeaseId other = w.submit(theirs, true);
  const LeaseId low = w.submit(w.want(10 * GiB, Tier::batch, "low"), true);
  w.live(1s);
  ASSERT_TRUE(w.step(Preempt{low, 0, PreemptionRequest{1000, false}}).outcome.has_value());
  w.obey();
  ASSERT_EQ(w.state_of(own), LeaseState::paused);
  ASSERT_EQ(w.state_of(low), LeaseState::active);
  w.attach(low);
  w.rules.automatic = true;
  w.live(20s);
  EXPECT_EQ(w.state_of(low), LeaseState::active) << "it has only just been given its room";
  w.live(40s);
  EXPECT_EQ(w.state_of(low), LeaseState::paused);
  EXPECT_EQ(w.state_of(other), LeaseState::active);
}

TEST(Word, WhoseProgramsCannotYieldStillHasTurnsWithOthers) {
  Card w;
  w.rules.min_residency = 40s;
  w.rules.ledger_limit = 128 * GiB;
  const LeaseId own = w.start(8 * GiB, Tier::standard, "own");
  Lease theirs = w.want(12 * GiB, Tier::standard, "theirs");
  theirs.uid = 1001;
  const LeaseId other = w.submit(theirs, true);
  w.attach(other);
  const LeaseId waits = w.submit(w.want(11 * GiB, Tier::standard, "waits"), true);
  ASSERT_TRUE(w.step(Preempt{waits, 0, PreemptionRequest{1000, false}}).outcome.has_value());
  w.programs[LeaseId{}] = {999, 4 * GiB};  // of nobody: what yields for the word is not enough any more
  w.measure();
  w.obey();
  ASSERT_EQ(w.state_of(own), LeaseState::active);
  w.live(120s);
  EXPECT_EQ(w.state_of(waits), LeaseState::active) << "as if nobody had said a word";
}

TEST(Word, EndsWithTheRoomThatItWasAbout) {
  Word w;
  w.step(Resize{w.low, 0, 24 * GiB});
  ASSERT_TRUE(w.at(w.low).resize);
  EXPECT_FALSE(w.at(w.low).preemption_request) << "who asks for more asks as everybody does";
  Word fits;
  fits.step(Resize{fits.low, 0, 12 * GiB});
  EXPECT_EQ(fits.at(fits.low).vram, 12 * GiB);
  EXPECT_FALSE(fits.at(fits.low).preemption_request) << "and who gets it at once as well";
}

TEST(Word, IsAboutAsMuchAsWasAskedForThen) {
  for (const Bytes then : {20 * GiB, 16 * GiB, 10 * GiB}) {
    Card w;
    const LeaseId other = w.start(10 * GiB, Tier::standard, "other");
    const LeaseId grows = w.start(10 * GiB, Tier::batch, "tree_changing");
    w.step(Resize{grows, 0, 16 * GiB});
    ASSERT_TRUE(w.step(Preempt{grows, 0, PreemptionRequest{1000, true}}).outcome.has_value());
    w.obey(plenty, 1);
    ASSERT_EQ(w.state_of(other), LeaseState::pausing);
    ASSERT_TRUE(w.at(grows).preemption_request);
    ASSERT_TRUE(w.step(Resize{grows, 0, then}).outcome.has_value());
    EXPECT_EQ(w.at(grows).preemption_request.has_value(), then == 16 * GiB)
        << "no more, and not if it is not needed any more";
    EXPECT_EQ(w.state.preemption_request(grows).has_value(), then == 16 * GiB);
  }
}

}  // namespace
}  // namespace sublet::core::testing
