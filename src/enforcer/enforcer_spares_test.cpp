// SPDX-License-Identifier: Apache-2.0
// The enforcer beside processes that it spares: protected ones, those that only draw, and those without budget.
#include "enforcer/enforcer.h"

#include "enforcer/enforcer_test.h"

#include <csignal>

namespace sublet::enforcer {
namespace {

using namespace std::chrono_literals;
using Kind = machine::UnleasedResult::Kind;

const machine::UnleasedResult is_protected{
    .kind = Kind::spared, .why = "the process is protected and never signalled", .lasting = true};

int count(const std::vector<ProcessRef>& all, ProcessRef process) {
  return static_cast<int>(std::ranges::count(all, process));
}

int count_steps(const Verdict& verdict, std::string_view what) {
  return static_cast<int>(std::ranges::count(verdict.steps, what, &Step::what));
}

TEST_F(EnforcerTest, AnOffenderAmongProtectedProcessesIsEnded) {
  set_policy("user:0", Policy::enforce);
  card->listed[0].used = 100 * MiB;
  for (int i = 0; i < 40; ++i) {
    const ProcessRef screen{5000 + i, 60};
    unleased->answers[screen] = is_protected;
    add(screen, 200 * MiB);  // more than the offender has, so they come first
  }
  pass(4 * interval);
  EXPECT_EQ(unleased->signalled, (std::vector{offender}));
}

TEST_F(EnforcerTest, AProtectedProcessCostsOneLookAndNoEvents) {
  unleased->answers[offender] = is_protected;
  set_policy("user:0", Policy::enforce);
  pass(4 * interval);
  ASSERT_EQ(verdict().spared, is_protected.why);
  EXPECT_EQ(count_steps(verdict(), "notice"), 0) << "its owner is not told that it will be ended";
  const std::uint64_t rows = engine->intended();
  const auto looks = count(unleased->looked, offender);
  pass(40min);
  EXPECT_EQ(count(unleased->looked, offender), looks);
  EXPECT_EQ(engine->intended(), rows) << "nothing is stored, and no event is told";
  EXPECT_EQ(count_steps(verdict(), "spared"), 1);
  unleased->names[offender] = "train";  // it executes another file
  unleased->answers.erase(offender);
  pass(2 * interval);
  EXPECT_EQ(unleased->signalled, (std::vector{offender}));
}

TEST_F(EnforcerTest, OtherAnswersOfTheActorAreAskedForLessAndLess) {
  unleased->answers[offender] = {.kind = Kind::spared, .why = "no evidence"};
  set_policy("user:0", Policy::enforce);
  pass(60min);
  EXPECT_LE(unleased->looked.size(), 10u);
  EXPECT_EQ(count_steps(verdict(), "spared"), 1);
  unleased->answers.erase(offender);
  pass(60min);
  EXPECT_EQ(unleased->signalled.front(), offender) << "its answer has changed";
}

// One look may hold the only thread of the actor for seconds.
TEST_F(EnforcerTest, ANewNameBuysFewLooksUnderAMilderPolicy) {
  for (int i = 0; i < 240; ++i) {
    unleased->names[offender] = "name" + std::to_string(i);
    pass(interval);
  }
  EXPECT_LE(unleased->looked.size(), 10u);
}

TEST_F(EnforcerTest, ALargeProcessDoesNotWaitForASmallOne) {
  card->listed[0].used = 40 * MiB;
  be_condemned();
  const ProcessRef large{6000, 60}, equal{6001, 60};
  add(large, 1536 * MiB);
  add(equal, 1024 * MiB);
  pass(4 * interval);
  EXPECT_EQ(unleased->signalled, (std::vector{offender, large})) << "the next one waits for the large one";
  end(large);
  pass(2 * interval);
  EXPECT_EQ(unleased->signalled, (std::vector{offender, large, equal}));
}

// Runs a process until it is ended. False: it was spared.
struct EnforcerBudget : EnforcerTest {
  bool run(std::int32_t pid, Bytes used, const std::string& exe, std::int32_t parent) {
    const ProcessRef process{pid, 60};
    unleased->answers[process] = {.kind = Kind::done, .exe = exe, .device_file = true, .sent = 1};
    unleased->parents_of[process] = {{{parent, 50}, 0, "bash"}, {{1, 1}, 0, "systemd"}};
    add(process, used);
    pass(4 * interval);
    const bool ended = count(unleased->signalled, process) > 0;
    last = verdict_of(process);
    warnings = enforcer->warnings(clock->now());
    end(process);
    pass(interval);
    return ended;
  }
  void SetUp() override {
    end(offender);
    set_policy("user:0", Policy::enforce);
  }
  Verdict last;
  std::vector<engine::Warning> warnings;  // while it lived
};

TEST_F(EnforcerBudget, BoundsALoopWithANewPathForEachRun) {
  int ended = 0;
  while (ended < 20 && run(7000 + ended, GiB, "/tmp/m." + std::to_string(ended) + "/app", 4000)) ++ended;
  EXPECT_EQ(ended, most_of_parent);
  EXPECT_EQ(count_steps(last, "alarm"), 1);
  EXPECT_EQ(count_steps(last, "condemned"), 0) << "it was never about to be ended";
  EXPECT_EQ(count_steps(last, "notice"), 0);
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].text.find("5 processes started by bash (pid 4000)"), std::string::npos);
  EXPECT_TRUE(enforcer->warnings(clock->now()).empty()) << "nobody is spared any more";
  EXPECT_TRUE(run(7100, GiB, "/opt/other", 4001)) << "another parent";
}

TEST_F(EnforcerBudget, SmallVictimsBuyNothing) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(run(7000 + i, 40 * MiB, "/usr/bin/python3.11", 4000));
  EXPECT_FALSE(run(7010, 60 * MiB, "/usr/bin/python3.11", 4000));
  EXPECT_TRUE(run(7011, 1536 * MiB, "/usr/bin/python3.11", 4000));
}

// It frees its memory at SIGTERM, and allocates again when it is forgotten.
TEST_F(EnforcerBudget, IsNotSpentByOneProcessThatLives) {
  const ProcessRef process{7000, 60};
  unleased->answers[process] = {.kind = Kind::done, .exe = "/opt/app", .device_file = true, .sent = 1};
  for (int round = 1; round <= 2 * most_of_program; ++round) {
    add(process, GiB);
    pass(4 * interval);
    EXPECT_EQ(count(unleased->signalled, process), round);
    card->listed.clear();
    pass(4 * interval);
    EXPECT_EQ(verdict_of(process).outcome, Outcome::gone);
    if (round != most_of_program) continue;
    first_listed.clear();
    start_again();  // with the ends of the stored verdicts
    unleased->answers[process] = {.kind = Kind::done, .exe = "/opt/app", .device_file = true, .sent = 1};
    unleased->signalled.assign(static_cast<std::size_t>(round), process);
    pass(2 * Options().start_grace);
  }
  EXPECT_TRUE(run(7001, GiB, "/opt/app", 4000));
}

TEST_F(EnforcerBudget, TellsAnAlarmOnce) {
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(run(7000 + i, GiB, "/opt/app", 4000 + i));
  const ProcessRef next{7010, 60};
  unleased->answers[next] = {.kind = Kind::done, .exe = "/opt/app", .device_file = true, .sent = 1};
  add(next, GiB);
  pass(4 * interval);
  const std::uint64_t rows = engine->intended();
  pass(20 * interval);
  EXPECT_EQ(engine->intended(), rows);
  EXPECT_EQ(verdict_of(next).stage, Stage::seen);
  EXPECT_NE(summary(verdict_of(next)).find("is spared: 3 processes of /opt/app of user"), std::string::npos);
  pass(kill_window);
  EXPECT_GE(count(unleased->signalled, next), 1) << "the hour is over";
}

TEST_F(EnforcerTest, AProcessThatOnlyDrawsIsSparedUnlessARuleNamesIt) {
  card->listed[0].graphics_only = true;
  set_policy("user:0", Policy::enforce);
  pass(6 * interval);
  EXPECT_TRUE(unleased->signals.empty());
  EXPECT_EQ(verdict().policy, Policy::observe);
  EXPECT_NE(summary(verdict()).find("only draws"), std::string::npos);
  card->listed[0].graphics_only = false;  // it begins to compute
  const Time since = clock->now();
  pass(interval);
  EXPECT_TRUE(unleased->signals.empty()) << "the sightings while it drew do not count";
  EXPECT_EQ(count_steps(verdict(), "computes"), 1);
  pass(3 * interval);
  EXPECT_EQ(unleased->signals, (std::vector{SIGTERM}));
  EXPECT_GE(enforcer->preview(Time{}, std::nullopt).at(0).term_at, since + 2 * interval);
  card->listed[0].graphics_only = true;
  pass(2 * grace);
  EXPECT_EQ(unleased->signals, (std::vector{SIGTERM}));
  enforcer->add(
      {.kind = Rule::Kind::policy, .subject = *parse_subject("user:0"), .policy = Policy::enforce, .graphics = true});
  store_rows();
  pass(2 * interval);
  EXPECT_EQ(unleased->signals, (std::vector{SIGTERM, SIGTERM}));
}

TEST_F(EnforcerTest, ATerminalThatDrawsDoesNotSpareTheProgramBelowIt) {
  const ProcessRef terminal{4000, 50}, window{4713, 70};  // the first is the parent of the offender
  add(terminal, 20 * MiB, true);
  add(window, 20 * MiB, true);
  unleased->parents_of[terminal] = {};
  set_policy("user:0", Policy::enforce);
  pass(4 * interval);
  EXPECT_EQ(unleased->signalled, (std::vector{offender}));
  EXPECT_EQ(unleased->spare, (std::vector{window}));
}

TEST_F(EnforcerTest, AProcessBelowAnApprovedOneIsSparedWithoutAPromiseToEndIt) {
  const ProcessRef approved{4000, 50};  // the parent of the offender
  add(approved, GiB);
  unleased->parents_of[approved] = {};
  unleased->uids[approved] = 7;
  const std::uint64_t approval = enforcer->add({.kind = Rule::Kind::approval, .subject = *parse_subject("user:7")}).id;
  set_policy("user:0", Policy::enforce);
  pass(20 * interval);
  EXPECT_TRUE(unleased->signals.empty());
  EXPECT_EQ(verdict_of(offender).spared, "bash (pid 4000) above it may hold memory");
  EXPECT_EQ(count_steps(verdict_of(offender), "condemned"), 0);
  EXPECT_EQ(count_steps(verdict_of(offender), "spared"), 1);
  EXPECT_TRUE(enforcer->remove(approval, Rule::Kind::approval));
  set_policy("user:7", Policy::enforce);
  pass(2 * interval);
  EXPECT_EQ(unleased->signalled, (std::vector{offender})) << "nothing above it is spared any more";
}

std::string reason_in(const std::vector<Preview>& previews, ProcessRef process) {
  const auto found = std::ranges::find_if(
      previews, [process](const Preview& each) { return each.verdict->record.process == process; });
  return found == previews.end() ? "not listed" : found->spared;
}

TEST_F(EnforcerTest, APreviewOfClosedVerdictsTellsWhyTheyWouldHaveBeenSpared) {
  const ProcessRef approved{5000, 60}, freed{5001, 60};
  unleased->uids[approved] = 7;
  add(approved, GiB);
  add(freed, GiB);
  pass(4 * interval);
  enforcer->add({.kind = Rule::Kind::approval, .subject = *parse_subject("user:7")});
  store_rows();
  std::erase_if(card->listed, [&](const gpu::GpuProcess& each) { return each.process == freed; });
  pass(5 * interval);
  const auto previews = enforcer->preview(Time{}, std::nullopt);
  EXPECT_EQ(reason_in(previews, approved), "it was approved");
  EXPECT_EQ(reason_in(previews, freed), "");
  EXPECT_EQ(verdict_of(freed).outcome, Outcome::gone) << "the command line tells that it is not ended now";
}

TEST_F(EnforcerTest, APreviewTellsThatNothingIsEndedAtPresent) {
  const auto why = [&] { return reason_in(enforcer->preview(Time{}, std::nullopt), offender); };
  const auto warnings = [&] { return enforcer->warnings(clock->now()); };
  see_three_times();
  EXPECT_EQ(why(), "");
  card->device_problem = "it does not answer";
  pass(2 * interval);
  EXPECT_EQ(why(), "nothing is ended while gpu0 (GPU-1) cannot be read");
  EXPECT_TRUE(warnings().empty()) << "nothing would be ended anyway";
  set_policy("user:0", Policy::enforce);
  ASSERT_EQ(warnings().size(), 1u);
  EXPECT_EQ(warnings()[0].text, "processes without a lease: nothing is ended while gpu0 (GPU-1) cannot be read");
  card->device_problem.clear();
  unleased->answer = {.kind = Kind::no_actor};
  clock->advance(20min);
  pass(interval);
  EXPECT_TRUE(warnings().empty());
  EXPECT_EQ(why(), "nothing is ended for 30 s after a start or a clock gap");
}

TEST_F(EnforcerTest, APreviewEndsNobodyWithoutALook) {
  add({5000, 60}, 2 * GiB);
  unleased->silent = true;  // the actor is slow
  pass(4 * interval);
  EXPECT_EQ(reason_in(enforcer->preview(Time{}, std::nullopt), offender), "the actor has not looked at it");
}

TEST_F(EnforcerTest, APreviewCountsTheEndsThatComeBefore) {
  end(offender);
  for (int i = 0; i < 2 * most_of_program; ++i) {
    const ProcessRef process{7000 + i, 60};
    unleased->answers[process] = {.kind = Kind::done, .exe = "/opt/app", .device_file = true, .sent = 1};
    add(process, (1000 - i) * MiB);
  }
  pass(5 * interval);
  std::vector<std::int32_t> ended;
  for (const Preview& each : enforcer->preview(Time{}, std::nullopt))
    if (each.spared.empty()) ended.push_back(each.verdict->record.process.pid);
  EXPECT_EQ(ended, (std::vector{7000, 7001, 7002}));
  EXPECT_EQ(reason_in(enforcer->preview(Time{}, std::nullopt), {7005, 60}),
            "3 processes of /opt/app of user root were ended within an hour");
}

TEST_F(EnforcerTest, APreviewTellsWhatWouldBeEndedNow) {
  const ProcessRef screen{5000, 60}, window{5001, 60};
  unleased->answers[screen] = is_protected;
  add(screen, GiB);
  add(window, GiB, true);
  pass(4 * interval);
  std::map<std::int32_t, std::string> spared;
  for (const Preview& each : enforcer->preview(Time{}, std::nullopt))
    spared[each.verdict->record.process.pid] = each.spared;
  EXPECT_EQ(spared, (std::map<std::int32_t, std::string>{
                        {offender.pid, ""}, {screen.pid, is_protected.why}, {window.pid, "it only draws"}}));
  EXPECT_TRUE(unleased->signals.empty());
  EXPECT_EQ(count(unleased->looked, offender), 1) << "under observe a look is enough";
}

}  // namespace
}  // namespace sublet::enforcer
