// SPDX-License-Identifier: Apache-2.0
#include "core/format.h"
#include "core/testing/ideal_executor.h"

namespace sublet::core::testing {
namespace {

TEST(Preemption, AHigherTierHasALowerOneYieldAndThatComesBack) {
  Card w;
  const LeaseId batch = w.start(20 * GiB, Tier::batch);
  const LeaseId urgent = w.start(10 * GiB, Tier::interactive, "infer");
  EXPECT_EQ(w.state_of(urgent), LeaseState::queued);
  ASSERT_NE(w.state.plan_for(urgent), nullptr);
  const QueueInfo info = queue_info(w.state, w.rules, w.at(urgent), w.now);
  EXPECT_SAYS(info.basis, "memory is being freed for it by pausing " + to_string(batch));
  EXPECT_LT(info.eta, 20s);
  w.obey();
  EXPECT_EQ(w.state_of(batch), LeaseState::paused);
  EXPECT_EQ(w.state_of(urgent), LeaseState::active);
  const PauseCause& cause = w.at(batch).parking->cause;
  EXPECT_EQ(cause.kind, PauseCauseKind::tier);
  EXPECT_EQ(cause.preemptor, urgent);
  EXPECT_EQ(cause.args.bytes("asked"), 10 * GiB);
  EXPECT_TRUE(w.at(batch).parking->resume_requested) << "it waits to come back";
  EXPECT_TRUE(w.state.plans().empty());
  w.attach(urgent);
  w.quit(urgent);
  EXPECT_EQ(w.state_of(batch), LeaseState::active);
  EXPECT_EQ(w.state.ledger_entries(), Bytes{});
}

TEST(Preemption, NobodyYieldsToALowerTierOrIfPinned) {
  Card w;
  Lease pinned = w.want(20 * GiB, Tier::batch);
  pinned.pausable = Pausable::no;
  const LeaseId id = w.submit(pinned, true);
  w.attach(id);
  w.start(10 * GiB, Tier::critical, "infer");
  w.obey();
  EXPECT_EQ(w.state_of(id), LeaseState::active) << "pinned";

  Card v;
  const LeaseId critical = v.start(20 * GiB, Tier::critical);
  v.start(10 * GiB, Tier::interactive, "infer");
  v.live(200s);
  EXPECT_EQ(v.state_of(critical), LeaseState::active);
}

TEST(Preemption, TheCheapestThatIsEnoughYields) {
  Card w;
  const LeaseId large = w.start(12 * GiB, Tier::batch, "large");
  const LeaseId small = w.start(6 * GiB, Tier::batch, "small");
  const LeaseId tiny = w.start(4 * GiB, Tier::batch, "tiny");
  w.start(7 * GiB, Tier::interactive, "infer");
  w.obey();
  EXPECT_EQ(w.state_of(small), LeaseState::paused) << "2 GiB are free, and 5 more are enough";
  EXPECT_EQ(w.state_of(large), LeaseState::active);
  EXPECT_EQ(w.state_of(tiny), LeaseState::active);
}

TEST(Preemption, OneAfterTheOtherAndWhatFreesUpIsKeptForThePreemptor) {
  Card w;
  const LeaseId a = w.start(8 * GiB, Tier::batch, "a"), b = w.start(8 * GiB, Tier::batch, "b"),
                c = w.start(8 * GiB, Tier::batch, "c");
  const LeaseId next = w.start(3 * GiB, Tier::batch, "d");
  const LeaseId urgent = w.start(20 * GiB, Tier::interactive, "infer");
  int most = 0;
  while (w.state_of(urgent) != LeaseState::active && w.obeyed < w.actions.size()) {
    EXPECT_EQ(w.state_of(next), LeaseState::queued) << "what frees up is kept for whom it was made";
    w.obey(plenty, 1);
    int pausing = 0;
    for (const LeaseId id : {a, b, c}) pausing += w.state_of(id) == LeaseState::pausing;
    most = std::max(most, pausing);
  }
  EXPECT_LE(most, 1);
  EXPECT_EQ(w.state_of(urgent), LeaseState::active);
  EXPECT_EQ(w.state_of(next), LeaseState::active) << "and what is left over is for whoever fits";
}

TEST(Preemption, WhenThePreemptorGoesThoseWhoYieldedComeBack) {
  Card w;
  const LeaseId a = w.start(12 * GiB, Tier::batch, "a"), b = w.start(12 * GiB, Tier::batch, "b");
  const LeaseId urgent = w.start(20 * GiB, Tier::interactive, "infer");
  w.step(HostWeighed{std::get<WeighHost>(w.actions[w.obeyed++]).lease, plenty});  // the first is asked
  const LeaseId first = w.state_of(a) == LeaseState::pausing ? a : b;
  EXPECT_EQ(w.state_of(first), LeaseState::pausing);
  w.step(Release{urgent});
  EXPECT_EQ(w.told(urgent).end_reason, EndReason::cancelled);
  w.obey();
  EXPECT_EQ(w.state_of(a), LeaseState::active);
  EXPECT_EQ(w.state_of(b), LeaseState::active);
  EXPECT_EQ(w.state.ledger_entries(), Bytes{});
}

TEST(Preemption, WhoCannotBeParkedIsLeftAloneForAWhileAndTheNextIsAsked) {
  Card w;
  const LeaseId cheap = w.start(10 * GiB, Tier::batch, "cheap"), dear = w.start(12 * GiB, Tier::batch, "dear");
  const LeaseId urgent = w.start(8 * GiB, Tier::interactive, "infer");
  ASSERT_EQ(std::get<WeighHost>(w.actions[w.obeyed++]).lease, cheap);
  w.step(HostWeighed{cheap, plenty});
  w.obeyed = w.actions.size();
  w.step(Parked{cheap, false, "pid 102 is traced"});
  EXPECT_EQ(w.state_of(cheap), LeaseState::resuming) << "not verified is not active";
  w.obey();
  EXPECT_EQ(w.state_of(cheap), LeaseState::active);
  EXPECT_EQ(w.state_of(dear), LeaseState::paused);
  EXPECT_EQ(w.state_of(urgent), LeaseState::active);
  EXPECT_EQ(w.state.left_alone(cheap).kind, ReasonKind::pause_failed);
}

// The second of two refuses to yield by itself.
struct Refusal : Card {
  LeaseId first = start(6 * GiB, Tier::batch, "first"), second = start(14 * GiB, Tier::batch, "second"), urgent;
  Refusal() {
    Cooperation how;
    how.residue = 32 * MiB;
    how.process = process(programs.at(second).first);
    step(Cooperate{second, 0, how});
    refusing.insert(second);
    live(30s);
    urgent = submit(want(22 * GiB, Tier::interactive, "urgent"), true);
  }
};

TEST(Preemption, WhoseFirstMethodFailsIsAskedByTheNextAndNobodyComesBackMeanwhile) {
  Refusal w;
  w.live(30s);
  EXPECT_EQ(w.state_of(w.urgent), LeaseState::active);
  EXPECT_EQ(w.at(w.second).parking->method, PauseMethod::driver);
  EXPECT_EQ(w.times_told(w.first, ReasonKind::paused), 1);
  EXPECT_EQ(w.times_told(w.first, ReasonKind::resumed), 0);
}

TEST(Preemption, WhatIsMadeByTheNextMethodHasBegun) {
  Refusal w;
  while (w.state_of(w.second) != LeaseState::pausing) w.obey(plenty, 1);
  w.obey(plenty, 1);
  ASSERT_EQ(w.state_of(w.second), LeaseState::resuming);
  ASSERT_EQ(w.state.plans().size(), 1u) << "it goes on";
  EXPECT_TRUE(w.state.plans().front().started);
  EXPECT_SAYS(queue_info(w.state, w.rules, w.at(w.urgent), w.now).basis, to_string(w.second));
  w.obey(plenty, 1);
  ASSERT_EQ(w.state_of(w.second), LeaseState::pausing);
  ASSERT_EQ(w.state.plans().size(), 1u);
  EXPECT_TRUE(w.state.plans().front().started);
}

TEST(Preemption, WhoDoesNotComeThroughWithBeingUndoneIsNotWaitedFor) {
  Refusal w;
  while (w.state_of(w.second) != LeaseState::resuming) w.obey(plenty, 1);
  Unparked not_yet{w.second, Unparked::How::not_yet, "it does not answer"};
  w.step(not_yet);
  EXPECT_TRUE(w.state.plans().empty());
  w.obeyed = w.actions.size();
  w.step(Unparked{w.second, Unparked::How::runs, {}, plenty});
  EXPECT_EQ(w.state_of(w.second), LeaseState::active) << "no other method is tried after that";
}

TEST(Preemption, WithoutHostMemoryNobodyIsAsked) {
  Card w;
  const LeaseId batch = w.start(20 * GiB, Tier::batch);
  const LeaseId urgent = w.start(10 * GiB, Tier::interactive, "infer");
  w.obey(HostMemory{4 * GiB, std::nullopt});
  EXPECT_EQ(w.state_of(batch), LeaseState::active);
  EXPECT_EQ(w.state_of(urgent), LeaseState::queued);
  EXPECT_TRUE(w.state.plans().empty()) << "a set that cannot be had holds nothing";
  EXPECT_EQ(w.state.left_alone(batch).ground, LeftAlone::Ground::refused);
  EXPECT_SAYS(why_text(w.state.left_alone(batch)), "host memory takes 2.0 GiB more");
  w.live(15s);
  EXPECT_EQ(w.state_of(urgent), LeaseState::active) << "tried again when there is more";
}

TEST(Preemption, NothingIsPausedForAWaitThatIsShorter) {
  Card w;
  const LeaseId ends = w.start(20 * GiB, Tier::batch);
  w.step(Renew{ends, 0, 3s});
  const LeaseId urgent = w.start(10 * GiB, Tier::interactive, "infer");
  EXPECT_TRUE(w.state.plans().empty()) << "its room is there in 3 s, and a pause of 20 GiB takes 11";
  EXPECT_EQ(w.state_of(urgent), LeaseState::queued);
}

TEST(Preemption, OnSomebodysWordEqualsYieldToo) {
  Card w;
  const LeaseId holder = w.start(20 * GiB, Tier::standard);
  const LeaseId waiter = w.start(10 * GiB, Tier::standard, "infer");
  EXPECT_TRUE(w.state.plans().empty());
  EXPECT_EQ(w.step(Preempt{waiter, 0, PreemptionRequest{4711, false}}).outcome.error().code, Code::CannotPreempt)
      << "others' programs are not his to pause";
  ASSERT_TRUE(w.step(Preempt{waiter, 0, PreemptionRequest{1000, false}}).outcome.has_value());
  w.obey();
  EXPECT_EQ(w.state_of(holder), LeaseState::paused);
  EXPECT_EQ(w.state_of(waiter), LeaseState::active);
}

TEST(Preemption, AUsersWordReachesTheUsersOwnProgramsOnly) {
  Card w;
  w.rules.automatic = false;
  Lease theirs = w.want(10 * GiB, Tier::batch);
  theirs.uid = 1001;
  const LeaseId other = w.submit(theirs, true);
  w.attach(other);
  const LeaseId own = w.start(10 * GiB, Tier::critical);
  const LeaseId waiter = w.start(20 * GiB, Tier::interactive, "infer");
  const auto refused = w.step(Preempt{waiter, 0, PreemptionRequest{1000, false}}).outcome;
  ASSERT_FALSE(refused.has_value()) << "pauses are on somebody's word only, and this word is not about them";
  EXPECT_SAYS(refused.error().detail, "not the program of the user who requested memory");
  const LeaseId small = w.start(12 * GiB, Tier::standard, "infer");
  ASSERT_TRUE(w.step(Preempt{small, 0, PreemptionRequest{1000, false}}).outcome.has_value());
  w.obey();
  EXPECT_EQ(w.state_of(own), LeaseState::paused) << "of a higher tier, and not back in the room that it has made";
  EXPECT_EQ(w.state_of(other), LeaseState::active);
  EXPECT_EQ(w.state_of(small), LeaseState::active);
}

TEST(Preemption, WhatTheRulesGiveAWaiterAUsersWordDoesNotTakeAway) {
  Card w;
  w.rules.min_residency = 1h;
  Lease theirs = w.want(10 * GiB, Tier::batch);
  theirs.uid = 1001;
  const LeaseId other = w.submit(theirs, true);
  w.attach(other);
  const LeaseId own = w.start(10 * GiB, Tier::interactive);
  const LeaseId waiter = w.start(20 * GiB, Tier::interactive, "infer");
  ASSERT_EQ(w.state.plan_for(waiter), nullptr) << "the lower tier alone is not enough";
  ASSERT_TRUE(w.step(Preempt{waiter, 0, PreemptionRequest{1000, false}}).outcome.has_value());
  w.obey();
  EXPECT_EQ(w.state_of(own), LeaseState::paused) << "by the word";
  EXPECT_EQ(w.state_of(other), LeaseState::paused) << "by its tier";
}

TEST(Preemption, WithoutItsSwitchOnlyAWordPausesAnybody) {
  Card w;
  w.rules.automatic = false;
  const LeaseId batch = w.start(20 * GiB, Tier::batch);
  const LeaseId urgent = w.start(10 * GiB, Tier::critical, "infer");
  w.live(120s);
  EXPECT_EQ(w.state_of(batch), LeaseState::active);
  ASSERT_TRUE(w.step(Preempt{urgent, 0, PreemptionRequest{0, true}}).outcome.has_value());
  w.obey();
  EXPECT_EQ(w.state_of(urgent), LeaseState::active);
}

std::size_t parked(const Card& card) {
  std::size_t count = 0;
  for (const Action& action : card.actions) count += std::holds_alternative<Park>(action);
  return count;
}

TEST(Preemption, ASetThatTheLedgerDoesNotTakeIsNotBegun) {
  Card w;
  w.rules.ledger_limit = 12 * GiB;
  const LeaseId a = w.start(9 * GiB, Tier::batch, "a"), b = w.start(9 * GiB, Tier::batch, "b");
  const LeaseId urgent = w.start(20 * GiB, Tier::interactive, "infer");
  w.live(2min);
  EXPECT_EQ(parked(w), 0U) << "each alone fits, both do not";
  EXPECT_EQ(w.state_of(a), LeaseState::active);
  EXPECT_EQ(w.state_of(b), LeaseState::active);
  EXPECT_SAYS(queue_info(w.state, w.rules, w.at(urgent), w.now).basis,
              "would have to be paused, but host memory takes no more than 12.0 GiB of parked bytes now, and they hold "
              "18.0 GiB");
  w.rules.ledger_limit = 18 * GiB;
  w.live(2s);
  EXPECT_EQ(w.state_of(urgent), LeaseState::active);
}

TEST(Preemption, ASetThatTheLedgerTakesIsPreferred) {
  Card w;
  w.rules.ledger_limit = 18 * GiB;  // 13.5 of it are one user's share
  const auto run = [&w](Bytes vram, std::uint32_t uid, const char* name) {
    Lease lease = w.want(vram, Tier::batch, name);
    lease.uid = uid;
    const LeaseId id = w.submit(lease, true);
    w.attach(id);
    return id;
  };
  const LeaseId a = run(7 * GiB, 1001, "a"), b = run(7 * GiB, 1001, "b"), c = run(10 * GiB, 1002, "c");
  const LeaseId urgent = w.start(13 * GiB, Tier::interactive, "infer");
  w.live(30s);
  EXPECT_EQ(w.state_of(urgent), LeaseState::active);
  EXPECT_EQ(w.state_of(c), LeaseState::paused) << "the two small ones are cheaper, and too much for their user";
  EXPECT_NE(w.state_of(a), w.state_of(b));
  EXPECT_EQ(parked(w), 2U);
}

// The ledger entry of a victim is corrected to its parked bytes before the next victim is asked.
TEST(Preemption, OneAfterTheOtherMoreThanTheLedgerTakesAtOnce) {
  Card w;
  w.rules.ledger_limit = 13 * GiB;
  const LeaseId a = w.start(11 * GiB, Tier::batch, "a"), b = w.start(11 * GiB, Tier::batch, "b");
  for (const LeaseId id : {a, b}) w.programs.at(id).second = 1 * GiB;
  w.measure();
  const LeaseId urgent = w.start(20 * GiB, Tier::interactive, "infer");
  w.live(30s);
  EXPECT_EQ(w.state_of(urgent), LeaseState::active);
  EXPECT_EQ(parked(w), 2U);
}

TEST(Preemption, HostMemoryIsWeighedForAllWhoAreToYield) {
  Card w;
  w.start(9 * GiB, Tier::batch, "a"), w.start(9 * GiB, Tier::batch, "b");
  w.start(20 * GiB, Tier::interactive, "infer");
  w.obey(HostMemory{13 * GiB, std::nullopt});
  EXPECT_EQ(parked(w), 0U) << "11 GiB may be taken, by one of them";
}

// Residues are in the headroom first: otherwise no lease on a whole card could be paused for another.
TEST(Preemption, WholeCardsYieldToEachOtherAndComeBack) {
  Card w;
  w.rules.headroom = 256 * MiB;
  const Bytes whole = 24 * GiB - w.rules.headroom;
  const LeaseId batch = w.start(whole, Tier::batch);
  const LeaseId urgent = w.start(whole, Tier::interactive, "infer");
  w.obey();
  EXPECT_EQ(w.state_of(batch), LeaseState::paused);
  EXPECT_EQ(w.state_of(urgent), LeaseState::active);
  EXPECT_EQ(w.free(0), Bytes{});
  w.attach(urgent);
  w.live(30s);
  EXPECT_EQ(w.state_of(batch), LeaseState::paused) << "there is no room, and nobody is promised any";
  w.quit(urgent);
  EXPECT_EQ(w.state_of(batch), LeaseState::active);
  EXPECT_EQ(w.free(0), Bytes{});
}

TEST(Preemption, MoreThanTheHeadroomIsNotKeptInIt) {
  Card w;
  w.rules.headroom = 256 * MiB;
  const Bytes whole = 24 * GiB - w.rules.headroom;
  std::vector<LeaseId> small;
  for (int i = 0; i < 6; ++i) small.push_back(w.start(3900 * MiB, Tier::batch, "job" + std::to_string(i)));
  const LeaseId all = w.start(whole, Tier::interactive, "infer");
  w.live(30s);
  EXPECT_EQ(parked(w), 0U) << "six of them keep 384 MiB, of which 128 are in nobody's headroom";
  EXPECT_EQ(w.state_of(all), LeaseState::queued);
  const LeaseId less = w.start(whole - 130 * MiB, Tier::interactive, "infer");
  w.live(60s);
  EXPECT_EQ(w.state_of(less), LeaseState::active);
  EXPECT_GE(w.free(0), Bytes{});
}

// Two cards, with programs of the tier batch.
struct TwoCards : World {
  Bytes second;
  explicit TwoCards(Bytes size_of_second) : second(size_of_second) { read({}, {}); }
  void read(std::vector<ProcessUse> on_first, std::vector<ProcessUse> on_second) {
    now = now + 20ms;
    snapshot({gpu(0, 8 * GiB, std::move(on_first)), gpu(1, second, std::move(on_second))});
  }
  LeaseId run(Bytes vram, int count, const std::string& device, int pid) {
    Lease lease = wish(vram);
    lease.tier = Tier::batch;
    lease.owner.kind = OwnerKind::connection;
    lease.device_count = count;
    lease.wanted_device = device;
    const LeaseId id = submit(lease, true);
    step(Attach{id, 0, kept_process(pid), true, {}});
    return id;
  }
  std::vector<LeaseId> weighed() const {
    std::vector<LeaseId> all;
    for (const Action& action : actions)
      if (const auto* weigh = std::get_if<WeighHost>(&action)) all.push_back(weigh->lease);
    return all;
  }
};

// Its program imports for a while before it takes anything, or is a shell between two steps.
TEST(Preemption, WhoseProgramHasNothingOnTheCardYetIsAskedOnceItHas) {
  Card w;
  const LeaseId early = w.submit(w.want(20 * GiB, Tier::batch, "imports"), true);
  w.step(Attach{early, 0, kept_process(50), true, {}});
  w.measure();
  const LeaseId urgent = w.start(10 * GiB, Tier::interactive, "infer");
  w.live(5s);
  EXPECT_EQ(w.state_of(early), LeaseState::active) << "there is nothing to park";
  EXPECT_EQ(w.state_of(urgent), LeaseState::queued);
  EXPECT_FALSE(queue_info(w.state, w.rules, w.at(urgent), w.now).eta) << "and nobody knows when there will be";

  w.programs[early] = {50, 6 * GiB};
  w.live(1s);
  EXPECT_EQ(w.state_of(early), LeaseState::paused);
  EXPECT_EQ(w.state_of(urgent), LeaseState::active);
}

TEST(Preemption, OneAtATimeOnAnyDeviceOfAVictim) {
  TwoCards w(8 * GiB);
  const LeaseId both = w.run(4 * GiB, 2, "", 100), one = w.run(4 * GiB, 1, uuid_of(0), 200);
  w.read({uses(100, 4 * GiB, both), uses(200, 4 * GiB, one)}, {uses(100, 4 * GiB, both)});
  for (int card = 0; card < 2; ++card) {  // the first needs only the one there, the second the one on both
    Lease preemptor = wish(card == 0 ? 3 * GiB : 7 * GiB, "infer");
    preemptor.wanted_device = uuid_of(card);
    w.submit(preemptor);
  }
  EXPECT_EQ(w.weighed().size(), 1U);
}

TEST(Preemption, ForTwoWhoWaitRoomIsMadeOnTwoCards) {
  TwoCards w(8 * GiB);
  const LeaseId cheap = w.run(4 * GiB, 1, uuid_of(0), 100), dear = w.run(6 * GiB, 1, uuid_of(1), 200);
  w.read({uses(100, 4 * GiB, cheap)}, {uses(200, 6 * GiB, dear)});
  w.submit(wish(6 * GiB, "infer"));
  w.submit(wish(6 * GiB, "infer"));
  EXPECT_EQ(w.weighed(), (std::vector{cheap, dear})) << "what is made for the first is not the second's";
}

TEST(Preemption, WhoYieldsOnOneCardForAGangSparesOthersOnTheOther) {
  TwoCards w(7 * GiB);
  const LeaseId both = w.run(5 * GiB, 2, "", 100), one = w.run(3 * GiB, 1, uuid_of(0), 200);
  w.read({uses(100, 5 * GiB, both), uses(200, 3 * GiB, one)}, {uses(100, 5 * GiB, both)});
  Lease gang = wish(2560 * MiB, "infer");
  gang.device_count = 2;
  w.submit(gang);
  EXPECT_EQ(w.weighed(), std::vector{both}) << "on the second card nobody else could, and on the first it is enough";
}

TEST(Preemption, WhoWaitsToGrowDoesNotWaitForItsOwnEnd) {
  Card w;
  Lease asked = w.want(8 * GiB, Tier::interactive, "tree_changing");
  asked.ttl = 3s;
  const LeaseId grows = w.submit(asked, true);
  w.attach(grows);
  const LeaseId below = w.start(14 * GiB, Tier::batch, "below");
  ASSERT_TRUE(w.step(Resize{grows, 0, 14 * GiB, true}).outcome.has_value());
  w.obey(plenty, 1);  // it is weighed
  EXPECT_EQ(w.state_of(below), LeaseState::pausing);
}

}  // namespace
}  // namespace sublet::core::testing
