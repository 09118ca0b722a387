// SPDX-License-Identifier: Apache-2.0
#include "core/testing/cooperating.h"
#include "state/methods.h"

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

// One row for each reason why a method can never pause a lease.
TEST(Methods, WhyNot) {
  const struct {
    const char* name;
    Pausable pausable;
    OwnerKind owner;
    bool keeper, cooperates, granted;
    std::optional<ObstacleCode> unfit;
    std::string chosen, cooperative, driver;  // chosen "": none; why the others are not
  } rows[] = {
      {"its program yields",
       Pausable::automatic,
       OwnerKind::process,
       true,
       true,
       false,
       {},
       "cooperative",
       "",
       "it is tried if the method cooperative fails"},
      {"it has not registered",
       Pausable::automatic,
       OwnerKind::process,
       true,
       false,
       false,
       {},
       "driver",
       "has not registered as cooperative",
       ""},
      {"pinned",
       Pausable::no,
       OwnerKind::process,
       true,
       true,
       false,
       {},
       "",
       "its owner pinned it",
       "its owner pinned it"},
      {"driver only",
       Pausable::driver,
       OwnerKind::process,
       true,
       true,
       false,
       {},
       "driver",
       "its owner allows the method driver only",
       ""},
      {"cooperative only",
       Pausable::cooperative,
       OwnerKind::process,
       true,
       false,
       false,
       {},
       "",
       "has not registered as cooperative",
       "its owner allows the method cooperative only"},
      {"no program",
       Pausable::automatic,
       OwnerKind::token,
       false,
       true,
       false,
       {},
       "cooperative",
       "",
       "it has no program that the driver could park"},
      {"not started by Sublet",
       Pausable::automatic,
       OwnerKind::process,
       false,
       false,
       false,
       {},
       "",
       "has not registered",
       "its owner has not allowed to park it"},
      {"with a pause grant",
       Pausable::automatic,
       OwnerKind::process,
       false,
       false,
       true,
       {},
       "driver",
       "has not registered",
       ""},
      {"the owner must vouch", Pausable::automatic, OwnerKind::process, true, false, false,
       ObstacleCode::owner_must_vouch, "", "has not registered", "only if its owner vouches for it: it may use NCCL"},
      {"not parkable", Pausable::automatic, OwnerKind::process, true, false, false, ObstacleCode::not_parkable, "",
       "has not registered", "the driver cannot park it: it may use NCCL"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    OneCard w;
    Lease lease = wish(GiB, "serve");
    lease.pausable = row.pausable;
    lease.owner.kind = row.owner;
    if (row.owner == OwnerKind::process) lease.owner = kept_process(7);
    if (!row.keeper) lease.owner.keeper = {};
    if (row.unfit) lease.unfit = Obstacle{*row.unfit, "it may use NCCL"};
    const LeaseId id = w.submit(lease);
    if (row.cooperates) w.step(Cooperate{id, 0, Cooperating::how()});
    w.step(Grant{1001, "serve"});
    if (row.granted) w.step(Grant{1000, "serve"});
    for (const MethodChoice& its : method_choices(w.state, w.at(id), w.now)) {
      EXPECT_EQ(its.chosen, to_string(its.method) == row.chosen) << to_string(its.method);
      if (its.method == PauseMethod::cooperative) EXPECT_SAYS(its.why_not, row.cooperative);
      if (its.method == PauseMethod::driver) EXPECT_SAYS(its.why_not, row.driver);
    }
    const auto paused = w.step(Pause{id, 0, {}, plenty}).outcome;
    EXPECT_EQ(paused.has_value(), !row.chosen.empty());
    EXPECT_TRUE(paused || paused.error().code == Code::PauseUnsafe);
  }
}

TEST(Methods, OfAReleasedStackNameTheVerbThatEndsIt) {
  OneCard w;
  Lease stack = wish(GiB, "stack-chat");
  stack.tag = "stack-chat";
  stack.pausable = Pausable::no;
  EXPECT_EQ(w.refusal(Pause{w.submit(stack), 0, {}, plenty}).hint, "`sublet stack release chat --down` brings it down");
}

}  // namespace
}  // namespace sublet::core::testing
