// SPDX-License-Identifier: Apache-2.0
#include "core/testing/world.h"

#include <functional>

namespace sublet::core::testing {
namespace {

// -------------------------------------------------------------------------------- release

TEST(Release, WithoutAProcessIsFreeAtOnce) {
  OneCard w;
  const LeaseId id = w.submit(6 * GiB), queued = w.submit(20 * GiB);
  w.step(Release{queued});
  EXPECT_EQ(w.told(queued).end_reason, EndReason::cancelled);
  EXPECT_EQ(w.state.queue.size(), 0U);
  w.step(Release{id});
  EXPECT_EQ(w.told(id).end_reason, EndReason::released);
  EXPECT_TRUE(w.last.settled.empty()) << "nothing had to settle";
  EXPECT_TRUE(w.gone(id));
  EXPECT_EQ(w.free(0), 24 * GiB);
}

TEST(Release, WhileProcessesHoldVramIsInUseUnlessForced) {
  OneCard w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.measure({{process(100), std::nullopt, id}}, 5 * GiB);
  EXPECT_EQ(w.refusal(Release{id}).code, Code::InUse) << "its use is untold";
  EXPECT_EQ(w.free(0), 13 * GiB) << "its bytes cannot be told from an unleased process's";
  w.measure({uses(100, 5 * GiB, id)});
  EXPECT_EQ(w.refusal(Release{id}).code, Code::InUse);
  EXPECT_SAYS(w.refusal(Release{id}).detail, "5.0 GiB on gpu0");
  EXPECT_EQ(w.states(id), "active");
  const std::uint64_t generation = w.at(id).generation;
  EXPECT_TRUE(w.accepts(Release{id, generation, true}));
  EXPECT_EQ(w.at(id).end_reason, EndReason::released);
  EXPECT_EQ(w.signals(id, false), 0) << "giving back is not an order to end the program";
  EXPECT_EQ(w.free(0), 18 * GiB) << "charged until measured";
  const std::uint64_t ended = w.at(id).generation;
  EXPECT_TRUE(w.accepts(Release{id, generation})) << "of an ended lease it is fine";
  EXPECT_TRUE(w.last.changed.empty());
  EXPECT_EQ(w.at(id).generation, ended);
}

// -------------------------------------------------------------------------------- stop

TEST(Stop, AsksThenKillsAndEndsWithTheProgramUnlessRevoked) {
  for (const bool revoke : {false, true}) {
    OneCard w;
    const LeaseId id = w.run(6 * GiB, 100);
    w.measure({uses(100, 5 * GiB, id)});
    for (int i = 0; i < 2; ++i) w.step(Release{id, 0, false, !revoke, revoke});
    EXPECT_EQ(w.states(id), revoke ? "ended" : "active");
    EXPECT_TRUE(w.at(id).stop_requested);
    EXPECT_EQ(w.at(id).stop_at, w.now);
    EXPECT_EQ(w.signals(id, false), 1) << "once is enough";
    w.pass(w.rules.grace - 1s);
    EXPECT_EQ(w.signals(id, true), 0);
    w.pass(1s);
    EXPECT_EQ(w.signals(id, true), 1);
    w.pass(10min);
    EXPECT_EQ(w.signals(id, true), 1);
    w.step(ProgramEnded{id, 137, true});
    EXPECT_EQ(w.told(id).end_reason, revoke ? EndReason::revoked : EndReason::released) << "the signal was ours";
    EXPECT_EQ(w.told(id).exit_status, 137);
  }
}

TEST(Stop, OfALeaseWithoutAProgramOfOursJustEndsIt) {
  OneCard w;
  Lease lease = wish(6 * GiB);
  lease.owner = {OwnerKind::process, process(100), {}, ""};
  const LeaseId id = w.submit(lease);
  EXPECT_EQ(w.states(id), "active");
  w.step(Release{id, 0, false, true});
  EXPECT_EQ(w.at(id).end_reason, EndReason::released);
  EXPECT_EQ(w.signals(id, false), 0) << "what Sublet did not start is never signalled";
}

// -------------------------------------------------------------------------------- the program

TEST(Program, ItsEndReleasesUnlessItWasKilledByOthers) {
  const struct {
    std::optional<int> status;
    bool killed;
    EndReason end;
  } rows[] = {{0, false, EndReason::released},
              {1, false, EndReason::released},
              {139, false, EndReason::released},
              {std::nullopt, false, EndReason::owner_gone},  // its keeper was killed
              {137, true, EndReason::owner_gone}};
  for (const auto& row : rows) {
    OneCard w;
    const LeaseId id = w.run(6 * GiB, 100);
    w.step(ProgramEnded{id, row.status, row.killed});
    EXPECT_EQ(w.at(id).end_reason, row.end);
    EXPECT_EQ(w.at(id).exit_status, row.status);
    for (const int later : {3, 4}) w.step(ProgramEnded{id, later, false});
    EXPECT_EQ(w.at(id).exit_status, row.status.value_or(3)) << "a record found later is still taken, but only one";
  }
}

TEST(Program, EndedByAForwardedSignalNamesTheSignal) {
  OneCard w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.step(ProgramEnded{id, 143, true, true});
  EXPECT_EQ(w.at(id).end_reason, EndReason::owner_gone);
  EXPECT_SAYS(w.reason(id, ReasonKind::program_signalled).text("signal"), "SIGTERM");
}

TEST(Program, ThatCouldNotStartFails) {
  OneCard w;
  const LeaseId id = w.run(6 * GiB, 100);
  w.step(ProgramFailed{id, "train.py: not found", 127});
  EXPECT_EQ(w.at(id).end_reason, EndReason::failed);
  EXPECT_EQ(w.at(id).exit_status, 127);
  EXPECT_SAYS(w.reason(id, ReasonKind::program_failed).text("detail"), "train.py: not found");
}

TEST(Program, EndingWhileItsLeaseIsQueuedCancelsIt) {
  OneCard w;
  w.submit(24 * GiB);
  Lease lease = wish(6 * GiB);
  lease.owner = {OwnerKind::process, process(100), {}, ""};
  const LeaseId id = w.submit(lease);
  w.step(ProgramEnded{id, std::nullopt, true});
  EXPECT_EQ(w.told(id).end_reason, EndReason::cancelled);
  EXPECT_TRUE(w.gone(id));
  EXPECT_EQ(w.last.settled, std::vector<LeaseId>{id}) << "it had a process, and nothing is left to measure";
}

// -------------------------------------------------------------------------------- time limits

TEST(TimeLimit, OfAProgramThatSubletStartedEndsItInTwoSteps) {
  for (const bool lives : {true, false}) {
    OneCard w;
    const LeaseId id = w.run(6 * GiB, 100, "train", 60s);
    w.measure({uses(100, 5 * GiB, id)});
    w.pass(60s);
    EXPECT_EQ(w.at(id).end_reason, EndReason::expired);
    EXPECT_TRUE(w.at(id).stop_requested);
    EXPECT_EQ(w.signals(id, false), 1);
    w.measure({uses(100, 5 * GiB, id)});
    EXPECT_EQ(w.free(0), 18 * GiB) << "in its grace it may allocate whatever it was granted";
    w.measure();
    EXPECT_EQ(w.free(0), 18 * GiB) << "again, too";
    const Time before = w.now;
    if (!lives) {
      w.pass(1s);
      w.step(ProgramEnded{id, 143, false});
      w.step(Snapshot{before, {gpu(0, 24 * GiB)}});
      EXPECT_EQ(w.free(0), 18 * GiB) << "it was begun while the program lived";
      w.measure();
      EXPECT_TRUE(w.gone(id));
      EXPECT_EQ(w.free(0), 24 * GiB);
      continue;
    }
    w.pass(w.rules.grace);
    EXPECT_EQ(w.signals(id, true), 1);
    w.now = w.now + 1s;
    w.measure({uses(100, 5 * GiB, id)});
    EXPECT_EQ(w.free(0), 19 * GiB) << "what it is measured to hold after it was killed, no more";
    w.measure();
    EXPECT_EQ(w.free(0), 24 * GiB);
    EXPECT_FALSE(w.gone(id)) << "its program is not known to have ended";
    w.step(ProgramEnded{id, 137, true});
    EXPECT_EQ(w.told(id).exit_status, 137);
    EXPECT_EQ(w.last.settled, std::vector<LeaseId>{id});
    EXPECT_TRUE(w.gone(id));
  }
}

TEST(TimeLimit, OfAProcessThatSubletDidNotStartSignalsNobody) {
  OneCard w;
  Lease lease = wish(6 * GiB);
  lease.owner = {OwnerKind::process, process(100), {}, ""};
  lease.ttl = 60s;
  const LeaseId id = w.submit(lease);
  w.measure({uses(100, 5 * GiB, id)});
  w.pass(60s);
  EXPECT_EQ(w.at(id).end_reason, EndReason::expired);
  w.pass(10min);
  EXPECT_EQ(w.signals(id, false) + w.signals(id, true), 0);
  w.measure({uses(100, 5 * GiB, id)});
  EXPECT_EQ(w.free(0), 19 * GiB);
  w.measure();
  EXPECT_TRUE(w.gone(id));
}

TEST(History, LearnsFromRunsThatEndedWell) {
  OneCard w;
  for (int i = 0; i < 20; ++i) {
    const LeaseId id = w.run(6 * GiB, 100 + 2 * i);
    w.measure({uses(100 + 2 * i, std::int64_t{1 + i} * 128 * MiB, id)});
    w.pass(10s);
    w.step(ProgramEnded{id, i == 3 ? 1 : 0, i == 4});
    w.measure();
  }
  const ConsumerHistory* history = history_of(w.state, anas("train"));
  ASSERT_NE(history, nullptr);
  EXPECT_EQ(history->runs, std::vector<Duration>(16, 10s));
  EXPECT_EQ(history->peak_used, 2560 * MiB);
  EXPECT_EQ(history_of(w.state, anas("other")), nullptr);
  EXPECT_EQ(history_of(w.state, {1001, "train"}), nullptr) << "that of another user is another one";
}

TEST(History, LearnsNoRunFromAnUnknownExitStatus) {
  OneCard w;
  Lease lease = wish(6 * GiB);
  lease.owner = {OwnerKind::process, process(100), {}, ""};  // nobody reports the exit status of this process
  const auto end = [&](const std::function<Fact(LeaseId)>& how) {
    const LeaseId id = w.submit(lease);
    w.pass(10s);
    w.step(how(id));
    EXPECT_EQ(w.at(id).end_reason, EndReason::released);
    w.measure();
    const ConsumerHistory* history = history_of(w.state, lease.whose());
    return history == nullptr ? 0 : std::ssize(history->runs);
  };
  EXPECT_EQ(end([](LeaseId id) { return ProgramEnded{id, std::nullopt, false}; }), 0) << "a signal may have killed it";
  EXPECT_EQ(end([](LeaseId id) { return ProgramEnded{id, 0, false}; }), 1);
  EXPECT_EQ(end([](LeaseId id) { return Release{id, 0}; }), 2) << "its owner released it";
}

}  // namespace
}  // namespace sublet::core::testing
