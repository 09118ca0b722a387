// SPDX-License-Identifier: Apache-2.0
// The enforcer with an engine, a store and a clock of the test. The test plays the driver and the actor.
#include "enforcer/enforcer.h"

#include "enforcer/enforcer_test.h"

#include <csignal>

namespace sublet::enforcer {
namespace {

using namespace std::chrono_literals;
using Kind = machine::UnleasedResult::Kind;

TEST_F(EnforcerTest, EndsAProcessByTheLadder) {
  be_condemned();
  EXPECT_EQ(unleased->signals, (std::vector{SIGTERM}));
  EXPECT_EQ(verdict().stage, Stage::terminating);
  pass(grace - 2 * interval);
  EXPECT_EQ(unleased->signals, (std::vector{SIGTERM})) << "the grace is not over";
  pass(3 * interval);
  EXPECT_EQ(unleased->signals, (std::vector{SIGTERM, SIGKILL}));
  unleased->living.erase(offender);
  card->listed.clear();
  pass(interval);
  EXPECT_EQ(verdict().outcome, Outcome::ended);
}

TEST_F(EnforcerTest, DescendantsThatOutliveAnOffenderDoNotMakeOthersWait) {
  unleased->answer.sent = 2;  // it and a child
  be_condemned();
  const ProcessRef next{4800, 60};
  add(next, GiB);
  pass(4 * interval);
  EXPECT_EQ(unleased->signalled, (std::vector{offender}));
  end(offender);
  pass(2 * interval);
  EXPECT_EQ(verdict_of(offender).stage, Stage::terminating) << "its child gets SIGKILL after the grace";
  EXPECT_EQ(unleased->signalled, (std::vector{offender, next}));
}

TEST_F(EnforcerTest, EndsNobodyForATimeAfterAClockGapInTheGrace) {
  be_condemned();
  clock->advance(40min);  // nobody rings meanwhile: a clock gap
  settle();
  pass(interval);
  EXPECT_EQ(unleased->signals, (std::vector{SIGTERM})) << "the clock is far past the grace";
  pass(grace - 2 * interval);
  EXPECT_EQ(unleased->signals, (std::vector{SIGTERM})) << "the grace began anew";
  pass(3 * interval);
  EXPECT_EQ(unleased->signals, (std::vector{SIGTERM, SIGKILL}));
}

TEST_F(EnforcerTest, ANewPolicyHoldsAtOnceForAnOpenVerdict) {
  be_condemned();
  const auto step = [&](const char* what) {
    const auto& steps = verdict().steps;
    return std::ranges::find(steps, what, &Step::what) - steps.begin();
  };
  EXPECT_LT(step("policy"), step("notice")) << "the notice tells what the new policy does";
  set_policy("user:0", Policy::observe);
  EXPECT_EQ(verdict().stage, Stage::seen);
  pass(2 * grace);
  EXPECT_EQ(unleased->signals, (std::vector{SIGTERM}));
  set_policy("user:0", Policy::enforce);
  pass(interval);
  EXPECT_EQ(unleased->signals, (std::vector{SIGTERM, SIGTERM})) << "the ladder begins at its foot";
}

TEST_F(EnforcerTest, AnEarlierNoticeIsNoPromiseToEndIt) {
  set_policy("user:0", Policy::adopt);
  see_three_times();
  const auto notices = [&] { return std::ranges::count(verdict().steps, "notice", &Step::what); };
  ASSERT_EQ(notices(), 1);
  set_policy("user:0", Policy::enforce);
  pass(interval);
  EXPECT_EQ(unleased->signals, (std::vector{SIGTERM}));
  EXPECT_EQ(notices(), 2) << "its owner is told that it will be ended";
}

// A list that cannot be true, or that is empty or late, ends nobody.
TEST_F(EnforcerTest, ABadReadingEndsNobody) {
  const struct {
    const char* name;
    void (*spoil)(TestCard&);
  } rows[] = {
      {"empty", [](TestCard& its) { its.listed.clear(); }},
      {"late", [](TestCard& its) { its.late = true; }},
      {"of another namespace",
       [](TestCard& its) {
         its.listed = {{.process = {2, 0}, .used = GiB}};
       }},
      {"no figures", [](TestCard& its) { its.device_problem = "the driver does not answer"; }},
      {"without sizes", [](TestCard& its) { its.listed = {{.process = offender, .used = std::nullopt}}; }},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    start_again();
    see_three_times();
    row.spoil(*card);
    pass(2 * interval);
    const std::uint64_t rule = set_policy("user:0", Policy::enforce);
    pass(2 * interval);
    EXPECT_TRUE(unleased->signals.empty());
    EXPECT_TRUE(enforcer->remove(rule, Rule::Kind::policy));
    store_rows();
  }
}

// Growing memory of others asks for passes at once.
TEST_F(EnforcerTest, AProcessWithoutMemoryIsForgottenByTimeAndNotByPasses) {
  see_three_times();
  const ProcessRef growing{4800, 60};
  card->listed.clear();
  for (int second = 1; second <= 25; ++second) {
    end(growing);
    add(growing, second * 512 * MiB);
    card->wanted = true;
    pass(1s);
  }
  EXPECT_TRUE(verdict_of(offender).open());
  EXPECT_GT(verdict_of(growing).holdings.size(), 10u) << "there were many passes";
  pass(3 * interval);
  EXPECT_EQ(verdict_of(offender).outcome, Outcome::gone);
}

struct LateStart : EnforcerTest {
  LateStart() : EnforcerTest(false) {}
};

TEST_F(LateStart, AProcessThatHoldsNothingIsNoOffender) {
  first_listed = {{.process = offender, .used = Bytes{}}};
  start_again();
  set_policy("user:0", Policy::enforce);
  pass(6 * interval);
  EXPECT_TRUE(enforcer->verdicts().empty());
  EXPECT_TRUE(unleased->signals.empty());
}

TEST_F(EnforcerTest, AProcessWithoutTheKernelsEvidenceIsSpared) {
  unleased->answer = {.kind = Kind::spared, .why = "no evidence"};
  see_three_times();
  set_policy("user:0", Policy::enforce);
  pass(4 * interval);
  EXPECT_TRUE(unleased->signals.empty());
  EXPECT_EQ(verdict().steps.back().what, "spared");
}

TEST_F(EnforcerTest, AProcessBelowADeadOneOfALeaseIsSpared) {
  unleased->above = LeaseId{7};
  see_three_times();
  set_policy("user:0", Policy::enforce);
  pass(4 * interval);
  EXPECT_TRUE(unleased->signals.empty());
  EXPECT_EQ(verdict().spared_for, LeaseId{7});
  EXPECT_NE(summary(verdict()).find("is spared: a process above it belonged to lease-7"), std::string::npos);
  unleased->above = {};
  pass(interval);
  EXPECT_TRUE(unleased->signals.empty()) << "the sightings under the lease do not count";
  pass(3 * interval);
  EXPECT_EQ(unleased->signals, (std::vector{SIGTERM})) << "its lease is gone";
  unleased->above = LeaseId{7};
  pass(2 * grace);
  EXPECT_EQ(unleased->signals, (std::vector{SIGTERM})) << "a link that is found later spares it too";
}

TEST_F(EnforcerTest, ADescendantThatALinkSparesGetsNoSignalOfTheOffender) {
  const ProcessRef child{4712, 70};
  unleased->living.insert(child);
  unleased->parents_of[child] = {{{4001, 55}, 0, "bash"}, {offender, 0, "train"}};
  unleased->above = LeaseId{7};
  unleased->member = 4001;
  card->listed.push_back({.process = child, .used = GiB});
  pass(5 * interval);
  set_policy("user:0", Policy::enforce);
  pass(2 * interval);
  EXPECT_EQ(unleased->signalled, (std::vector{offender}));
  EXPECT_EQ(unleased->spare, (std::vector{child}));
}

TEST_F(EnforcerTest, ALinkThatWasFoundHoldsAsLongAsItsLease) {
  const LeaseId lease = submit_lease();
  unleased->above = lease;
  see_three_times();
  set_policy("user:0", Policy::enforce);
  pass(interval);
  ASSERT_EQ(verdict().spared_for, lease);
  start_again();  // the dead processes of the lease are not known any more
  ASSERT_FALSE(unleased->above);
  pass(2 * Options().start_grace);
  EXPECT_TRUE(unleased->signals.empty());
  EXPECT_EQ(verdict().spared_for, lease);
  end_lease(lease);
  pass(4 * interval);
  EXPECT_EQ(unleased->signals, (std::vector{SIGTERM}));
  EXPECT_FALSE(verdict().spared_for);
}

TEST_F(EnforcerTest, RememberTheParentsThatHaveEnded) {
  see_three_times();
  ASSERT_EQ(verdict().record.ancestry.size(), 2u);
  unleased->parents = {{{1, 1}, 0, "systemd"}};  // its parent ended, and init took it
  pass(interval);
  ASSERT_EQ(verdict().record.ancestry.size(), 2u);
  EXPECT_EQ(verdict().record.ancestry[0].process.pid, 4000);
  EXPECT_TRUE(verdict().record.ancestry[0].dead);
  ASSERT_EQ(unleased->traced.size(), 2u) << "once at first, and when the parents changed";
  proc::Ancestor dead{{4000, 50}, 0, "bash"};
  dead.dead = true;
  dead.source = proc::ParentSource::connector;
  dead.ended = clock->now();
  unleased->traced.back()({true, {dead, {{1, 1}, 0, "systemd"}}, ""});
  settle();
  EXPECT_EQ(verdict().record.ancestry[0], dead) << "the source knows more";
  pass(interval);
  EXPECT_EQ(verdict().record.ancestry[0], dead);
}

TEST_F(LateStart, AProcessWithoutParentsIsAskedAboutOnce) {
  first_listed.clear();
  start_again();
  unleased->parents_of[offender] = {};
  card->listed = {{.process = offender, .used = GiB}};
  pass(5 * interval);
  ASSERT_EQ(unleased->traced.size(), 1u);
  unleased->traced.back()({.asked = true});
  settle();
  const std::uint64_t rows = engine->intended();
  pass(5 * interval);
  EXPECT_EQ(unleased->traced.size(), 1u);
  EXPECT_EQ(engine->intended(), rows) << "nothing is stored, since nothing changed";
}

TEST_F(EnforcerTest, AnActorThatDoesNotAnswerIsAskedAtEachPass) {
  see_three_times();
  const std::size_t before = unleased->traced.size();
  unleased->traced.back()({});
  pass(2 * interval);
  EXPECT_EQ(unleased->traced.size(), before + 1);
}

TEST_F(EnforcerTest, ARebootClosesAllOpenVerdicts) {
  be_condemned();
  const std::uint64_t id = verdict().id;
  first_listed.clear();
  start_again("another boot");
  EXPECT_EQ(enforcer->verdicts().at(id).stage, Stage::closed);
  EXPECT_EQ(enforcer->verdicts().at(id).steps.back().result, "the machine was rebooted");
  EXPECT_TRUE(unleased->held.empty()) << "no pid of an earlier boot is looked at";
}

TEST_F(EnforcerTest, ADaemonThatIsStartedInTheGraceSendsSigkillLater) {
  be_condemned();
  const std::uint64_t id = verdict().id;
  start_again();
  pass(grace - 2 * interval);
  EXPECT_EQ(enforcer->verdicts().at(id).stage, Stage::terminating);
  EXPECT_TRUE(unleased->signals.empty()) << "the grace is not over";
  pass(4 * interval);
  EXPECT_EQ(unleased->signals, (std::vector{SIGKILL}));
  unleased->living.erase(offender);
  card->listed.clear();
  pass(interval);
  EXPECT_EQ(enforcer->verdicts().at(id).outcome, Outcome::ended);
}

TEST_F(EnforcerTest, AProcessThatCannotBeHeldNowIsTriedAgain) {
  be_condemned();
  const std::uint64_t id = verdict().id;
  hold_problem = unavailable("no descriptor is free");
  start_again();
  EXPECT_EQ(enforcer->verdicts().at(id).stage, Stage::terminating) << "it may live";
  pass(interval);
  EXPECT_EQ(enforcer->verdicts().size(), 1u) << "it gets no second verdict";
  EXPECT_TRUE(unleased->signals.empty());
  hold_problem.reset();
  unleased->problem.reset();
  pass(interval);
  pass(2 * grace);
  EXPECT_EQ(unleased->signals, (std::vector{SIGKILL}));
  unleased->living.erase(offender);
  start_again();
  EXPECT_EQ(enforcer->verdicts().at(id).outcome, Outcome::ended) << "it is truly gone";
}

TEST_F(EnforcerTest, ANumberOfARemovedRuleIsNeverUsedAgain) {
  const std::uint64_t first = set_policy("user:1", Policy::warn);
  const std::uint64_t second = set_policy("user:2", Policy::warn);
  ASSERT_TRUE(enforcer->remove(second, Rule::Kind::policy));
  store_rows();
  start_again();
  EXPECT_GT(set_policy("user:3", Policy::warn), second);
  EXPECT_TRUE(enforcer->replaces({.kind = Rule::Kind::policy, .subject = *parse_subject("user:1")}));
  EXPECT_FALSE(enforcer->replaces({.kind = Rule::Kind::policy, .subject = *parse_subject("user:2")}));
  EXPECT_FALSE(enforcer->replaces({.kind = Rule::Kind::approval, .subject = *parse_subject("user:1")}));
  EXPECT_GT(set_policy("user:1", Policy::observe), first);
}

}  // namespace
}  // namespace sublet::enforcer
