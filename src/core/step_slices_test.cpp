// SPDX-License-Identifier: Apache-2.0
// Time slices: which leases share a card, what they leave for, and what is announced. Their shares:
// slice_model_test.cpp
#include "core/testing/slice_helpers.h"

namespace sublet::core::testing {
namespace {

struct Case {
  const char* name;
  Duration residency, lasts;
  std::vector<Wanted> leases;
  std::vector<int> least;    // seconds that each of them has had its memory at least
  int switches, most = 999;  // number of leases that leave
  Bytes headroom = {};
};

class SlicesOf : public ::testing::TestWithParam<Case> {};

TEST_P(SlicesOf, GiveEachItsTime) {
  const Case& test = GetParam();
  Sharing w(test.residency, 128 * GiB, 2);
  w.rules.headroom = test.headroom;
  const std::vector<LeaseId> all = add(w, test.leases);
  Served served = share(w, all, test.lasts);
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_GE(served.had[all[i]], std::chrono::seconds(test.least[i])) << "lease " << i;
  EXPECT_GE(served.switches, test.switches);
  EXPECT_LE(served.switches, test.most);
}

const Wanted spot{6 * GiB, 0, 0, Tier::spot}, pinned{14 * GiB, 0, 0, Tier::standard, 1, Pausable::no};

const Case cases[] = {
    {"priority_orders_only_leases_that_have_had_as_much",
     20s,
     1800s,
     {{14 * GiB, 0, 10}, {14 * GiB, 0}, {14 * GiB, 0}},
     {400, 400, 400},
     6},
    {"a_lease_that_leaves_does_not_take_back_what_it_freed",  // both fit while the other keeps 64 MiB in the headroom
     20s,
     1200s,
     {{12080 * MiB, 0, 10}, {12080 * MiB, 0}},
     {450, 450},
     6,
     999,
     512 * MiB},
    {"an_equal_and_a_spot_lease_leave",
     20s,
     1200s,
     {{12 * GiB, 0}, spot, {19 * GiB, 0}, {12 * GiB, 0}},
     {250, 0, 250, 250},
     6},
    {"an_equal_leaves_one_card_and_a_lower_tier_the_other",
     20s,
     600s,
     {{14 * GiB, 0}, {14 * GiB, 1, 0, Tier::batch}, gang(14 * GiB)},
     {100, 0, 100},
     2},
    {"a_lease_on_two_cards_and_one_on_the_first", 20s, 1200s, {gang(14 * GiB), {14 * GiB, 0}}, {450, 450}, 2},
    {"a_lease_on_two_cards_and_one_on_each",
     20s,
     2400s,
     {gang(14 * GiB), {14 * GiB, 0}, {14 * GiB, 1}},
     {900, 900, 900},
     12},
    {"a_lease_on_two_cards_and_two_on_each",
     40s,
     3600s,
     {gang(14 * GiB), {14 * GiB, 0}, {14 * GiB, 0}, {14 * GiB, 1}, {14 * GiB, 1}},
     {800, 800, 800, 800, 800},
     12},
    {"three_leases_on_two_cards",
     20s,
     1800s,
     {gang(14 * GiB, 50), gang(14 * GiB, 50), gang(14 * GiB)},
     {350, 350, 350},
     6},
    {"a_lease_for_any_card",
     20s,
     1800s,
     {{14 * GiB, 0}, {14 * GiB, 0}, {14 * GiB, 1}, {14 * GiB, 1}, {14 * GiB}},
     {450, 450, 450, 450, 450},
     12},
    {"a_lease_that_always_fits_stays", 15s, 1200s, {{14 * GiB, 0}, {12 * GiB, 0}, {8 * GiB, 0}}, {450, 450, 1190}, 6},
    {"leases_that_fit_together_stay", 1s, 300s, {{12 * GiB, 0}, {12 * GiB, 0}}, {299, 299}, 0, 0},
    {"nobody_leaves_for_a_lease_that_has_no_slice_on_its_other_card",
     20s,
     600s,
     {pinned, {14 * GiB, 1}, gang(14 * GiB)},
     {599, 599, 0},
     0,
     0},
};

INSTANTIATE_TEST_SUITE_P(Cases, SlicesOf, ::testing::ValuesIn(cases),
                         [](const auto& info) { return std::string(info.param.name); });

// The machine slept: no lease had the card meanwhile, and no slice is over by that.
TEST(Slices, SleepIsNoTimeWithTheCard) {
  Sharing w(60s);
  const auto all = add(w, {{14 * GiB}, {14 * GiB}});
  w.live(10s);
  w.now = w.now + 1h;
  w.step(ClockGap{1h});
  w.measure();
  w.live(45s);
  EXPECT_EQ(w.states(all[0]), "active") << "it has had it for less than a minute";
  w.live(30s);
  EXPECT_EQ(w.states(all[1]), "active");
  Served served = share(w, all, 1200s);
  EXPECT_LE(std::chrono::abs(served.had[all[0]] - served.had[all[1]]), 200s);
}

// A lease with the least service time does not wait for leases that stand before it in the queue.
TEST(Slices, AllThatEnterComeInTogether) {
  Sharing w(20s, 64 * GiB);
  const auto all = add(w, {{10400 * MiB}, {10700 * MiB, 0, 30}, {15200 * MiB, 0, 10}, {9900 * MiB}});
  int several = 0;
  for (int tries = 0; several < 4 && tries < 3600; ++tries) {
    std::vector<LeaseId> enters;
    for (const auto& [uuid, slice] : w.state.preemption.slices)
      if (slice.at <= w.now + 1s) enters = slice.enters;
    share(w, all, 1s);
    if (enters.size() < 2) continue;
    share(w, all, 10s);  // the leaving leases have left by then
    ++several;
    for (const LeaseId id : enters) ASSERT_EQ(w.state_of(id), LeaseState::active) << to_string(id);
  }
  EXPECT_EQ(several, 4);
}

TEST(Slices, EachLeaseIsToldItsCause) {
  Sharing w(20s);
  const auto all = add(w, {{11 * GiB}, {11 * GiB, any, 0, Tier::batch}, {20 * GiB}});
  for (int second = 0; second < 600 && w.states(all[0], all[1]) != "paused paused"; ++second) w.live(1s);
  for (const auto& [lease, kind] : {std::pair{all[0], PauseCauseKind::slice}, {all[1], PauseCauseKind::tier}}) {
    ASSERT_TRUE(w.at(lease).parking);
    EXPECT_EQ(w.at(lease).parking->cause.kind, kind);
    EXPECT_EQ(w.at(lease).parking->cause.preemptor, all[2]);
  }
}

TEST(Slices, NoneBeginsWhoseLeasesHostMemoryDoesNotTakeTogether) {
  Sharing w(20s, 14 * GiB);
  const auto all = add(w, {{11 * GiB}, {11 * GiB, any, 0, Tier::batch}, {20 * GiB}});
  EXPECT_EQ(share(w, all, 200s).switches, 0);
  EXPECT_TRUE(std::ranges::none_of(w.actions, [](const Action& a) { return std::holds_alternative<Park>(a); }));
}

TEST(Slices, NoLeaseSharesWithOneThatHasNothingOnTheCardYet) {
  Sharing w(20s);
  const LeaseId early = w.imports(20 * GiB, Tier::standard), other = w.start(20 * GiB, Tier::standard, "other");
  w.live(300s);
  EXPECT_EQ(w.states(early), "active");
  w.programs[early] = {50, 6 * GiB};
  EXPECT_GT(share(w, {early, other}, 300s).switches, 0);
}

TEST(Slices, ALeaseThatWantsToGrowIsNotPausedForItself) {
  Sharing w(1s);
  w.start(6 * GiB, Tier::standard, "a");
  const LeaseId b = w.start(14 * GiB, Tier::standard, "b");
  w.step(Resize{b, 0, 22 * GiB});
  for (int second = 0; second < 120; ++second) {
    w.live(1s);
    ASSERT_TRUE(!w.at(b).parking || w.at(b).parking->cause.preemptor != b);
  }
}

// -------------------------------------------------------------------------------- announcements

TEST(SlicesAnnounced, NameTheLeasesAndTheTimeOnAllTheirCards) {
  for (const bool both : {false, true}) {
    Sharing w(100s, 128 * GiB, both ? 2 : 1);
    const auto all = both ? add(w, {{14 * GiB, 0}, {14 * GiB, 1}, gang(14 * GiB)}) : add(w, {{14 * GiB}, {14 * GiB}});
    const LeaseId waits = all.back();
    ASSERT_EQ(w.state.preemption.slices.size(), both ? 2u : 1u);
    for (const auto& [uuid, slice] : w.state.preemption.slices) {
      EXPECT_EQ(slice.leaves, std::vector(all.begin(), all.end() - 1));
      EXPECT_EQ(slice.enters, std::vector{waits});
      EXPECT_GT(slice.at, w.now + 90s);
    }
    EXPECT_GT(explain::leaves_in(w.state, all.front(), w.now), 90s);
    EXPECT_EQ(explain::leaves_in(w.state, waits, w.now), std::nullopt);
    EXPECT_GT(w.info(waits).eta, explain::leaves_in(w.state, all.front(), w.now)) << "the pause takes time";
    EXPECT_SAYS(w.info(waits).basis, "its time slice begins then: " + to_string(all.front()));
  }
}

// Neither a lease that comes nor what the pauses teach moves the end.
TEST(SlicesAnnounced, EndWhenTheyWereSaidTo) {
  Sharing w(40s, 64 * GiB);
  auto all = add(w, {{14 * GiB}, {9 * GiB}, {15 * GiB}, {6 * GiB}});
  share(w, all, 60s);
  int kept = 0;
  for (int tries = 0; kept < 12 && tries < 2000; ++tries) {
    const auto slice = w.state.preemption.slices.find(uuid_of(0));
    if (slice == w.state.preemption.slices.end() || !slice->second.fixed) {
      share(w, all, 1s);
      continue;
    }
    const Time at = slice->second.at;
    if (kept == 6) all.push_back(add(w, {12 * GiB}));
    while (w.state.preemption.plans.empty() && w.now < at) {
      ASSERT_TRUE(w.state.preemption.slices.contains(uuid_of(0)));
      ASSERT_EQ(w.state.preemption.slices.at(uuid_of(0)).at, at);
      share(w, all, std::min<Duration>(1s, at - w.now));
    }
    ASSERT_GE(w.now, at);
    ++kept;
  }
  EXPECT_EQ(kept, 12);
}

TEST(SlicesAnnounced, WheneverOneHasTheCardAndTheOtherWaits) {
  Sharing w(30s);
  const auto all = add(w, {{14 * GiB}, {14 * GiB}});
  int looks = 0;
  std::map<LeaseId, Time> foretold;  // when it should have its memory again
  for (int second = 0; second < 900; ++second) {
    share(w, all, 1s);
    for (const LeaseId id : all) {
      const LeaseId other = id == all[0] ? all[1] : all[0];
      if (w.at(id).reserved() > GiB) {  // its memory again
        const auto promised = foretold.find(id);
        EXPECT_TRUE(promised == foretold.end() || w.now <= promised->second + 10s) << to_string(id);
        foretold.erase(id);
      }
      if (w.state_of(id) != LeaseState::paused || w.state_of(other) != LeaseState::active) continue;
      const auto eta = w.info(id).eta;
      ASSERT_TRUE(eta && explain::leaves_in(w.state, other, w.now)) << to_string(id) << " at " << second << " s";
      foretold.try_emplace(id, w.now + *eta);
      ++looks;
    }
  }
  EXPECT_GT(looks, 600);
}

TEST(Slices, ServeTheWaitersThatHostMemoryAllows) {
  Card w;
  w.rules.min_residency = 20s;
  w.rules.ledger_limit = 16 * GiB;
  w.start(6 * GiB, Tier::standard, "small");
  w.start(15 * GiB, Tier::standard, "large");
  const LeaseId whole = w.queue(24 * GiB, Tier::standard, "whole"), fits = w.queue(6 * GiB, Tier::standard, "fits");
  w.live(300s);
  EXPECT_EQ(w.times_told(whole, ReasonKind::granted), 0) << "both would have to leave";
  EXPECT_GT(w.times_told(fits, ReasonKind::granted) + w.times_told(fits, ReasonKind::offered), 0);
}

}  // namespace
}  // namespace sublet::core::testing
