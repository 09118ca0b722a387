// SPDX-License-Identifier: Apache-2.0
#include "core/testing/cooperating.h"

namespace sublet::core::testing {
namespace {

TEST(Cooperation, IsPreferredAndKeepsWhatItDeclared) {
  Cooperating w;
  EXPECT_EQ(w.reason(w.victim, ReasonKind::cooperates).number("poller"), 7);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::cooperates).bytes("residue"), 32 * MiB);
  ASSERT_TRUE(w.pause().has_value());
  EXPECT_EQ(w.newest<Park>()->method, PauseMethod::cooperative);
  EXPECT_EQ(w.newest<Park>()->at_most, w.rules.yield_timeout) << "it never yielded before";
  EXPECT_EQ(w.state.ledger_entries(), 10 * GiB);
  w.parked();
  EXPECT_EQ(w.state.ledger_entries(), Bytes{}) << "it copied nothing";
  w.measure(20 * MiB), w.measure(20 * MiB);
  EXPECT_EQ(w.states(w.victim), "paused");
  EXPECT_EQ(w.at(w.victim).reserved(), 32 * MiB);
  w.step(Resume{w.victim});
  EXPECT_TRUE(w.newest<Unpark>()->told);
  w.runs();
  EXPECT_EQ(w.states(w.victim), "active");
  EXPECT_EQ(w.ordered<Park>(), 1);
  w.step(Attach{w.victim, 0, kept_process(9), true, {}});
  EXPECT_FALSE(w.at(w.victim).cooperation) << "it ends with the program that said it";
}

TEST(Cooperation, ItsTimeIsWhatItTookBefore) {
  Cooperating w;
  w.settle();
  w.step(Resume{w.victim});
  w.runs();
  w.pause();
  EXPECT_GT(w.newest<Park>()->at_most, 3s) << "it took three";
  EXPECT_LT(w.newest<Park>()->at_most, 20s);
  w.refused("no answer in time");
  w.runs(std::nullopt);
  w.pause();
  EXPECT_EQ(w.newest<Park>()->at_most, w.rules.yield_timeout) << "it failed: the whole time once more";
}

// A program that answers just before its time is over would get twice as long each time, and no other lease is asked
// meanwhile.
TEST(Cooperation, ItsTimeDoesNotGrowWithoutEnd) {
  Cooperating w;
  for (int pauses = 0; pauses < 6; ++pauses) {
    ASSERT_TRUE(w.pause().has_value());
    const Duration given = w.newest<Park>()->at_most;
    EXPECT_LE(given, 4 * w.rules.yield_timeout);
    w.now = w.now + given - 1s;
    w.yields();
    ASSERT_EQ(w.states(w.victim), "paused");
    w.step(Resume{w.victim});
    w.runs();
    w.measure(10 * GiB);
    w.pass(1h);
    w.measure(10 * GiB);
  }
  ASSERT_TRUE(w.pause().has_value());
  EXPECT_EQ(w.newest<Park>()->at_most, 4 * w.rules.yield_timeout);
}

TEST(Cooperation, WhoeverFailsIsUndoneAndTheDriverIsTried) {
  Cooperating w;
  w.pause();
  w.refused("pid 7 did not answer within 30 s");
  EXPECT_EQ(w.states(w.victim), "resuming");
  EXPECT_EQ(w.reason(w.victim, ReasonKind::pause_failed).text("next"), "driver");
  EXPECT_EQ(w.at(w.victim).reserved(), 10 * GiB);
  EXPECT_LT(w.trust("serve", PauseMethod::cooperative), 1);
  w.runs();
  EXPECT_EQ(w.states(w.victim), "pausing");
  EXPECT_EQ(w.newest<Park>()->method, PauseMethod::driver);
  EXPECT_EQ(w.state.ledger_entries(), 10 * GiB) << "entered once, and anew";
  w.yields(9 * GiB);
  EXPECT_EQ(w.states(w.victim), "paused");
  EXPECT_FALSE(w.at(w.victim).parking->told);
  EXPECT_EQ(w.state.ledger_entries(), 9 * GiB);
}

TEST(Cooperation, NothingElseIsTriedAfterAnUndoThatTookLongOrWithoutHostMemory) {
  for (const bool late : {true, false}) {
    Cooperating w;
    w.pause();
    w.refused("it is deaf");
    if (late) w.not_yet(), w.pass(2s);  // the preemptor may be gone
    w.runs(late ? plenty : HostMemory{4 * GiB, std::nullopt});
    EXPECT_EQ(w.states(w.victim), "active");
    EXPECT_EQ(w.state.ledger_entries(), Bytes{});
  }
  Cooperating w;
  w.pause();
  w.restart();
  EXPECT_EQ(w.states(w.victim), "resuming");
  EXPECT_TRUE(w.newest<Unpark>()->told);
  w.runs();
  EXPECT_EQ(w.states(w.victim), "active") << "nor after a restart";
  EXPECT_EQ(w.state.standing(w.victim).failures, 0) << "which is nobody's failure";
}

TEST(Cooperation, WhoFailsAgainAndAgainIsAskedSecond) {
  Cooperating w;
  for (int i = 0; i < 2; ++i) {
    w.pause();
    w.refused("no");
    w.runs(std::nullopt);
    ASSERT_EQ(w.states(w.victim), "active");
  }
  w.pause();
  EXPECT_EQ(w.newest<Park>()->method, PauseMethod::driver);
}

TEST(Cooperation, OnlyThatIfItsOwnerSaysSo) {
  OneCard w;
  Lease only = wish(GiB);
  only.pausable = Pausable::cooperative;
  const LeaseId id = w.submit(only);
  EXPECT_EQ(w.refusal(Pause{id, 0, {}, plenty}).code, Code::PauseUnsafe);
  w.step(Cooperate{id, 0, Cooperating::how()});
  ASSERT_TRUE(w.accepts(Pause{id, 0, {}, plenty})) << "a token's lease, too";
  w.step(Parked{id, false, "no"});
  w.step(Unparked{id, Unparked::How::runs, {}, plenty});
  EXPECT_EQ(w.states(id), "active") << "the driver is not for it";
}

TEST(Cooperation, WhoHoldsAgainWhilePausedIsParkedByTheDriverOnTop) {
  Cooperating w;
  w.settle();
  const Bytes free = w.free(0);
  w.measure(5 * GiB);
  EXPECT_EQ(w.free(0), free - (5 * GiB - 32 * MiB)) << "nothing is granted against it";
  EXPECT_EQ(w.ordered<PauseAgain>(), 0);
  w.measure(5 * GiB);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::allocated_while_paused).bytes("holds"), 5 * GiB);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::allocated_while_paused).bytes("residue"), 32 * MiB);
  ASSERT_EQ(w.ordered<PauseAgain>(), 1);
  EXPECT_LT(w.trust("serve", PauseMethod::cooperative), 1);
  ASSERT_TRUE(w.pause().has_value());
  EXPECT_EQ(w.method(), PauseMethod::cooperative) << "nobody is locked yet";
  EXPECT_EQ(w.states(w.victim), "paused") << "its room is not its own";
  EXPECT_EQ(w.state.ledger_entries(), 5 * GiB);
  EXPECT_EQ(w.newest<Park>()->method, PauseMethod::driver);
  w.touching();
  EXPECT_EQ(w.told(w.victim).parking->method, PauseMethod::driver) << "stored before it locks";
  w.parked(5 * GiB);
  EXPECT_EQ(w.state.to_restore(w.at(w.victim), uuid_of(0)).all, 5 * GiB) << "the rest is for its program to take";
  w.measure({});
  EXPECT_EQ(w.free(0), free) << "given back";
  w.step(Resume{w.victim});
  EXPECT_EQ(w.newest<Unpark>()->method, PauseMethod::driver);
  EXPECT_TRUE(w.newest<Unpark>()->told) << "both are undone";
}

// It held VRAM in two snapshots, and in the next it does not, before anything was done about it.
TEST(Cooperation, ALateOrderToParkOnTopIsNobodysWish) {
  Cooperating w;
  w.settle();
  w.run(20 * GiB, 9, "other");
  w.step(Resume{w.victim});
  ASSERT_TRUE(w.at(w.victim).parking->resume_requested) << "there is no room for it";
  w.measure(5 * GiB), w.measure(5 * GiB);
  ASSERT_EQ(w.ordered<PauseAgain>(), 1);
  w.measure({});
  ASSERT_TRUE(w.accepts(Pause{w.victim, 0, {PauseCauseKind::allocated_while_paused}, plenty, true}));
  EXPECT_TRUE(w.at(w.victim).parking->resume_requested) << "it waits to come back as before";
  EXPECT_EQ(w.ordered<Park>(), 1);
  w.measure(5 * GiB), w.measure(5 * GiB);
  ASSERT_TRUE(w.pause().has_value());
  EXPECT_FALSE(w.at(w.victim).parking->resume_requested) << "its owner's word counts, whatever it holds";
  EXPECT_EQ(w.ordered<Park>(), 2);
}

// Nobody can be asked to end, and its owner cannot keep it from ending.
TEST(Cooperation, OneWithoutAProgramOfOursEndsWhenItIsBackIfItIsToEnd) {
  OneCard w;
  const auto read_twice = [&w] {
    for (int i = 0; i < 2; ++i) w.pass(20ms), w.measure();
  };
  Lease only = wish(10 * GiB);
  only.pausable = Pausable::cooperative;
  const LeaseId id = w.submit(only);
  w.step(Cooperate{id, 0, Cooperating::how()});
  ASSERT_TRUE(w.accepts(Pause{id, 0, {}, plenty}));
  w.step(Parked{id, true, {}, 9 * GiB});
  read_twice();
  const LeaseId other = w.run(20 * GiB, 9, "other");
  w.step(Release{.lease = id, .revoke = true});
  ASSERT_EQ(w.states(id), "paused") << "it waits for its room";
  EXPECT_EQ(w.refusal(Pause{id, 0, {}, plenty}).code, Code::PauseUnsafe);
  w.step(Release{.lease = other, .force = true});
  read_twice();
  ASSERT_EQ(w.states(id), "resuming");
  w.step(Unparked{id, Unparked::How::runs, {}, plenty});
  const Lease* left = w.state.find(id);
  EXPECT_TRUE(left == nullptr || left->ended());
}

TEST(Cooperation, WhatCannotBeParkedOnTopTakesNobodysRoom) {
  Cooperating w;
  w.relapse(5 * GiB);
  const Bytes free = w.free(0);
  ASSERT_TRUE(w.pause().has_value());
  w.touching();
  EXPECT_EQ(w.free(0), free) << "others may have been given the rest of its room";
  // A child that came while it was paused is in a group of its own, say.
  EXPECT_TRUE(w.accepts(MeasuredWhileLocked{w.victim, plenty}));
  HostMemory swaps = plenty;
  swaps.may_swap = true;
  EXPECT_FALSE(w.accepts(MeasuredWhileLocked{w.victim, swaps}));
  w.refused("its work was not done in time");
  EXPECT_EQ(w.states(w.victim), "paused") << "it comes back when there is room for all of it";
  EXPECT_EQ(w.free(0), free);
  EXPECT_EQ(w.ordered<Unpark>(), 0);
  EXPECT_EQ(w.times_told(w.victim, ReasonKind::parking_again_failed), 1);
  w.step(Resume{w.victim});
  EXPECT_EQ(w.states(w.victim), "resuming");
  EXPECT_EQ(w.newest<Unpark>()->method, PauseMethod::driver) << "nobody knows how far that came";
}

TEST(Cooperation, AParkOnTopThatIsUndoneLeavesNothingBehind) {
  for (const bool locked : {false, true}) {
    Cooperating w;
    w.settle();
    Parking before = *w.at(w.victim).parking;
    before.held_when_paused[0].of.clear();  // none of them is the driver's
    w.measure(5 * GiB), w.measure(5 * GiB);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(w.pause().has_value());
    EXPECT_EQ(w.ordered<Park>(), 2) << "asked twice it is parked once";
    if (locked) w.touching();
    w.step(Parked{w.victim, false, "the driver cannot park", {}, true});
    EXPECT_EQ(w.states(w.victim), "paused");
    EXPECT_EQ(*w.told(w.victim).parking, before) << "method and ledger are as they were";
    EXPECT_EQ(w.state.ledger_entries(), before.host_bytes);
    EXPECT_LT(w.trust("serve"), 1);
    w.restart();
    w.measure({});
    w.step(Resume{w.victim});
    EXPECT_EQ(w.newest<Unpark>()->method, PauseMethod::cooperative) << "it need not be asked of the driver";
    w.runs();
    EXPECT_EQ(w.states(w.victim), "active");
  }
}

TEST(Cooperation, AParkOnTopThatIsInterruptedIsTheDriversOnlyOnceItLocks) {
  const struct {
    const char* name;
    bool locked, restart;
  } rows[] = {{"restart before", false, true}, {"restart", true, true}, {"the helper ended", true, false}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    Cooperating w;
    w.relapse(5 * GiB);
    ASSERT_TRUE(w.pause().has_value());
    if (row.locked) w.touching();
    if (row.restart) w.restart();
    else w.refused("the helper ended");
    EXPECT_EQ(w.state.ledger_entries(), row.locked ? 5 * GiB : Bytes{}) << "nothing is entered for what was not begun";
    if (row.locked) {
      // The result is measured.
      w.measure(4 * GiB);
      EXPECT_EQ(w.state.ledger_entries(), GiB) << "four are on the device still";
      EXPECT_EQ(w.told(w.victim).parking->host_bytes, GiB) << "and so it is stored";
      w.measure({});
      EXPECT_EQ(w.state.ledger_entries(), 5 * GiB) << "the driver had not ended";
      w.measure(2 * GiB), w.measure(2 * GiB);
      EXPECT_EQ(w.state.to_restore(w.at(w.victim), uuid_of(0)).all, 5 * GiB);
    } else {
      w.measure({});
    }
    w.step(Resume{w.victim});
    EXPECT_EQ(w.newest<Unpark>()->method, row.locked ? PauseMethod::driver : PauseMethod::cooperative);
    EXPECT_TRUE(w.newest<Unpark>()->told);
    w.runs();
    EXPECT_EQ(w.state.ledger_entries(), Bytes{});
  }
}

TEST(Cooperation, ALiarIsCaughtByWhatIsMeasured) {
  Cooperating w;
  ASSERT_TRUE(w.pause().has_value());
  w.parked();
  for (int i = 0; i < 200; ++i) w.measure(4 * GiB);
  ASSERT_EQ(w.states(w.victim), "resuming") << "it lied";
  EXPECT_EQ(w.reason(w.victim, ReasonKind::pause_disproved).bytes("holds"), 4 * GiB);
  EXPECT_TRUE(w.newest<Unpark>()->told);
  w.runs();
  ASSERT_EQ(w.method(), PauseMethod::driver);
  const auto room = w.state.to_restore(w.at(w.victim), uuid_of(0));
  EXPECT_EQ(room.all, 9 * GiB) << "it holds again what it did: the half way is no measure for the next method";
  EXPECT_EQ(room.of, (std::map<ProcessRef, Bytes>{{process(7), 9 * GiB}}));
  w.refused("pid 7 is traced");
  w.runs();
  EXPECT_EQ(w.states(w.victim), "active") << "each method once";
}

TEST(Cooperation, WantedBackWhileItIsParkedOnTopItComesBackAfterwards) {
  Cooperating w;
  w.relapse(5 * GiB);
  ASSERT_TRUE(w.pause().has_value());
  w.step(Resume{w.victim});
  EXPECT_EQ(w.ordered<Unpark>(), 1) << "carried out after the other";
  EXPECT_FALSE(w.accepts(LockIntent{w.victim, {process(7)}})) << "too late to lock anybody";
  w.parked(5 * GiB);
  EXPECT_EQ(w.states(w.victim), "resuming");
  w.runs();
  EXPECT_EQ(w.states(w.victim), "active");
}

TEST(Cooperation, ARelapseThatNothingCanBeDoneAboutIsTold) {
  Cooperating w;
  w.step(Cooperate{w.victim, 0, std::nullopt});
  w.pause();
  EXPECT_EQ(w.newest<Park>()->method, PauseMethod::driver);
  w.yields(9 * GiB);
  w.measure(GiB), w.measure(GiB);
  EXPECT_EQ(w.times_told(w.victim, ReasonKind::allocated_while_paused), 1);
  w.pause();
  EXPECT_EQ(w.states(w.victim), "paused");
  EXPECT_EQ(w.ordered<Park>(), 1);
}

TEST(Grants, LetWhatSubletDidNotStartBeParked) {
  OneCard w;
  Lease lease = wish(GiB, "ollama");
  lease.owner = kept_process(7);
  lease.owner.keeper = {};
  const Pause pause{w.submit(lease), 0, {}, plenty};
  EXPECT_SAYS(w.refusal(pause).hint, "sublet pause --grant ollama");
  w.step(Grant{1001, "ollama"});
  EXPECT_FALSE(w.accepts(pause)) << "somebody else's word";
  for (const std::size_t stored : {1U, 0U}) {
    w.step(Grant{1000, "ollama"});
    EXPECT_EQ(w.last.grants.size(), stored);
  }
  EXPECT_TRUE(w.accepts(pause));
  w.step(Parked{pause.lease, false, "no"});
  w.step(Unparked{pause.lease});
  w.step(Grant{1000, "ollama", false});
  EXPECT_FALSE(w.accepts(pause));
}

// Its order is of before the store was read anew: it comes back, and is not parked first.
TEST(MeasuredWhileLocked, WhoComesBackIsNotParked) {
  Cooperating w;
  w.pause();
  EXPECT_TRUE(w.accepts(MeasuredWhileLocked{w.victim, plenty}));
  w.restart();
  w.measure(9 * GiB);
  ASSERT_EQ(w.states(w.victim), "resuming");
  EXPECT_FALSE(w.accepts(MeasuredWhileLocked{w.victim, plenty}));
}

}  // namespace
}  // namespace sublet::core::testing
