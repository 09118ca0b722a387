// SPDX-License-Identifier: Apache-2.0
// Which waiters may be preemptors: waiters that want something else, or are many, keep no waiter from it.
#include "core/testing/slice_helpers.h"
#include "core/victims.h"

namespace sublet::core::testing {
namespace {

struct TwoFullCards : Card {
  TwoFullCards() {
    cards = 2;
    rules.ledger_limit = 256 * GiB;
    measure();
  }
  LeaseId on_card(unsigned card, Bytes vram, Tier tier, Pausable pausable = Pausable::automatic,
                  std::uint32_t uid = 1000) {
    Lease lease = want(vram, tier, "p" + std::to_string(++count));
    lease.wanted_devices = {uuid_of(card)};
    lease.pausable = pausable;
    lease.uid = uid;
    const LeaseId id = submit(lease, true);
    if (state_of(id) == LeaseState::active) attach(id);
    return id;
  }
  LeaseId on_both(Bytes vram, Tier tier) {
    Lease lease = want(vram, tier, "both");
    lease.device_count = 2;
    const LeaseId id = submit(lease, true);
    if (state_of(id) == LeaseState::active) attach(id);
    return id;
  }
  std::vector<LeaseId> asked() const {
    std::vector<LeaseId> all;
    for (const Action& action : actions)
      if (const auto* park = std::get_if<Park>(&action)) all.push_back(park->lease);
    return all;
  }
  int count = 0;
};

TEST(Preemption, OneAtATimeOnAnyDeviceOfAVictim) {
  TwoFullCards w;
  w.on_both(12 * GiB, Tier::batch);
  w.on_card(0, 12 * GiB, Tier::batch);
  w.on_card(0, 9 * GiB, Tier::standard);   // needs only the lease on one card
  w.on_card(1, 21 * GiB, Tier::standard);  // needs the lease on both
  EXPECT_EQ(w.asked().size(), 1U);
}

TEST(Preemption, ForTwoWhoWaitRoomIsMadeOnTwoCards) {
  TwoFullCards w;
  const LeaseId cheap = w.on_card(0, 12 * GiB, Tier::batch), dear = w.on_card(1, 18 * GiB, Tier::batch);
  for (int i = 0; i < 2; ++i) w.queue(18 * GiB, Tier::standard);
  EXPECT_EQ(w.asked(), (std::vector{cheap, dear})) << "what is made for the first is not the second's";
}

TEST(Preemption, WhoYieldsOnOneCardForAGangSparesOthersOnTheOther) {
  TwoFullCards w;
  w.on_card(1, 3 * GiB, Tier::standard, Pausable::no);
  const LeaseId both = w.on_both(15 * GiB, Tier::batch);
  w.on_card(0, 9 * GiB, Tier::batch);
  w.on_both(7680 * MiB, Tier::standard);
  EXPECT_EQ(w.asked(), std::vector{both}) << "on the second card nobody else could, and on the first it is enough";
}

TEST(Preemptors, ManyWhoWantSomethingElseKeepNobodyFromAsking) {
  for (const bool any_card : {false, true}) {
    TwoFullCards w;
    w.on_card(0, 20 * GiB, Tier::standard, Pausable::no);
    if (any_card) w.on_card(1, 8 * GiB, Tier::standard, Pausable::no);
    const LeaseId low = w.on_card(1, any_card ? 12 * GiB : 20 * GiB, Tier::batch);
    for (int i = 0; i < (any_card ? 10 : 40); ++i) {
      if (any_card) w.queue(20 * GiB, Tier::interactive);
      else w.on_card(0, 10 * GiB, Tier::interactive);
    }
    const LeaseId last = w.on_card(1, 10 * GiB, Tier::standard);
    w.live(10s);
    EXPECT_EQ(w.states(low, last), "paused active");
  }
}

TEST(Preemptors, OfManyWhoAreParkedOnACardEachHasItsTurn) {
  Card w;
  w.rules.min_residency = 10s;
  w.rules.slice_overhead = 1;
  w.rules.ledger_limit = 2048 * GiB;
  w.ram.available = 4096 * GiB;
  std::vector<LeaseId> all;
  for (int i = 0; i < 45; ++i) all.push_back(w.start(16 * GiB, Tier::standard, "p" + std::to_string(i)));
  std::map<LeaseId, int> slices;
  for (int round = 0; round < 3000; ++round) {
    w.now = w.now + 1s;
    w.step(Tick{});
    w.measure();
    w.obey();
    for (const LeaseId id : all) {
      if (w.state_of(id) != LeaseState::active) continue;
      if (!w.programs.contains(id)) w.attach(id);
      if (standing_of(w.state, id).came_back == w.now || slices[id] == 0) ++slices[id];
    }
  }
  EXPECT_GT(w.state.pauses.away.size(), parked_preemptors) << "or it says nothing";
  EXPECT_LE(w.state.preemption.preemptors.in_order().size(), parked_preemptors + preemptors);
  for (const LeaseId id : all) EXPECT_GT(slices[id], 0) << to_string(id);
}

TEST(Preemptors, AUserSWordIsNoPlaceAmongThem) {
  TwoFullCards w;
  w.on_card(0, 20 * GiB, Tier::batch, Pausable::automatic, 1001);
  w.on_card(1, 20 * GiB, Tier::standard, Pausable::no);
  for (std::size_t i = 0; i < preemptors; ++i) w.on_card(1, 20 * GiB, Tier::interactive);
  Lease lease = w.want(10 * GiB, Tier::standard);
  lease.wanted_devices = {uuid_of(1)};
  const LeaseId preemption_request = w.submit(lease, true);
  w.step(Preempt{preemption_request, 0, PreemptionRequest{1000, false}});
  EXPECT_FALSE(may_ask(w.state, w.rules, w.at(preemption_request)));
}

TEST(Preemptors, OneThatWantsLessThanItDidHasFewerYield) {
  Card w;
  const LeaseId grows = w.start(4 * GiB, Tier::interactive, "tree_changing");
  w.start(10 * GiB, Tier::batch, "a"), w.start(9 * GiB, Tier::batch, "b");
  w.step(Resize{grows, 0, 22 * GiB, true});
  ASSERT_NE(plan_for(w.state, grows), nullptr);
  EXPECT_EQ(plan_for(w.state, grows)->victims.size(), 1u) << "beside the one that is asked";
  w.step(Resize{grows, 0, 10 * GiB, true});
  ASSERT_NE(plan_for(w.state, grows), nullptr);
  EXPECT_TRUE(plan_for(w.state, grows)->victims.empty());
}

// Nobody is ended before it is known that all others have yielded.
TEST(Victims, WhoIsEndedComesLast) {
  Victim dear, ended;
  dear.lease = LeaseId{2}, dear.cost = 900s;
  ended.lease = LeaseId{1}, ended.cost = 60s, ended.ends = true;
  EXPECT_LT(dear, ended);
  EXPECT_FALSE(ended < dear);
}

// Neither of them is parked for nothing, again and again.
TEST(SlicesMixed, NoneBeginsThatHostMemoryDoesNotTakeAsAWhole) {
  Card w;
  w.rules.min_residency = 20s;
  w.rules.ledger_limit = 14 * GiB;
  const LeaseId equal = w.start(11 * GiB, Tier::standard, "equal"), low = w.start(11 * GiB, Tier::batch, "low");
  w.start(20 * GiB, Tier::standard, "c");
  for (int second = 0; second < 200; ++second) {
    w.live(1s);
    ASSERT_EQ(w.states(equal, low), "active active");
  }
  EXPECT_TRUE(std::ranges::none_of(w.actions, [](const Action& a) { return std::holds_alternative<Park>(a); }));
}

// The cheapest on each card are one user's, and too much together for that one's share.
TEST(Preemption, AGangHasOthersYieldWhereTheCheapestAreTooMuchTogether) {
  TwoFullCards w;
  w.rules.ledger_limit = 20 * GiB;
  w.rules.ledger_user_share = 0.75;
  w.on_card(0, 14 * GiB, Tier::standard, Pausable::no);
  w.on_card(1, 5 * GiB, Tier::standard, Pausable::no);
  const LeaseId only = w.on_card(0, 8 * GiB, Tier::batch, Pausable::automatic, 1001);
  const LeaseId cheap = w.on_card(1, 8 * GiB, Tier::batch, Pausable::automatic, 1001);
  const LeaseId dear = w.on_card(1, 9 * GiB, Tier::batch, Pausable::automatic, 1003);
  Lease lease = w.want(8 * GiB, Tier::interactive, "gang");
  lease.device_count = 2;
  lease.uid = 1002;
  const LeaseId gang = w.submit(lease, true);
  w.live(30s);
  EXPECT_EQ(w.states(gang, only, dear, cheap), "active paused paused active");
}

}  // namespace
}  // namespace sublet::core::testing
