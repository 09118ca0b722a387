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
  EXPECT_EQ(w.state.host.entries, 10 * GiB);
  w.parked();
  w.measure(20 * MiB), w.measure(20 * MiB);
  EXPECT_EQ(w.states(w.victim), "paused");
  EXPECT_EQ(w.state.host.entries, Bytes{}) << "it copied nothing";
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
  EXPECT_EQ(w.state.host.entries, 10 * GiB) << "entered once, and anew";
  w.yields(9 * GiB);
  EXPECT_EQ(w.states(w.victim), "paused");
  EXPECT_FALSE(w.at(w.victim).parking->told);
  EXPECT_EQ(w.state.host.entries, 9 * GiB);
}

TEST(Cooperation, NothingElseIsTriedAfterAnUndoThatTookLongOrWithoutHostMemory) {
  for (const bool late : {true, false}) {
    Cooperating w;
    w.pause();
    w.refused("it is deaf");
    if (late) w.not_yet(), w.pass(2s);  // the preemptor may be gone
    w.runs(late ? plenty : HostMemory{4 * GiB, std::nullopt});
    EXPECT_EQ(w.states(w.victim), "active");
    EXPECT_EQ(w.state.host.entries, Bytes{});
  }
  Cooperating w;
  w.pause();
  w.restart();
  EXPECT_EQ(w.states(w.victim), "resuming");
  EXPECT_TRUE(w.newest<Unpark>()->told);
  w.runs();
  EXPECT_EQ(w.states(w.victim), "active") << "nor after a restart";
  EXPECT_EQ(standing_of(w.state, w.victim).failures, 0) << "which is nobody's failure";
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

TEST(Methods, OfAReleasedStackNameTheVerbThatEndsIt) {
  OneCard w;
  Lease stack = wish(GiB, "stack-chat");
  stack.tag = "stack-chat";
  stack.pausable = Pausable::no;
  const Error refused = w.refusal(Pause{w.submit(stack), 0, {}, plenty});
  EXPECT_EQ(refused.code, Code::PauseUnsafe);
  EXPECT_SAYS(refused.detail, "cannot be paused: stack chat is released, or it is not pausable");
  EXPECT_EQ(refused.hint, "`sublet stack release chat --down` brings it down");
}

TEST(Cooperation, OnlyThatIfItsOwnerSaysSo) {
  OneCard w;
  Lease only = wish(GiB);
  only.pausable = Pausable::cooperative;
  const LeaseId id = w.submit(only);
  EXPECT_EQ(w.refusal(Pause{id, 0, {}, plenty}).code, Code::PauseUnsafe);
  w.step(Cooperate{id, 0, Cooperating::how()});
  ASSERT_TRUE(w.accepts(Pause{id, 0, {}, plenty})) << "a token's lease, too";
  w.step(AttemptEvent{id, Parked{false, "no"}});
  w.step(AttemptEvent{id, Unparked{Unparked::How::runs, {}, plenty}});
  EXPECT_EQ(w.states(id), "active") << "the driver is not for it";
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
  w.step(AttemptEvent{id, Parked{true, {}, 9 * GiB}});
  read_twice();
  const LeaseId other = w.run(20 * GiB, 9, "other");
  w.step(Release{.lease = id, .revoke = true});
  ASSERT_EQ(w.states(id), "paused") << "it waits for its room";
  EXPECT_EQ(w.refusal(Pause{id, 0, {}, plenty}).code, Code::PauseUnsafe);
  w.step(Release{.lease = other, .force = true});
  read_twice();
  ASSERT_EQ(w.states(id), "resuming");
  w.step(AttemptEvent{id, Unparked{Unparked::How::runs, {}, plenty}});
  const Lease* left = find(w.state, id);
  EXPECT_TRUE(left == nullptr || left->ended());
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
  const auto room = to_restore(w.state, w.at(w.victim), uuid_of(0));
  EXPECT_EQ(room.all, 9 * GiB) << "it holds again what it did: the half way is no measure for the next method";
  EXPECT_EQ(room.of, (std::map<ProcessRef, Bytes>{{process(7), 9 * GiB}}));
  w.refused("pid 7 is traced");
  w.runs();
  EXPECT_EQ(w.states(w.victim), "active") << "each method once";
}

TEST(Cooperation, MemoryAllocatedWhilePausedIsChargedAndTold) {
  Cooperating w;
  w.settle();
  const Bytes free = w.free(0);
  w.measure(5 * GiB);
  EXPECT_EQ(w.free(0), free - (5 * GiB - 32 * MiB)) << "nothing is granted against it";
  EXPECT_EQ(w.times_told(w.victim, ReasonKind::allocated_while_paused), 0) << "one reading may be wrong";
  w.measure(5 * GiB);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::allocated_while_paused).bytes("holds"), 5 * GiB);
  EXPECT_EQ(w.reason(w.victim, ReasonKind::allocated_while_paused).bytes("residue"), 32 * MiB);
  EXPECT_LT(w.trust("serve", PauseMethod::cooperative), 1);
  w.measure(5 * GiB), w.measure(5 * GiB);
  EXPECT_EQ(w.times_told(w.victim, ReasonKind::allocated_while_paused), 1);
  ASSERT_TRUE(w.pause().has_value());
  EXPECT_EQ(w.ordered<Park>(), 1) << "no other method parks it";
  w.step(Resume{w.victim});
  EXPECT_EQ(w.newest<Unpark>()->method, PauseMethod::cooperative);
  w.runs();
  EXPECT_EQ(w.states(w.victim), "active");
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
  w.step(AttemptEvent{pause.lease, Parked{false, "no"}});
  w.step(AttemptEvent{pause.lease, Unparked{}});
  w.step(Grant{1000, "ollama", false});
  EXPECT_FALSE(w.accepts(pause));
}

// Its order is of before the store was read anew: it comes back, and is not parked first.
TEST(MeasuredWhileLocked, WhoComesBackIsNotParked) {
  Cooperating w;
  w.pause();
  EXPECT_TRUE(w.accepts(AttemptEvent{w.victim, MeasuredWhileLocked{plenty}}));
  w.restart();
  w.measure(9 * GiB);
  ASSERT_EQ(w.states(w.victim), "resuming");
  EXPECT_FALSE(w.accepts(AttemptEvent{w.victim, MeasuredWhileLocked{plenty}}));
}

}  // namespace
}  // namespace sublet::core::testing
