// SPDX-License-Identifier: Apache-2.0
#include "enforcer/verdict.h"

#include "enforcer/ancestry.h"
#include "enforcer/test_support.h"

#include <gtest/gtest.h>

namespace sublet::enforcer {
namespace {

using namespace std::chrono_literals;

Verdict full() {
  Verdict verdict;
  verdict.id = 7;
  verdict.record.process = {4711, 99};
  verdict.record.uid = 1000;
  verdict.record.name = "x) Z 1 1";
  verdict.record.command = "python3 \"train\".py \xff";
  verdict.record.cgroup = "/user.slice";
  verdict.record.container = "0123456789ab";
  verdict.record.ancestry = {{.process = {4100, 60},
                              .uid = proc::unknown_uid,
                              .source = proc::ParentSource::accounting,
                              .certain = false,
                              .dead = true,
                              .ended = noon},
                             {{4000, 50}, 1000, "bash"},
                             {{1, 1}, 0, "systemd"}};
  verdict.record.missing = "the parent of process 4100 ended before noon; no record";
  verdict.spared_for = LeaseId{7};
  verdict.inode = 42;
  verdict.user = "ana";
  verdict.exe = "/usr/bin/python3";
  verdict.mapping = true;
  verdict.draws = verdict.looked = true;
  verdict.spared = "it is protected";
  verdict.opened_at = noon;
  verdict.last_seen = noon + 30s;
  verdict.sightings = 3;
  verdict.policy = Policy::enforce;
  verdict.stage = Stage::terminating;
  verdict.noticed = true;
  verdict.descendants = 2;
  verdict.act_at = noon + 5min;
  verdict.hold(noon, "GPU-1", 2 * GiB);
  verdict.hold(noon + 15s, "GPU-2", GiB);
  verdict.note(noon, "seen", "it holds 2.0 GiB under no lease");
  verdict.note(noon + 30s, "SIGTERM");
  return verdict;
}

TEST(Verdicts, AreStoredWhole) {
  const Verdict verdict = full();
  const auto read = verdict_from_row(to_row(verdict));
  ASSERT_TRUE(read) << read.error().detail;
  EXPECT_EQ(to_row(*read), to_row(verdict));
  EXPECT_EQ(read->stage, Stage::terminating);
  EXPECT_EQ(read->act_at, verdict.act_at);
  EXPECT_EQ(read->record.ancestry, verdict.record.ancestry);
  EXPECT_EQ(read->record.missing, verdict.record.missing);
  EXPECT_EQ(read->spared_for, verdict.spared_for);
  EXPECT_TRUE(read->draws && read->looked);
  EXPECT_EQ(read->spared, verdict.spared);
  EXPECT_EQ(read->steps, verdict.steps);
  EXPECT_EQ(read->used(), 3 * GiB);
  for (const char* data : {"", "{", "{}", "[]", "null"}) EXPECT_FALSE(verdict_from_row({"verdict", "7", data})) << data;
}

TEST(Verdicts, TellTheSourceOfEachParent) {
  const nlohmann::json shown = describe(full());
  EXPECT_EQ(shown["ancestry"][0], (nlohmann::json{{"pid", 4100},
                                                  {"uid", nullptr},
                                                  {"name", nullptr},
                                                  {"source", "accounting"},
                                                  {"certain", false},
                                                  {"ended", true},
                                                  {"ended_at", "2026-11-27T12:00:00.000Z"}}));
  EXPECT_EQ(shown["ancestry"][1]["source"], "proc");
  EXPECT_EQ(shown["ancestry"][1]["ended_at"], nullptr);
  EXPECT_EQ(shown["missing_record"], full().record.missing);
  EXPECT_EQ(shown["spared_for"], "lease-7");
}

TEST(Ancestry, KeepsParentsThatHaveEnded) {
  const proc::Ancestor shell{{4000, 50}, 0, "bash"}, login{{3000, 40}, 0, "login"}, init{{1, 1}, 0, "systemd"};
  const Ancestry known{shell, login, init};
  EXPECT_EQ(keep_ancestry({}, known), known);
  EXPECT_EQ(keep_ancestry(known, known), known);
  Ancestry kept = keep_ancestry(known, {init});
  EXPECT_TRUE(kept[0].dead && !kept[1].dead && kept.size() == 3);
  EXPECT_EQ(keep_ancestry(kept, {init}), kept) << "nothing new";
  Ancestry middle = keep_ancestry(known, {shell, init});
  EXPECT_TRUE(!middle[0].dead && middle[1].dead);
  proc::Ancestor reused = shell;
  reused.process.start_ticks = 99;
  EXPECT_TRUE(keep_ancestry(known, {reused, init})[0].dead) << "another process with its pid";

  bool taken = false;
  EXPECT_EQ(merge_ancestry(kept, {init}, taken), kept) << "no source knows the parent any more";
  EXPECT_FALSE(taken);
  proc::Ancestor told = shell;
  told.dead = true;
  told.source = proc::ParentSource::connector;
  const Ancestry better{told, login, init};
  EXPECT_EQ(merge_ancestry(kept, better, taken), better);
  EXPECT_TRUE(taken);
  const Ancestry before{told, init};
  EXPECT_EQ(merge_ancestry({init}, before, taken), before) << "a parent that was dead at the first sighting";
  EXPECT_EQ(merge_ancestry(known, {}, taken), known);
  EXPECT_EQ(merge_ancestry(known, {shell}, taken), known) << "a shorter chain tells less";
}

TEST(Verdicts, ForgetOldHoldingsAndKeepTheFirst) {
  Verdict verdict;
  for (int i = 0; i < 1000; ++i) verdict.hold(noon + i * 1s, "GPU-1", Bytes{i + 1});
  EXPECT_EQ(verdict.holdings.size(), most_holdings);
  EXPECT_EQ(verdict.holdings.front().used, Bytes{1});
  EXPECT_EQ(verdict.used(), Bytes{1000});
  verdict.hold(noon + 2000s, "GPU-1", Bytes{1000});
  EXPECT_EQ(verdict.holdings.back().at, noon + 999s) << "an unchanged use adds nothing";
}

TEST(Verdicts, HoldNothingOnADeviceThatTheProcessLeft) {
  Verdict verdict;
  verdict.hold_all(noon, {{"GPU-1", 20 * GiB}, {"GPU-2", GiB}});
  verdict.hold_all(noon + 15s, {{"GPU-2", 20 * GiB}});
  EXPECT_EQ(verdict.used(), 20 * GiB);
  verdict.hold_all(noon + 30s, {{"GPU-2", 20 * GiB}});
  EXPECT_EQ(verdict.holdings.size(), 4u) << "an unchanged use adds nothing";
}

TEST(Verdicts, KeepTheFirstStepsAndTheLast) {
  Verdict verdict;
  for (int i = 0; i < 1000; ++i) verdict.note(noon, std::to_string(i));
  ASSERT_EQ(verdict.steps.size(), most_steps);
  EXPECT_EQ(verdict.steps.front().what, "0");
  EXPECT_EQ(verdict.steps[first_steps - 1].what, std::to_string(first_steps - 1));
  EXPECT_EQ(verdict.steps[first_steps].what, std::to_string(1000 - (most_steps - first_steps)));
  EXPECT_EQ(verdict.steps.back().what, "999");
}

TEST(Verdicts, KnowTheLastJudgement) {
  Verdict verdict;
  EXPECT_EQ(verdict.last_judgement(), nullptr);
  verdict.note(noon, "spared", "it is protected");
  verdict.note(noon, "policy", "warn");
  ASSERT_NE(verdict.last_judgement(), nullptr);
  EXPECT_EQ(verdict.last_judgement()->result, "it is protected");
  verdict.note(noon, "condemned");
  EXPECT_EQ(verdict.last_judgement()->what, "condemned");
}

TEST(Verdicts, SayInASentenceWhereTheyStand) {
  Verdict verdict = full();
  EXPECT_EQ(summary(verdict), "x) Z 1 1 (pid 4711, ana) got SIGTERM; SIGKILL follows at 2026-11-27T12:05:00.000Z");
  verdict.spared_for = {};
  verdict.stage = Stage::seen;
  const std::string holds = "x) Z 1 1 (pid 4711, ana) holds 3.0 GiB under no lease and ";
  EXPECT_EQ(summary(verdict), holds + "is spared: it is protected");
  verdict.policy = Policy::observe;
  EXPECT_EQ(summary(verdict), holds + "only draws, so it is observed");
  verdict.policy = Policy::enforce;
  verdict.spared.clear();
  verdict.note(noon, "alarm", "3 processes of /opt/app of user ana were ended within an hour; no more are");
  EXPECT_EQ(summary(verdict), holds + "is spared: " + verdict.steps.back().result);
  verdict.steps.clear();
  const std::string who = "x) Z 1 1 (pid 4711, ana)";
  const struct {
    Stage stage;
    Outcome outcome;
    std::string says;
  } rows[] = {
      {Stage::seen, Outcome::open,
       who + " holds 3.0 GiB under no lease since 2026-11-27T12:00:00.000Z; the policy is enforce"},
      {Stage::terminating, Outcome::open, who + " got SIGTERM; SIGKILL follows at 2026-11-27T12:05:00.000Z"},
      {Stage::closed, Outcome::ended, who + " was ended: it held memory under no lease"},
      {Stage::closed, Outcome::leased, who + " got a lease"},
      {Stage::closed, Outcome::gone, who + " ended by itself, or gave its memory back"},
  };
  for (const auto& row : rows) {
    verdict.stage = row.stage;
    verdict.outcome = row.outcome;
    EXPECT_EQ(summary(verdict), row.says);
  }
}

}  // namespace
}  // namespace sublet::enforcer
