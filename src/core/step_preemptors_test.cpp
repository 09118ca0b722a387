// SPDX-License-Identifier: Apache-2.0
// Which waiters may be preemptors, and which leases are victims on several cards. Waiters that want something else, or
// are many, keep no waiter from it.
#include "core/testing/slice_helpers.h"
#include "core/victims.h"

namespace sublet::core::testing {
namespace {

constexpr auto batch = Tier::batch, standard = Tier::standard, interactive = Tier::interactive;
constexpr auto yes = Pausable::automatic, no = Pausable::no;

struct Case {
  const char* name;
  std::vector<Wanted> leases;
  std::vector<std::size_t> asked;  // the victims, in this order
  Duration after = {};
  double user_share = 1;
};

class Victims : public ::testing::TestWithParam<Case> {};

TEST_P(Victims, AreAsked) {
  const Case& test = GetParam();
  Sharing w(10s, test.user_share < 1 ? 20 * GiB : 256 * GiB, 2);
  w.rules.ledger_user_share = test.user_share;
  const std::vector<LeaseId> all = add(w, test.leases);
  w.live(test.after);
  std::vector<LeaseId> asked, expected;
  for (const Action& action : w.actions)
    if (const auto* park = std::get_if<Park>(&action)) asked.push_back(park->lease);
  for (const std::size_t i : test.asked) expected.push_back(all[i]);
  EXPECT_EQ(asked, expected);
}

const Case cases[] = {
    {"one_at_a_time_on_any_device_of_a_victim",
     {{12 * GiB, any, 0, batch, 2}, {12 * GiB, 0, 0, batch}, {9 * GiB, 0}, {21 * GiB, 1}},
     {1}},
    {"on_two_cards_for_two_waiters",
     {{12 * GiB, 0, 0, batch}, {18 * GiB, 1, 0, batch}, {18 * GiB}, {18 * GiB}},
     {0, 1}},
    {"only_those_that_are_needed_on_all_cards",
     {{3 * GiB, 1, 0, standard, 1, no}, {15 * GiB, any, 0, batch, 2}, {9 * GiB, 0, 0, batch}, gang(7680 * MiB)},
     {1}},
    {"others_where_the_cheapest_are_too_much_for_one_user",
     {{14 * GiB, 0, 0, standard, 1, no},
      {5 * GiB, 1, 0, standard, 1, no},
      {8 * GiB, 0, 0, batch, 1, yes, 1001},
      {8 * GiB, 1, 0, batch, 1, yes, 1001},
      {9 * GiB, 1, 0, batch, 1, yes, 1003},
      {8 * GiB, any, 0, interactive, 2, yes, 1002}},
     {2, 4},
     30s,
     0.75},
};

INSTANTIATE_TEST_SUITE_P(Cases, Victims, ::testing::ValuesIn(cases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Preemptors, ManyThatWantSomethingElseKeepNoWaiterFromAsking) {
  for (const bool any_card : {false, true}) {
    Sharing w(10s, 256 * GiB, 2);
    add(w, {20 * GiB, 0, 0, standard, 1, no});
    if (any_card) add(w, {8 * GiB, 1, 0, standard, 1, no});
    const LeaseId low = add(w, {any_card ? 12 * GiB : 20 * GiB, 1, 0, batch});
    for (int i = 0; i < (any_card ? 10 : 40); ++i) {
      if (any_card) w.queue(20 * GiB, interactive);
      else add(w, {10 * GiB, 0, 0, interactive});
    }
    const LeaseId last = add(w, {10 * GiB, 1});
    w.live(10s);
    EXPECT_EQ(w.states(low, last), "paused active");
  }
}

// Many cards are as free as each other, and only some of them are looked at first.
TEST(Preemptors, AVictimIsFoundOnAnyOfManyCards) {
  for (const int low_card : {0, 11, 23}) {
    Sharing w(60s, 1024 * GiB, 24);
    LeaseId low;
    for (int card = 0; card < 24; ++card) {
      const LeaseId id = add(w, {20 * GiB, card, 0, card == low_card ? batch : interactive});
      if (card == low_card) low = id;
    }
    const LeaseId waiter = add(w, {20 * GiB, any, 0, interactive});
    w.live(30s);
    EXPECT_EQ(w.states(low, waiter), "paused active") << "card " << low_card;
  }
}

TEST(Preemptors, SlicesGoOnWhateverWaitsForAnotherCard) {
  Sharing w(20s, 128 * GiB, 2);
  const auto all = add(w, {{14 * GiB, 1}, {14 * GiB, 1}});
  share(w, all, 100s);
  add(w, {14 * GiB, 0, 0, standard, 1, no});
  for (int i = 0; i < 40; ++i) add(w, {14 * GiB, 0, 0, interactive});
  Served served = share(w, all, 600s);
  for (const LeaseId id : all) EXPECT_GT(served.had[id], 200s) << to_string(id);
}

TEST(Preemptors, OfManyPausedLeasesOfACardEachHasItsSlice) {
  Sharing w(10s, 2048 * GiB);
  w.rules.slice_overhead = 1;
  w.ram.available = 4096 * GiB;
  const std::vector<LeaseId> all = add(w, std::vector<Wanted>(45, {16 * GiB}));
  Served served = share(w, all, 3000s);
  EXPECT_GT(w.state.pauses.away.size(), parked_preemptors) << "or it says nothing";
  EXPECT_LE(w.state.preemption.preemptors.in_order().size(), parked_preemptors + preemptors);
  for (const LeaseId id : all) EXPECT_GT(served.had[id], 0s) << to_string(id);
}

TEST(Preemptors, AUsersRequestIsNoPlaceAmongThem) {
  Sharing w(10s, 256 * GiB, 2);
  add(w, {20 * GiB, 0, 0, batch, 1, yes, 1001});
  add(w, {20 * GiB, 1, 0, standard, 1, no});
  for (std::size_t i = 0; i < preemptors; ++i) add(w, {20 * GiB, 1, 0, interactive});
  const LeaseId waiter = add(w, {10 * GiB, 1});
  w.step(Preempt{waiter, 0, PreemptionRequest{1000, false}});
  EXPECT_FALSE(may_ask(w.state, w.rules, w.at(waiter)));
}

TEST(Preemptors, ALeaseThatWantsLessThanBeforeHasFewerVictims) {
  Card w;
  const LeaseId grows = w.start(4 * GiB, interactive, "tree_changing");
  w.start(10 * GiB, batch, "a"), w.start(9 * GiB, batch, "b");
  for (const auto& [wants, left] : {std::pair{22 * GiB, 1u}, {10 * GiB, 0u}}) {
    w.step(Resize{grows, 0, wants, true});
    ASSERT_NE(plan_for(w.state, grows), nullptr);
    EXPECT_EQ(plan_for(w.state, grows)->victims.size(), left) << "beside the one that is asked";
  }
}

// No lease is ended before it is known that all others have yielded.
TEST(VictimOrder, EndsComeLast) {
  Victim dear, ended;
  dear.lease = LeaseId{2}, dear.cost = 900s;
  ended.lease = LeaseId{1}, ended.cost = 60s, ended.ends = true;
  EXPECT_LT(dear, ended);
  EXPECT_FALSE(ended < dear);
}

}  // namespace
}  // namespace sublet::core::testing
