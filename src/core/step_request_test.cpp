// SPDX-License-Identifier: Apache-2.0
// A lease that got its memory by a preemption request keeps it against the leases that the request reached.
#include "core/testing/ideal_executor.h"

namespace sublet::core::testing {
namespace {

// A lease of a low tier, and one of the same user above it that has the memory.
struct Word : Card {
  LeaseId above, low;
  explicit Word(bool admins = false) {
    above = start(20 * GiB, Tier::standard, "above");
    low = submit(want(10 * GiB, Tier::batch, "low"), true);
    EXPECT_TRUE(accepts(Preempt{low, 0, by(admins)}));
    obey();
    EXPECT_EQ(state_of(low), LeaseState::active);
    attach(low);
  }
  static PreemptionRequest by(bool admins) { return {admins ? 0U : 1000U, admins}; }
  void fail_to_pause() {
    ASSERT_TRUE(accepts(Pause{low, 0, {}, plenty}));
    step(AttemptEvent{low, Parked{false, "it is traced"}});
    obeyed = actions.size();
  }
};

// Two leases are paused for the request: the first stands above the preemptor, the second does not.
struct TwoYield : Card {
  LeaseId above = start(6 * GiB, Tier::standard, "above"), equal = start(14 * GiB, Tier::batch, "equal");
  LeaseId meant = queue(22 * GiB, Tier::batch, "meant");
  explicit TwoYield(bool admins = false) { EXPECT_TRUE(accepts(Preempt{meant, 0, Word::by(admins)})); }
  void let_first_yield() {
    obey(1);
    ASSERT_EQ(states(above), "paused");
  }
};

TEST(Word, WhoYieldedOnItDoesNotTakeItsRoomBack) {
  for (const bool admins : {false, true}) {
    Word w(admins);
    EXPECT_EQ(w.states(w.above), "paused");
    const PauseCause& cause = w.at(w.above).parking->cause;
    EXPECT_EQ(cause.kind, admins ? PauseCauseKind::admin_preemption : PauseCauseKind::owner_preemption);
    EXPECT_EQ(cause.preemptor, w.low);
    w.live(300s);
    EXPECT_EQ(w.states(w.low), "active") << "no two displace each other back and forth";
    EXPECT_SAYS(w.helps(w.above), admins ? "an admin requested" : "its owner requested");
    w.quit(w.low);
    EXPECT_EQ(w.states(w.above), "active") << "then it comes back";
  }
}

TEST(Word, TheFirstWhoYieldsOnItStaysAwayUntilTheLastHas) {
  enum class Between { nothing, admins, late_reading, restart };
  for (const Between between : {Between::nothing, Between::admins, Between::late_reading, Between::restart}) {
    SCOPED_TRACE(static_cast<int>(between));
    TwoYield w(between == Between::admins);
    if (between == Between::late_reading) {
      // Its next victim ends just then, and what that held is not measured gone.
      w.let_first_yield();
      w.now = w.now + w.rules.max_age + 1s;
      w.step(Tick{});
      w.measure();
      w.step(ProgramEnded{w.equal, 0, false});
      EXPECT_EQ(w.states(w.above), "paused");
      w.programs.erase(w.equal);
      w.obeyed = w.actions.size();
    }
    if (between == Between::restart) {
      w.let_first_yield();
      w.obeyed = w.actions.size();  // the orders of before are forgotten
      w.restart();
      w.step(HeldChanged{w.meant, true});
      w.measure();
    }
    w.live(60s);
    EXPECT_EQ(w.states(w.meant), "active");
    // Not into the memory that it freed; after a restart once.
    EXPECT_LE(w.times_told(w.above, ReasonKind::resumed), between == Between::restart ? 1 : 0);
    EXPECT_EQ(w.times_told(w.above, ReasonKind::paused), 1 + w.times_told(w.above, ReasonKind::resumed));
    EXPECT_TRUE(between > Between::admins || w.times_told(w.equal, ReasonKind::paused) == 1);
  }
}

TEST(Word, AnAdministratorsIsNotMadeLessByItsOwners) {
  Card w;
  w.rules.ledger_limit = 128 * GiB;
  w.theirs(1001, 20 * GiB, Tier::standard, "theirs");
  const LeaseId meant = w.queue(10 * GiB, Tier::batch, "meant");
  for (const bool admins : {true, false}) ASSERT_TRUE(w.accepts(Preempt{meant, 0, Word::by(admins)}));
  EXPECT_TRUE(w.at(meant).preemption_request->any_user);
  w.obey();
  EXPECT_EQ(w.states(meant), "active");
}

// One is paused for it, and then one is ended who cannot be: nobody comes back into what the first has made free.
TEST(Word, WhatYieldsOnItDoesNotGoBackWhenTheNextIsEnded) {
  Card w;
  const LeaseId ends = w.pinned(14 * GiB, Tier::spot, "pinned"), parks = w.start(6 * GiB, Tier::spot, "parks");
  const LeaseId meant = w.queue(22 * GiB, Tier::standard, "meant");
  w.step(Preempt{meant, 0, PreemptionRequest{1000, false}});
  w.obey();
  ASSERT_EQ(w.at(ends).end_reason, EndReason::revoked);
  EXPECT_EQ(w.states(parks), "paused");
  w.quit(ends);
  w.live(5s);
  EXPECT_EQ(w.states(meant, parks), "active paused");
  EXPECT_EQ(w.times_told(parks, ReasonKind::resuming), 0) << "it has not been away twice";
}

// An admin requested memory for one lease; another waits for as much, before it or with a higher tier after it.
TEST(Word, WhatYieldsOnItGoesToNobodyBeforeItButToAHigherTier) {
  const struct {
    const char* name;
    Duration waited;  // by the other, which has asked before
    Tier tier;        // of the other
  } rows[] = {
      {"just before it", 0s, Tier::standard},
      {"long before it", 310s, Tier::standard},
      {"a higher tier after it", 0s, Tier::interactive},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    Card w;
    w.rules.min_residency = 3600s;
    const LeaseId holder = w.start(20 * GiB, Tier::standard, "holder");
    const bool higher = row.tier == Tier::interactive;
    LeaseId other;
    if (!higher) other = w.queue(15 * GiB, row.tier, "other");
    w.live(row.waited);
    const LeaseId meant = w.queue(15 * GiB, Tier::standard, "meant");
    ASSERT_TRUE(w.accepts(Preempt{meant, 0, PreemptionRequest{1000, true}}));
    if (higher) other = w.queue(15 * GiB, row.tier, "other");
    w.obey();
    EXPECT_EQ(w.states(holder, meant, other), higher ? "paused queued active" : "paused active queued");
  }
}

// One whose growth was ordered, and another of its user that yielded for it.
struct Growth : Card {
  LeaseId other = start(10 * GiB, Tier::standard, "other");
  LeaseId grows = start(10 * GiB, Tier::batch, "tree_changing");
  Growth() {
    step(Resize{grows, 0, 16 * GiB});
    EXPECT_TRUE(accepts(Preempt{grows, 0, PreemptionRequest{1000, true}}));
  }
};

TEST(Word, OutlivesARestart) {
  for (const bool restart : {false, true}) {
    Growth w;
    w.obey();
    EXPECT_EQ(w.at(w.grows).vram, 16 * GiB);
    ASSERT_TRUE(w.at(w.grows).preemption_request);
    EXPECT_GT(w.at(w.grows).preemption_request->given_at, w.at(w.grows).granted_at);
    if (restart) w.restart();
    w.live(300s);
    EXPECT_EQ(w.states(w.grows, w.other), "active paused") << "the other waits for it";
  }
}

TEST(Word, ThatWasCarriedOutBeforeThatWasNotedIsNotedAfterARestart) {
  Word w;
  std::vector<Lease> stored = w.stored();
  for (Lease& lease : stored)
    if (lease.preemption_request) lease.preemption_request->given_at.reset();  // as by an earlier version
  w.state = State::load(stored, {}, w.state.leases.last_id, w.rules, w.now);
  w.step(Tick{});
  EXPECT_EQ(w.at(w.low).preemption_request->given_at, w.now);
  EXPECT_EQ(w.told(w.low).preemption_request->given_at, w.now);
}

TEST(Word, OutlivesAPauseThatFails) {
  for (const bool restart : {false, true}) {
    Word w;
    ASSERT_TRUE(w.accepts(Pause{w.low, 0, {}, plenty}));
    EXPECT_TRUE(w.at(w.low).preemption_request) << "until it is paused";
    if (restart) w.restart();
    else w.step(AttemptEvent{w.low, Parked{false, "it is traced"}});
    ASSERT_EQ(w.states(w.low), "resuming");
    w.obeyed = w.actions.size();
    w.step(AttemptEvent{w.low, Unparked{}});
    w.measure();
    w.live(300s);
    EXPECT_EQ(w.states(w.low, w.above), "active paused") << "who yielded for it waits still";
  }
}

TEST(Word, AnotherOneAndACriticalLeaseGoBeforeIt) {
  Word w;
  ASSERT_TRUE(w.accepts(Preempt{w.above, 0, PreemptionRequest{1000, false}}));
  w.obey();
  EXPECT_EQ(w.states(w.above, w.low), "active paused");
  w.live(60s);
  EXPECT_EQ(w.states(w.above), "active");

  Word v;
  v.rules.min_residency = 1h;
  v.start(20 * GiB, Tier::critical, "alarm");
  v.obey();
  EXPECT_EQ(v.states(v.low), "paused");
}

TEST(Word, WhoComesLaterLeavesItTheTimeOfATurn) {
  for (const bool fails : {false, true}) {
    Word w;
    w.rules.min_residency = 40s;
    w.rules.cooldown = 1s;
    const LeaseId later = w.queue(20 * GiB, Tier::standard, "later");
    if (fails) {  // a pause that fails is no new request
      w.fail_to_pause();
      w.step(AttemptEvent{w.low, Unparked{}});
    }
    w.live(30s);
    EXPECT_EQ(w.states(w.low), "active");
    w.live(30s);
    EXPECT_EQ(w.states(w.low, w.above, later), "paused paused active") << "the memory is for who may preempt it";
    EXPECT_FALSE(w.at(w.low).preemption_request) << "the word was about the room that it had";
  }
}

TEST(Word, ReachesNobodyElsesPrograms) {
  Card w;
  w.rules.min_residency = 40s;
  w.rules.ledger_limit = 128 * GiB;
  const LeaseId own = w.start(20 * GiB, Tier::standard);
  Lease theirs = w.want(20 * GiB, Tier::standard, "theirs");
  theirs.uid = 1001;
  theirs.pausable = Pausable::no;  // it has no time slices
  w.rules.automatic = false;
  const LeaseId other = w.submit(theirs, true), low = w.queue(10 * GiB, Tier::batch, "low");
  w.live(1s);
  ASSERT_TRUE(w.accepts(Preempt{low, 0, PreemptionRequest{1000, false}}));
  w.obey();
  ASSERT_EQ(w.states(own, low), "paused active");
  w.attach(low);
  w.rules.automatic = true;
  w.live(20s);
  EXPECT_EQ(w.states(low), "active") << "it has only just been given its room";
  w.live(40s);
  EXPECT_EQ(w.states(low, other), "paused active");
}

TEST(Word, WhoseProgramsCannotYieldStillHasTurnsWithOthers) {
  Card w;
  w.rules.min_residency = 40s;
  w.rules.ledger_limit = 128 * GiB;
  const LeaseId own = w.start(8 * GiB, Tier::standard, "own");
  w.theirs(1001, 12 * GiB, Tier::standard, "theirs");
  const LeaseId waits = w.queue(11 * GiB, Tier::standard, "waits");
  ASSERT_TRUE(w.accepts(Preempt{waits, 0, PreemptionRequest{1000, false}}));
  w.programs[LeaseId{}] = {999, 4 * GiB};  // of nobody: what yields for the word is not enough any more
  w.measure();
  w.obey();
  ASSERT_EQ(w.states(own), "active");
  w.live(120s);
  EXPECT_EQ(w.states(waits), "active") << "as if nobody had said a word";
}

TEST(Word, EndsWithTheRoomThatItWasAbout) {
  for (const Bytes more : {24 * GiB, 12 * GiB}) {
    Word w;
    w.ram = {};  // nothing is paused
    w.measure();
    w.step(Resize{w.low, 0, more});
    EXPECT_EQ(w.at(w.low).resize.has_value(), more == 24 * GiB) << "12 GiB fit at once";
    EXPECT_FALSE(w.at(w.low).preemption_request) << "who asks for more asks as everybody does";
  }
}

TEST(Word, IsAboutAsMuchAsWasAskedForThen) {
  for (const Bytes then : {20 * GiB, 16 * GiB, 10 * GiB}) {
    Growth w;
    ASSERT_EQ(w.states(w.other), "pausing");
    ASSERT_TRUE(w.at(w.grows).preemption_request);
    ASSERT_TRUE(w.accepts(Resize{w.grows, 0, then}));
    EXPECT_EQ(w.at(w.grows).preemption_request.has_value(), then == 16 * GiB)
        << "no more, and not if it is not needed any more";
    EXPECT_EQ(request_of(w.state, w.grows).has_value(), then == 16 * GiB);
  }
}

}  // namespace
}  // namespace sublet::core::testing
