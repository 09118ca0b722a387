// SPDX-License-Identifier: Apache-2.0
#include "enforcer/ladder.h"

#include "enforcer/test_support.h"

#include <gtest/gtest.h>

namespace sublet::enforcer {
namespace {

using namespace std::chrono_literals;

// A process that enforcement would end: seen often enough, listed, and its owner was told.
Verdict seen() {
  Verdict verdict;
  verdict.sightings = 3;
  verdict.noticed = verdict.looked = true;
  return verdict;
}

Circumstances usual() {
  return {.now = noon, .listed = true, .budget = true, .look_due = true, .stored = true, .policy = Policy::enforce};
}

struct Row {
  const char* name;
  void (*change)(Verdict&, Circumstances&);
  Move move;
};

void expect(Verdict (*begin)(), std::initializer_list<Row> rows) {
  for (const Row& row : rows) {
    Verdict verdict = begin();
    Circumstances is = usual();
    row.change(verdict, is);
    EXPECT_EQ(next_move(verdict, is), row.move) << row.name;
  }
}

TEST(Ladder, WatchesUntilAllConditionsHold) {
  expect(seen, {
                   {"all hold", [](Verdict&, Circumstances&) {}, Move::look},
                   {"two sightings", [](Verdict& v, Circumstances&) { v.sightings = 2; }, Move::none},
                   {"observe", [](Verdict&, Circumstances& is) { is.policy = Policy::observe; }, Move::look},
                   {"observe, no look is due",
                    [](Verdict&, Circumstances& is) { is.policy = Policy::observe, is.look_due = false; }, Move::none},
                   {"observe, and the actor has looked",
                    [](Verdict&, Circumstances& is) {
                      is.policy = Policy::observe, is.look_due = false, is.evident = true;
                    },
                    Move::none},
                   {"not looked at, not told", [](Verdict& v, Circumstances&) { v.noticed = v.looked = false; },
                    Move::look},
                   {"protected, not told",
                    [](Verdict& v, Circumstances& is) {
                      v.noticed = false, v.spared = "it is protected", is.look_due = false;
                    },
                    Move::none},
                   {"protected, and too many were ended",
                    [](Verdict& v, Circumstances& is) { v.spared = "it is protected", is.budget = false; }, Move::look},
                   {"no look is due", [](Verdict&, Circumstances& is) { is.look_due = false; }, Move::none},
                   {"evident", [](Verdict&, Circumstances& is) { is.evident = true; }, Move::condemn},
                   {"evident, and too many were ended",
                    [](Verdict&, Circumstances& is) { is.evident = true, is.budget = false; }, Move::alarm},
                   {"evident, and another is being ended",
                    [](Verdict&, Circumstances& is) { is.evident = is.another = true; }, Move::none},
                   {"not told, and not evident yet", [](Verdict& v, Circumstances&) { v.noticed = false; }, Move::look},
                   {"evident, not told",
                    [](Verdict& v, Circumstances& is) { v.noticed = false, is.evident = true; }, Move::notice},
                   {"evident, not told, and another is being ended",
                    [](Verdict& v, Circumstances& is) {
                      v.noticed = false, is.evident = is.another = true;
                    },
                    Move::none},
                   {"warn, told", [](Verdict&, Circumstances& is) { is.policy = Policy::warn; }, Move::look},
                   {"adopt, not told",
                    [](Verdict& v, Circumstances& is) { is.policy = Policy::adopt, v.noticed = false; }, Move::notice},
                   {"after a start", [](Verdict&, Circumstances& is) { is.quiet = true; }, Move::none},
                   {"not in the last reading", [](Verdict&, Circumstances& is) { is.listed = false; }, Move::none},
                   {"another is being ended", [](Verdict&, Circumstances& is) { is.another = true; }, Move::none},
                   {"too many were ended", [](Verdict&, Circumstances& is) { is.budget = false; }, Move::alarm},
               });
}

Verdict condemned() {
  Verdict verdict = seen();
  verdict.stage = Stage::condemned;
  return verdict;
}

TEST(Ladder, SendsSigtermOnlyAfterTheVerdictIsStored) {
  expect(condemned, {
                        {"stored", [](Verdict&, Circumstances&) {}, Move::term},
                        {"too many were ended", [](Verdict&, Circumstances& is) { is.budget = false; }, Move::alarm},
                        {"not stored", [](Verdict&, Circumstances& is) { is.stored = false; }, Move::none},
                        {"not listed", [](Verdict&, Circumstances& is) { is.listed = false; }, Move::none},
                        {"a clock gap", [](Verdict&, Circumstances& is) { is.quiet = true; }, Move::none},
                        {"another policy", [](Verdict&, Circumstances& is) { is.policy = Policy::warn; }, Move::spare},
                    });
}

Verdict terminating() {
  Verdict verdict = seen();
  verdict.stage = Stage::terminating;
  verdict.act_at = noon;
  return verdict;
}

TEST(Ladder, SendsSigkillAfterTheGrace) {
  expect(terminating,
         {
             {"over", [](Verdict&, Circumstances&) {}, Move::kill},
             {"not over", [](Verdict&, Circumstances& is) { is.now = noon - 1s; }, Move::none},
             {"the list is empty or late", [](Verdict&, Circumstances& is) { is.listed = false; }, Move::none},
             {"only descendants are left", [](Verdict&, Circumstances& is) { is.listed = false, is.gone = true; },
              Move::kill},
             {"a clock gap in the grace", [](Verdict&, Circumstances& is) { is.quiet = true; }, Move::none},
             {"policy switched", [](Verdict&, Circumstances& is) { is.policy = Policy::observe; }, Move::spare},
         });
}

TEST(Ladder, GivesUpAMinuteAfterSigkill) {
  Verdict verdict = terminating();
  verdict.stage = Stage::killing;
  EXPECT_EQ(next_move(verdict, usual()), Move::give_up);
  Circumstances before = usual();
  before.now = noon - 1s;
  EXPECT_EQ(next_move(verdict, before), Move::none);
  for (const Stage stage : {Stage::unkillable, Stage::closed}) {
    verdict.stage = stage;
    EXPECT_EQ(next_move(verdict, usual()), Move::none);
  }
}

}  // namespace
}  // namespace sublet::enforcer
