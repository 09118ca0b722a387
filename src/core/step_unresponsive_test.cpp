// SPDX-License-Identifier: Apache-2.0
// Programs that do not answer a resume order: their leases can be ended, and keep nobody out for ever.
#include "core/testing/ideal_executor.h"

namespace sublet::core::testing {
namespace {

// A program that yields by itself, was paused, and is told in vain to go on.
struct Unresponsive : World {
  LeaseId id;
  std::size_t told = 0;  // of `actions`
  explicit Unresponsive(OwnerKind kind, Tier tier = Tier::standard) {
    snapshot({gpu(0, 24 * GiB)});
    if (kind == OwnerKind::process) {
      id = run(10 * GiB, 7, "serve");
    } else {
      Lease asked = wish(10 * GiB, "serve");
      asked.tier = tier;
      asked.owner.kind = kind;
      id = submit(asked, true);
    }
    Cooperation how;
    how.way = CooperationWay::webhook;
    how.address = "http://127.0.0.1:8080/";
    measure();
    EXPECT_TRUE(step(Cooperate{id, 0, how}).outcome.has_value());
    EXPECT_TRUE(step(Pause{id, 0, {}, plenty}).outcome.has_value());
    step(AttemptEvent{id, Parked{true, {}, Bytes{}}});
    measure(), measure();
    EXPECT_EQ(state_of(id), LeaseState::paused);
    step(LivenessReport{id, false});
    told = actions.size();
    step(Resume{id});
    EXPECT_EQ(state_of(id), LeaseState::resuming);
  }
  void measure() {
    now = now + 20ms;
    snapshot({gpu(0, 24 * GiB)});
  }
  // A lease that needs more than is free beside the unresponsive one.
  LeaseId urge() {
    Lease urgent = wish(20 * GiB, "chat");
    urgent.tier = Tier::critical;
    return submit(urgent, true);
  }
  bool stop(bool force = false) { return accepts(Release{.lease = id, .force = force, .stop = true}); }
  // As long as it does not answer, or what the code says is in the way.
  void live(Duration d, ObstacleCode code = ObstacleCode::late) {
    for (const Time until = now + d; now < until;) {
      for (; told < actions.size(); ++told)
        if (std::holds_alternative<Unpark>(actions[told]))
          step(AttemptEvent{id, Unparked{Unparked::How::not_yet, "it has not answered in time", plenty, code}});
      pass(1s);
      measure();
    }
  }
};

TEST(UnresponsiveReturn, CanBeEndedByWhoeverInsists) {
  for (const bool revoke : {false, true}) {
    Unresponsive w(OwnerKind::token);
    w.live(1min);
    ASSERT_EQ(w.states(w.id), "resuming");
    ASSERT_TRUE(w.accepts(Release{.lease = w.id, .force = !revoke, .stop = !revoke, .revoke = revoke}));
    EXPECT_TRUE(w.gone(w.id));
    w.measure();
    EXPECT_EQ(w.free(0), 24 * GiB - w.rules.headroom);
  }
  Unresponsive ours(OwnerKind::process);
  ASSERT_TRUE(ours.stop(/*force=*/true));
  EXPECT_EQ(ours.signals(ours.id, false), 1);
  ours.live(ours.rules.grace + 1s);
  EXPECT_EQ(ours.signals(ours.id, true), 1);
}

TEST(UnresponsiveReturn, WhoIsToEndThenIsEndedOnceItHadTheTimeToSaveItsWork) {
  Unresponsive w(OwnerKind::process);
  ASSERT_TRUE(w.stop());
  w.live(5s);
  EXPECT_EQ(w.signals(w.id, false), 0);
  w.live(w.rules.grace + 1min);
  EXPECT_EQ(w.signals(w.id, false), 1);

  Unresponsive others(OwnerKind::token);
  ASSERT_TRUE(others.stop());
  others.live(others.rules.grace + 1min);
  EXPECT_TRUE(others.gone(others.id));
}

TEST(UnresponsiveReturn, OfTheTierSpotYieldsToAHigherTierAfterItsMoment) {
  const struct {
    const char* name;
    Tier tier;
    bool beside, asked, ends;
  } rows[] = {
      {"its room is enough", Tier::spot, false, true, true},
      {"nothing but spot leases is ended for others", Tier::batch, false, true, false},
      {"nobody waits", Tier::spot, false, false, false},
      {"its room would not help", Tier::spot, true, true, false},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    Unresponsive w(OwnerKind::token, row.tier);
    EXPECT_TRUE(!row.beside || w.at(w.submit(wish(10 * GiB, "beside"))).reserves());
    const LeaseId preemptor = row.asked ? w.urge() : LeaseId{};
    w.live(w.rules.spot_unused_after - 5s);
    EXPECT_EQ(w.states(w.id), "resuming");
    w.live(row.ends ? 2min : 8min);
    EXPECT_EQ(w.states(w.id), row.ends ? "gone" : "resuming");
    if (!row.ends) continue;
    EXPECT_EQ(w.reason(w.id, ReasonKind::spot_unresponsive).text("end"), "revoked");
    EXPECT_EQ(w.reason(w.id, ReasonKind::spot_unresponsive).text("cause"), "tier");
    EXPECT_TRUE(w.at(preemptor).reserves());
  }
}

// Its memory, its driver, or the process that would tell it.
TEST(UnresponsiveReturn, WhatIsNotItsProgramsDoingEndsNobody) {
  for (const ObstacleCode code :
       {ObstacleCode::no_room, ObstacleCode::no_driver, ObstacleCode::traced, ObstacleCode::unreachable}) {
    SCOPED_TRACE(to_string(code));
    Unresponsive w(OwnerKind::token, Tier::spot);
    w.urge();
    w.live(10min, code);
    ASSERT_TRUE(w.accepts(Release{.lease = w.id, .revoke = true}));
    w.live(10min, code);
    EXPECT_EQ(w.states(w.id), "resuming");
    // Failures before the resume order say nothing about the program's answer.
    w.live(w.rules.grace - 5s);
    EXPECT_EQ(w.states(w.id), "resuming");
    w.live(1min);
    EXPECT_TRUE(w.gone(w.id));
  }
  Unresponsive ours(OwnerKind::process);
  ours.live(10min, ObstacleCode::no_room);
  ASSERT_TRUE(ours.accepts(Release{.lease = ours.id, .stop = true, .revoke = true}));
  ours.live(10min, ObstacleCode::no_room);
  EXPECT_EQ(ours.signals(ours.id, false), 0) << "it is parked, and could not save its work";
}

TEST(UnresponsiveReturn, IsNotForEverWhereNobodyIsLeft) {
  Unresponsive w(OwnerKind::token);
  w.live(1min, ObstacleCode::unreachable);
  w.now = w.now + w.rules.orphan_after;
  w.live(1min, ObstacleCode::unreachable);
  EXPECT_EQ(w.states(w.id), "resuming") << "it could not even be told";
  w.live(1min);
  EXPECT_EQ(w.times_told(w.id, ReasonKind::orphaned), 1);
}

// A program whose pause was undone is told to resume as well, and its time to answer begins with that.
TEST(UnresponsiveReturn, OfWhatWasUndoneHasItsMomentToo) {
  Unresponsive w(OwnerKind::token, Tier::spot);
  w.step(AttemptEvent{w.id, Unparked{}});
  w.live(1h);
  ASSERT_TRUE(w.accepts(Pause{w.id, 0, {}, plenty}));
  w.step(AttemptEvent{w.id, Parked{false, "it refuses"}});
  w.urge();
  w.live(w.rules.spot_unused_after - 10s);
  EXPECT_EQ(w.states(w.id), "resuming");
  w.live(1min);
  EXPECT_EQ(w.reason(w.id, ReasonKind::spot_unresponsive).text("cause"), "tier");
}

TEST(UnresponsiveReturn, WhatTheDaemonCouldNotHearCountsAgainstNobody) {
  Unresponsive w(OwnerKind::token, Tier::spot);
  w.urge();
  w.live(1min);
  w.now = w.now + w.rules.spot_unused_after;
  w.step(ClockGap{.stood_still = w.rules.spot_unused_after});
  w.live(30s);
  EXPECT_EQ(w.states(w.id), "resuming");
}

}  // namespace
}  // namespace sublet::core::testing
