// SPDX-License-Identifier: Apache-2.0
#include "guard/guard_test.h"

namespace sublet::guard {
namespace {

constexpr Limits ceiling{GiB, {}};

Program wanted(std::string tag) {
  Program program;
  program.uid = 1000;
  program.user = "ana";
  program.tag = std::move(tag);
  program.manifest.arguments = {"serve"};
  program.manifest.directory = "/";
  program.manifest.request = {{"vram_bytes", GiB.count}};
  return program;
}

std::vector<std::string> reasons_of(store::MemoryStore& store, LeaseId lease) {
  std::vector<std::string> all;
  store.read([&](store::Reader& reader) {
    const auto reasons = reader.reasons(lease);
    if (!reasons) return;
    for (const core::Reason& reason : *reasons) all.push_back(core::text_of(reason));
  });
  store.pump();
  return all;
}

bool has(const std::vector<std::string>& texts, std::string_view part) {
  return std::ranges::any_of(texts, [part](const auto& text) { return text.find(part) != std::string::npos; });
}

// -------------------------------------------------------------------------------- ceilings

TEST_F(GuardTest, AProgramThatTakesMoreInItsGraceIsKilled) {
  const LeaseId leak = run(10, GiB, ceiling);
  card_->used = {{10, GiB + 10 * MiB}};
  pass(20ms);
  ASSERT_EQ(lease(leak).end_reason, core::EndReason::over_limit);
  EXPECT_EQ(programs_->signals, std::vector{SIGTERM});
  pass(200ms);
  card_->used[10] += MiB;
  pass(20ms);
  EXPECT_EQ(programs_->signals, (std::vector{SIGTERM, SIGKILL}));
  EXPECT_TRUE(
      has(reasons_of(memory_, leak), "still lives, and uses 1035 MiB on gpu0, more than its ceiling of 1024 MiB"));
}

TEST_F(GuardTest, AProgramThatStaysInItsGraceKeepsIt) {
  run(10, GiB, ceiling);
  card_->used = {{10, GiB + 10 * MiB}};
  for (int i = 0; i < 9; ++i) pass(200ms);
  EXPECT_EQ(programs_->signals, std::vector{SIGTERM});
  pass(500ms);
  EXPECT_EQ(programs_->signals, (std::vector{SIGTERM, SIGKILL})) << "after two seconds";
}

TEST_F(GuardTest, AStoppedProgramStillHasItsCeiling) {
  const LeaseId id = run(10, GiB, ceiling);
  card_->used = {{10, 512 * MiB}};
  pass(1s);
  request(core::Release{.lease = id, .revoke = true});
  settle();
  ASSERT_EQ(programs_->signals, std::vector{SIGTERM});
  pass(1s);
  card_->used[10] = GiB + MiB;
  pass(1s);
  EXPECT_EQ(programs_->signals, (std::vector{SIGTERM, SIGKILL}));
  EXPECT_EQ(lease(id).end_reason, core::EndReason::revoked);
}

TEST_F(GuardTest, ASingleAllocationOverTheCeilingHasItsGrace) {
  run(10, 8 * GiB, {8 * GiB, {}});
  card_->used = {{10, 8 * GiB - 100 * MiB}};
  for (int i = 0; i < 3; ++i) pass(20ms);
  card_->used[10] += 120 * MiB;
  for (int i = 0; i < 3; ++i) pass(20ms);
  EXPECT_EQ(programs_->signals, std::vector{SIGTERM});
}

TEST_F(GuardTest, AProgramThatStaysAfterItsKillIsReadNoMore) {
  run(10, GiB, ceiling);
  card_->used = {{10, GiB + 10 * MiB}};
  for (int i = 0; i < 12; ++i) pass(200ms);
  ASSERT_EQ(programs_->signals, (std::vector{SIGTERM, SIGKILL}));
  card_->used[99] = 23 * GiB - 20 * MiB;  // others suffer, and no further kill helps
  pass(20ms);
  const int before = card_->asked;
  for (int i = 0; i < 10; ++i) pass(20ms);
  EXPECT_LE(card_->asked, before + 1);
  EXPECT_EQ(programs_->signals, (std::vector{SIGTERM, SIGKILL}));
}

TEST_F(GuardTest, ProcessesWithoutALeaseAreNamedAsTakers) {
  const LeaseId good = run(10, 4 * GiB);
  card_->used = {{10, GiB}, {99, 22 * GiB}};
  pass(1s);
  programs_->members.erase(10), card_->used.erase(10);
  (void)engine_->decide(core::ProgramEnded{good, 1});
  settle();
  EXPECT_TRUE(has(reasons_of(memory_, good), "processes without a lease used 22.0 GiB"));
}

TEST_F(GuardTest, AFailureForLackOfPromisedMemoryNamesTheTaker) {
  const LeaseId good = run(10, 4 * GiB), leak = run(20, GiB), other = run(30, 4 * GiB);
  card_->used = {{10, GiB}, {20, 22 * GiB}};
  pass(1s);
  for (const LeaseId id : {good, other}) programs_->members.erase(id == good ? 10 : 30);
  card_->used.erase(10);
  (void)engine_->decide(core::ProgramEnded{good, 1});
  (void)engine_->decide(core::ProgramEnded{other, 0});
  settle();
  EXPECT_TRUE(has(reasons_of(memory_, good),
                  "3.0 GiB of its size was not in use yet, and 1.0 GiB was free on gpu0: " + to_string(leak) +
                      " (load, ana) used 22.0 GiB with a lease of 1.0 GiB"));
  EXPECT_FALSE(has(reasons_of(memory_, other), "run out of memory")) << "it did not fail";
}

TEST_F(GuardTest, AProgramThatIsAskedToEndIsSlowedNoMore) {
  programs_->keepers_live = true;
  const LeaseId id = run(10, GiB, {GiB, 512 * MiB});
  card_->used = {{10, 600 * MiB}};
  pass(1s);
  ASSERT_EQ(programs_->cpu_limits, std::vector{25});
  request(core::Release{.lease = id, .stop = true});
  settle();
  ASSERT_TRUE(lease(id).stop_requested && !lease(id).ended()) << "it saves its work";
  EXPECT_EQ(programs_->cpu_limits, (std::vector{25, 0}));
  pass(1s);
  EXPECT_EQ(programs_->cpu_limits, (std::vector{25, 0})) << "it is still above its soft limit";
}

// -------------------------------------------------------------------------------- without a store

TEST_F(GuardTest, ACeilingNeedsNoDisk) {
  const LeaseId leak = run(10, GiB, ceiling);
  fail_store();
  card_->used = {{10, GiB + 10 * MiB}};
  read_after(20ms);
  EXPECT_TRUE(programs_->signals.empty()) << "a commit is on its way";
  settle();
  ASSERT_FALSE(engine_->store_problem().empty());
  EXPECT_EQ(programs_->signals, std::vector{SIGTERM});
  read_after(200ms);
  card_->used[10] += MiB;
  read_after(20ms);
  EXPECT_EQ(programs_->signals, (std::vector{SIGTERM, SIGKILL}));
  programs_->members.clear(), card_->used.clear();
  come_back();
  ASSERT_TRUE(engine_->store_problem().empty());
  EXPECT_EQ(lease(leak).end_reason, core::EndReason::over_limit);
  EXPECT_TRUE(has(reasons_of(memory_, leak), "over_limit: its program used"));
}

TEST_F(GuardTest, ALeakThatBeginsWithoutADiskIsEndedToo) {
  const LeaseId leak = run(10, GiB, {GiB, 512 * MiB});
  fail_store();
  run(20, GiB);
  ASSERT_FALSE(engine_->store_problem().empty());
  card_->used = {{10, 600 * MiB}};
  read_after(1s);
  EXPECT_EQ(programs_->cpu_limits, std::vector{25}) << "above its soft limit";
  card_->used[10] = 2 * GiB;
  read_after(20ms);
  EXPECT_EQ(programs_->signals, std::vector{SIGKILL});
  come_back();
  EXPECT_EQ(lease(leak).end_reason, core::EndReason::over_limit);
}

TEST_F(GuardTest, ASlowDiskDelaysASignalByAMoment) {
  const LeaseId leak = run(10, GiB, ceiling);
  card_->used = {{10, GiB + 10 * MiB}};
  read_after(20ms);
  read_after(200ms);
  EXPECT_TRUE(programs_->signals.empty());
  read_after(50ms);
  EXPECT_EQ(programs_->signals, std::vector{SIGTERM});
  settle();
  EXPECT_EQ(lease(leak).end_reason, core::EndReason::over_limit);
}

TEST_F(GuardTest, GrowthBeforeTheSignalIsNotHeldAgainstAProgram) {
  run(10, GiB, ceiling);
  card_->used = {{10, GiB + 10 * MiB}};
  read_after(20ms);
  card_->used[10] += MiB;
  read_after(200ms);
  read_after(60ms);
  ASSERT_EQ(programs_->signals, std::vector{SIGTERM}) << "the disk is slow";
  settle();
  pass(200ms);
  EXPECT_EQ(programs_->signals, std::vector{SIGTERM});
  card_->used[10] += MiB;
  pass(20ms);
  EXPECT_EQ(programs_->signals, (std::vector{SIGTERM, SIGKILL}));
}

TEST_F(GuardTest, AKeeperIsToldOfASignalThatDidNotWaitForIt) {
  programs_->keepers_live = true;
  const LeaseId leak = run(10, GiB, ceiling), stopped = run(20, GiB);
  card_->used = {{10, GiB + 10 * MiB}};
  read_after(20ms);
  read_after(250ms);
  EXPECT_EQ(programs_->signals, std::vector{SIGTERM}) << "the disk is slow";
  settle();
  EXPECT_EQ(programs_->woken, 1) << "its keeper measures the grace";
  EXPECT_TRUE(engine_->executor().ends().has_signalled(leak));
  request(core::Release{.lease = stopped, .stop = true});
  settle();
  EXPECT_EQ(programs_->woken, 2);
  EXPECT_FALSE(engine_->executor().ends().has_signalled(stopped)) << "its keeper sends the signal";
}

TEST_F(GuardTest, AStopNeedsNoDiskAndIsStoredLater) {
  const LeaseId id = run(10, GiB);
  fail_store();
  run(20, GiB);
  ASSERT_FALSE(engine_->store_problem().empty());
  const auto stopped = engine_->request(core::Release{.lease = id, .stop = true}, {}, {});
  ASSERT_FALSE(stopped) << "it is not stored";
  EXPECT_EQ(stopped.error().detail,
            "the program of " + to_string(id) +
                " got SIGTERM, and gets SIGKILL in 30 s; its end is stored once the store works "
                "again: no space left");
  EXPECT_EQ(programs_->signals, std::vector{SIGTERM});
  const auto again = engine_->request(core::Release{.lease = id, .stop = true}, {}, {});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().detail, stopped.error().detail);
  programs_->end(id, SIGTERM);
  come_back();
  programs_->end(id, SIGTERM);  // told again to the loaded state
  settle();
  EXPECT_EQ(lease(id).end_reason, core::EndReason::released);
  EXPECT_TRUE(has(reasons_of(memory_, id), "its program was stopped"));
}

TEST_F(GuardTest, TheGraceOfAStopEndsWithoutADisk) {
  const LeaseId id = run(10, GiB);
  fail_store();
  run(20, GiB);
  EXPECT_FALSE(engine_->request(core::Release{.lease = id, .stop = true}, {}, {}));
  for (int i = 0; i < 29; ++i) {
    store_.fail_open(unavailable("no space left"));
    read_after(1s);
  }
  EXPECT_EQ(programs_->signals, std::vector{SIGTERM});
  store_.fail_open(unavailable("no space left"));
  read_after(1s);
  EXPECT_EQ(programs_->signals, (std::vector{SIGTERM, SIGKILL}));
}

TEST_F(GuardTest, AStoredGraceEndsWithoutADisk) {
  const LeaseId id = run(10, GiB);
  request(core::Release{.lease = id, .stop = true});
  settle();
  ASSERT_EQ(programs_->signals, std::vector{SIGTERM});
  fail_store();
  run(20, GiB);
  for (int i = 0; i < 31; ++i) {
    store_.fail_open(unavailable("no space left"));
    read_after(1s);
  }
  EXPECT_EQ(programs_->signals, (std::vector{SIGTERM, SIGKILL}));
}

TEST_F(GuardTest, AStoredGraceEndsOnADiskThatHangs) {
  const LeaseId id = run(10, GiB);
  request(core::Release{.lease = id, .stop = true});
  settle();
  for (int i = 0; i < 31; ++i) read_after(1s);
  EXPECT_EQ(programs_->signals, (std::vector{SIGTERM, SIGKILL}));
}

TEST_F(GuardTest, TheCommandLinesOfAUserHaveALimit) {
  Program large = wanted("a");
  large.manifest.environment = {"A=" + std::string(9 << 20, 'x')};
  ASSERT_TRUE(guard_->add(large));
  large.tag = "b";
  const auto refused = guard_->add(large);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::Quota);
  EXPECT_EQ(refused.error().detail,
            "the command lines and environments of the programs of ana would take 18.0 MiB of 16.0 MiB");
  EXPECT_TRUE(guard_->replace(*guard_->find(1000, "a"), large.manifest, 1000)) << "it replaces as much";
  large.manifest.environment.push_back("B=" + std::string(9 << 20, 'x'));
  EXPECT_EQ(guard_->replace(*guard_->find(1000, "a"), large.manifest, 1000).error().code, Code::Quota);
  large.manifest.environment.pop_back();
  large.uid = 1001;
  EXPECT_TRUE(guard_->add(large)) << "another user";
}

TEST_F(GuardTest, ADiskThatTakesLongIsTold) {
  const auto is_told = [this] {
    return std::ranges::any_of(engine_->warnings(), [](const auto& warning) { return warning.code == "store-slow"; });
  };
  pass(1min);
  EXPECT_FALSE(is_told()) << "nothing waits";
  ASSERT_TRUE(guard_->add(wanted("a")));
  ASSERT_TRUE(engine_->store_rows("program_added", {}, [] { return engine::Answered(); }));
  read_after(1500ms);
  EXPECT_FALSE(is_told());
  read_after(2500ms);
  EXPECT_TRUE(is_told());
  settle();
  EXPECT_FALSE(is_told());
}

TEST_F(GuardTest, FewProgramsStartAtATime) {
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(guard_->add(wanted("serve" + std::to_string(i))));
  }
  ASSERT_TRUE(engine_->store_rows("program_added", {}, [] { return engine::Answered(); }));
  settle();
  EXPECT_EQ(keepers_.orders.size(), 2U) << "of one user";
  for (const std::uint32_t uid : {1001U, 1002U}) {
    for (const char* tag : {"a", "b"}) {
      Program other = wanted(tag);
      other.uid = uid;
      ASSERT_TRUE(guard_->add(other));
    }
  }
  ASSERT_TRUE(engine_->store_rows("program_added", {}, [] { return engine::Answered(); }));
  settle();
  EXPECT_EQ(keepers_.orders.size(), 4U) << "of all users";
  keepers_.answers[0](unavailable("no rights"));
  settle();
  EXPECT_EQ(keepers_.orders.size(), 5U) << "one has ended";
  pass(1s), pass(1s), pass(1s);
  EXPECT_GE(keepers_.orders.size(), 8U) << "keepers that do not get on stand in nobody's way";
}

// -------------------------------------------------------------------------------- starts

TEST_F(GuardTest, AReaderOfTheOutputIsOrderedAgainOnlyIfItDoesNotLive) {
  const LeaseId id = run(10, GiB);
  engine::SupervisedRuns runs(*engine_, keepers_, {});
  const engine::Run load{.uid = 1000, .user = "ana", .tag = "load", .kind = "program", .name = "load", .log = "log"};
  const auto look_after = [&](Duration time) {
    own_clock_->advance(time);
    runs.watch_keeper(load, lease(id), engine_->now());
  };
  look_after(0s);
  ASSERT_EQ(keepers_.orders.size(), 1U);
  EXPECT_TRUE(keepers_.document(0).contains("drain"));
  keepers_.answers[0](ProcessRef{50, 1});
  for (int minute = 0; minute < 60; ++minute) look_after(1min);
  EXPECT_EQ(keepers_.orders.size(), 1U) << "it reads";
  programs_->others_live = false;
  look_after(10s);
  EXPECT_EQ(keepers_.orders.size(), 2U) << "it was killed";
  for (int minute = 0; minute < 60; ++minute) look_after(1min);
  EXPECT_LT(keepers_.orders.size(), 15U) << "it finds nothing to read";
}

TEST_F(GuardTest, TheKeeperOfARemovedProgramIsNotTakenForThatOfItsSuccessor) {
  const auto add = [this] {
    const auto added = guard_->add(wanted("a"));
    ASSERT_TRUE(added);
    ASSERT_TRUE(engine_->store_rows("program_added", {}, [] { return engine::Answered(); }));
    settle();
  };
  add();
  ASSERT_TRUE(guard_->remove(*guard_->find(1000, "a"), false, 1000));
  settle();
  ASSERT_EQ(guard_->find(1000, "a"), nullptr);
  add();
  ASSERT_EQ(keepers_.orders.size(), 2U);
  const auto name = [this](std::size_t i) {
    const auto of = keepers_.document(i).at("request").at("program");
    return StartName{of.at("tag"), of.at("number"), of.at("start")};
  };
  const auto old = guard_->may_submit(1000, name(0));
  ASSERT_FALSE(old);
  EXPECT_EQ(old.error().code, Code::Stale);
  EXPECT_EQ(old.error().detail, "the program 'a' of this keeper was removed");
  EXPECT_TRUE(guard_->may_submit(1000, name(1)));
  const auto report = guard_->report(*guard_->find(1000, "a"), {.number = name(0).number, .start = 1, .failed = "old"});
  EXPECT_EQ(report.error().code, Code::Stale);
  keepers_.answers[0](unavailable("the old keeper could not be started"));
  EXPECT_EQ(guard_->find(1000, "a")->progress.phase, Phase::starting);
  keepers_.answers[1](unavailable("no rights"));
  EXPECT_EQ(guard_->find(1000, "a")->progress.phase, Phase::failed);
}

}  // namespace
}  // namespace sublet::guard
