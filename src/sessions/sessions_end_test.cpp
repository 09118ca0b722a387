// SPDX-License-Identifier: Apache-2.0
// Ends, parking, checkpoints and records of sessions.
#include "sessions/sessions_test.h"

#include <functional>

namespace sublet::sessions {
namespace {

// --- checkpoints ---

TEST_F(SessionsTest, ACheckpointIsARunWithANumber) {
  const std::uint64_t number = open(1000s, GiB, {"save"});
  ASSERT_TRUE(sessions_->checkpoint(at(number)));
  settle();
  ASSERT_EQ(keepers_.orders.size(), 1u);
  const auto document = keepers_.document(0);
  EXPECT_EQ(document.at("hook"), (nlohmann::json{{"number", 1}, {"timeout_ms", 60000}}));
  EXPECT_EQ(document.at("arguments"), nlohmann::json{"save"});
  EXPECT_TRUE(sessions_->checkpoint(at(number))) << "one runs already";
  settle();
  EXPECT_EQ(keepers_.orders.size(), 1u);
  EXPECT_EQ(sessions_->report(at(number), {.checkpoint = 2, .locator = "x"}).error().code, Code::Stale);
  ASSERT_TRUE(sessions_->report(at(number), {.checkpoint = 1, .locator = "/data/1"}));
  settle();
  EXPECT_EQ(at(number).progress.checkpoint.locator, "/data/1");
  EXPECT_EQ(sessions_->report(at(number), {.checkpoint = 1, .locator = "y"}).error().code, Code::Stale);
  ASSERT_TRUE(sessions_->checkpoint(at(number)));
  settle();
  const auto environment = keepers_.document(1).at("environment").get<std::vector<std::string>>();
  EXPECT_EQ(std::count(environment.begin(), environment.end(), "SUBLET_CHECKPOINT=/data/1"), 1);
  ASSERT_TRUE(sessions_->report(at(number), {.checkpoint = 2, .problem = "no space left"}));
  EXPECT_EQ(at(number).progress.checkpoint.locator, "/data/1") << "the last good one";
  EXPECT_EQ(at(number).progress.checkpoint.problem, "no space left");
}

TEST_F(SessionsTest, ASpotSessionIsSavedBeforeItIsEnded) {
  Session session = fresh(1000s);
  session.request.checkpoint = {"save"};
  const std::uint64_t number = session.number;
  core::Submit submit = submit_of(session, 20 * GiB);
  submit.lease.tier = core::Tier::spot;
  submit.lease.pausable = core::Pausable::no;
  ASSERT_TRUE(engine_->request(submit, {}, [&](const core::Lease& lease) {
    sessions_->add(session);
    sessions_->submitted(number, lease);
    return engine::Answered{};
  }));
  settle();
  const LeaseId above = plain_lease(20 * GiB, core::Tier::interactive);
  pass(2s, 1s);
  ASSERT_EQ(keepers_.orders.size(), 1u) << "its checkpoint command";
  EXPECT_EQ(lease(number).state, core::LeaseState::active) << "its program was not told to end";
  EXPECT_NE(at(number).progress.why.find("being saved"), std::string::npos) << at(number).progress.why;
  ASSERT_TRUE(sessions_->report(at(number), {.checkpoint = 1, .locator = "state"}));
  pass(2s, 1s);
  EXPECT_EQ(at(number).progress.end, End::revoked);
  EXPECT_EQ(engine_->find(above)->state, core::LeaseState::offered) << "it has the memory";
  EXPECT_EQ(keepers_.orders.size(), 1u);
}

TEST_F(SessionsTest, ARunThatNeverReportsHasFailed) {
  const std::uint64_t number = open(1000s, GiB, {"save"});
  ASSERT_TRUE(close(number));
  EXPECT_EQ(state(number), State::closed) << "no program runs that could save anything";
  const std::uint64_t other = open(1000s, GiB, {"save"});
  ASSERT_TRUE(sessions_->checkpoint(at(other)));
  settle();
  pass(60s);
  EXPECT_TRUE(at(other).progress.checkpoint.running);
  pass(20s);
  EXPECT_FALSE(at(other).progress.checkpoint.running);
  EXPECT_NE(at(other).progress.checkpoint.problem.find("did not report"), std::string::npos);
}

TEST_F(SessionsTest, ARunIsNotOrderedAgainByTheNextDaemon) {
  const std::uint64_t number = open(1000s, GiB, {"save"});
  ASSERT_TRUE(sessions_->checkpoint(at(number)));
  settle();
  restart();
  EXPECT_EQ(keepers_.orders.size(), 1u);
  ASSERT_TRUE(sessions_->report(at(number), {.checkpoint = 1, .locator = "/data/1"}));
  EXPECT_EQ(at(number).progress.checkpoint.locator, "/data/1");
}

TEST_F(SessionsTest, ARunWhoseKeeperWasKilledHasFailed) {
  const std::uint64_t number = open(1000s, GiB, {"save"});
  ASSERT_TRUE(sessions_->checkpoint(at(number)));
  settle();
  keepers_.answers.at(0)(ProcessRef{1 << 22, 1});  // no such process lives
  pass(30s);
  EXPECT_FALSE(at(number).progress.checkpoint.running);
  EXPECT_EQ(at(number).progress.checkpoint.problem, "its keeper was killed");
}

TEST_F(SessionsTest, ACheckpointIsMadeAgainAndAgain) {
  Session session = fresh(1000s);
  session.request.checkpoint = {"save"};
  session.request.checkpoint_every = 30s;
  const std::uint64_t number = session.number;
  submit(session);
  pass(25s);
  EXPECT_EQ(at(number).progress.checkpoint.number, 0u);
  pass(10s);
  ASSERT_EQ(at(number).progress.checkpoint.number, 1u);
  ASSERT_TRUE(sessions_->report(at(number), {.checkpoint = 1}));
  pass(35s);
  EXPECT_EQ(at(number).progress.checkpoint.number, 2u);
}

TEST_F(SessionsTest, TimeThatTheMachineSleptIsNoTimeOfACheckpoint) {
  const std::uint64_t number = open(10h, GiB, {"save"});
  ASSERT_TRUE(sessions_->checkpoint(at(number)));
  settle();
  advance(1h);
  EXPECT_TRUE(at(number).progress.checkpoint.running);
  restart(1h);
  EXPECT_TRUE(at(number).progress.checkpoint.running) << "its keeper may report to the next daemon";
  ASSERT_TRUE(sessions_->report(at(number), {.checkpoint = 1, .locator = "/data/1"}));
}

TEST_F(SessionsTest, EventsHaveNoWordsOfPrograms) {
  const std::uint64_t number = open(1000s, GiB, {"save"});
  cooperates(number);
  ASSERT_TRUE(close(number));
  parks(number);
  ASSERT_TRUE(close(number, false));  // its checkpoint follows
  settle();
  decide(core::AttemptEvent{at(number).progress.lease, core::Unparked{}});
  pass(2s, 1s);
  ASSERT_TRUE(at(number).progress.checkpoint.running);
  ASSERT_TRUE(sessions_->report(at(number), {.checkpoint = 1, .problem = "secret words"}));
  settle();
  EXPECT_NE(at(number).why().find("its checkpoint failed: secret words"), std::string::npos) << at(number).why();
  const std::uint64_t other = sessions_->add(fresh(100s, true)).number;
  settle();
  ASSERT_TRUE(sessions_->report(at(other), {.start = 1, .failed = "/secret/train was not found"}));
  settle();
  EXPECT_EQ(at(other).why(), "its program was not started: /secret/train was not found");
  int told = 0;
  store_.read([&](store::Reader& reader) {
    for (const auto& event : *reader.events(0, 1000)) {
      told += event.type == "session" ? 1 : 0;
      EXPECT_EQ(event.data.find("secret"), std::string::npos) << event.data;
    }
  });
  settle();
  EXPECT_GE(told, 4);
}

// --- parking ---

TEST_F(SessionsTest, AProgramThatIsWantedAgainIsNotEnded) {
  const struct {
    const char* what;
    bool expires;  // else its user closes it
    std::function<Status(std::uint64_t)> call;
    bool comes_back;
  } cases[] = {
      {"its owner resumes the lease", false,
       [&](std::uint64_t it) {
         decide(core::Resume{at(it).progress.lease});
         return Status();
       },
       true},
      {"a resume", false, [&](std::uint64_t it) { return sessions_->resume(at(it)); }, true},
      {"a touch of an expired one", true, [&](std::uint64_t it) { return sessions_->touch(at(it)); }, true},
      {"a touch of a closed one", false, [&](std::uint64_t it) { return sessions_->touch(at(it)); }, false},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.what);
    const std::uint64_t number = open(100s, 256 * MiB);
    cooperates(number);
    if (one.expires) pass(96s, 1s);
    else ASSERT_TRUE(close(number));
    ASSERT_EQ(state(number), State::ending);
    ASSERT_EQ(lease(number).state, core::LeaseState::pausing);
    EXPECT_EQ(static_cast<bool>(one.call(number)), one.comes_back);
    settle();
    EXPECT_EQ(state(number), one.comes_back ? State::queued : State::ending);
    EXPECT_EQ(at(number).progress.end == End::none, one.comes_back);
  }
}

TEST_F(SessionsTest, ACloseWithoutParkingEndsAProgramThatIsBeingParked) {
  const std::uint64_t number = open(1000s, 256 * MiB);
  cooperates(number);
  ASSERT_TRUE(close(number));
  ASSERT_TRUE(close(number, false));
  decide(core::AttemptEvent{at(number).progress.lease, core::Parked{.done = true}});
  pass(6s, 1s);
  EXPECT_EQ(lease(number).state, core::LeaseState::resuming) << "its program runs again for its end";
  EXPECT_EQ(state(number), State::ending);
  EXPECT_EQ(at(number).progress.step, Step::releasing);
}

TEST_F(SessionsTest, ACloseWithoutParkingEndsAParkedProgramAtOnce) {
  const std::uint64_t number = open(1000s, 256 * MiB);
  cooperates(number);
  ASSERT_TRUE(close(number));
  parks(number);
  ASSERT_EQ(state(number), State::parked);
  ASSERT_TRUE(sessions_->close(at(number), {.park = false, .by = 1000}));
  EXPECT_EQ(state(number), State::ending) << "the answer says so already";
}

TEST_F(SessionsTest, AParkedProgramThatDoesNotAnswerIsEnded) {
  for (const bool saves : {false, true}) {
    SCOPED_TRACE(saves);
    const std::uint64_t number = open(1000s, 256 * MiB, std::vector<std::string>(saves ? 1 : 0, "save"));
    cooperates(number);
    ASSERT_TRUE(close(number, true, 0));  // an admin's
    parks(number);
    ASSERT_EQ(state(number), State::parked);
    ASSERT_TRUE(close(number, false, 0));
    const auto is_silent = [&] { return state(number) == State::ending && !lease(number).ended(); };
    for (int i = 0; i < 100 && is_silent(); ++i) {
      if (lease(number).state == core::LeaseState::resuming)
        decide(core::AttemptEvent{lease(number).id, core::Unparked{.how = core::Unparked::How::not_yet,
                                                                   .detail = "it did not answer",
                                                                   .code = core::ObstacleCode::late}});
      if (is_silent()) pass(5s);
    }
    pass(5s);
    EXPECT_EQ(state(number), State::closed);
    EXPECT_EQ(at(number).progress.end, End::revoked);
  }
}

TEST_F(SessionsTest, AParkedProgramWaitsForItsMemoryOnceItIsResumed) {
  const std::uint64_t number = open(1000s, 256 * MiB);
  cooperates(number);
  decide(core::Pause{
      at(number).progress.lease, 0, {core::PauseCauseKind::idle}, engine_->observer().host_memory(nullptr)});
  parks(number);
  EXPECT_EQ(state(number), State::paused);
  ASSERT_TRUE(sessions_->touch(at(number)));
  EXPECT_EQ(state(number), State::queued);
}

TEST_F(SessionsTest, AProgramThatCanNeverRunAgainEndsTheSession) {
  const std::uint64_t number = open(1000s, 256 * MiB);
  cooperates(number);
  decide(core::Pause{
      at(number).progress.lease, 0, {core::PauseCauseKind::idle}, engine_->observer().host_memory(nullptr)});
  parks(number);
  ASSERT_TRUE(sessions_->resume(at(number)));
  settle();
  decide(core::AttemptEvent{at(number).progress.lease,
                            core::Unparked{.how = core::Unparked::How::never, .detail = "the driver lost it"}});
  pass(3s, 1s);
  EXPECT_TRUE(at(number).has_ended());
  EXPECT_EQ(at(number).progress.end, End::failed);
  EXPECT_NE(at(number).progress.why.find("can never run again"), std::string::npos) << at(number).progress.why;
}

TEST_F(SessionsTest, AGapExtendsTheTimeOfAParkedProgramByItsLength) {
  const std::uint64_t number = open(1000s, 256 * MiB);
  cooperates(number);
  ASSERT_TRUE(close(number));
  parks(number);
  ASSERT_EQ(state(number), State::parked);
  const Time until = *at(number).progress.kept_until;
  clock_->advance(1s);  // no gap
  advance(1h);
  EXPECT_GE(*at(number).progress.kept_until, until + 1h);
  EXPECT_LE(*at(number).progress.kept_until, until + 1h + 1s);
}

// --- records ---

TEST_F(SessionsTest, RestartsKeepEverythingButForgetOldRecords) {
  std::uint64_t last = 0;
  for (int i = 0; i < 105; ++i) {
    last = open();
    ASSERT_TRUE(close(last));
    advance(1s);
  }
  ASSERT_EQ(state(last), State::closed);
  EXPECT_LE(sessions_->all().size(), 101u);
  EXPECT_EQ(sessions_->find(1), nullptr);
  const std::uint64_t lives = open(1000s);
  restart();
  EXPECT_EQ(state(lives), State::active);
  EXPECT_EQ(at(lives).progress.lease, lease(lives).id);
  EXPECT_EQ(sessions_->find(1), nullptr);
  EXPECT_EQ(state(last), State::closed);
}

TEST_F(SessionsTest, ALookCostsOnlyTheSessionsThatAreDue) {
  options_.most_sessions = 1000;
  options_.max_continuous = Duration{};
  int looks = 0;
  options_.activity = [&looks](LeaseId) {
    ++looks;
    return Activity{Activity::State::busy, {}};
  };
  restart();
  for (int i = 0; i < 300; ++i) open(1h, MiB);
  looks = 0;
  for (int i = 0; i < 100; ++i) advance(1s);
  EXPECT_EQ(looks, 0) << "none is due";
}

}  // namespace
}  // namespace sublet::sessions
