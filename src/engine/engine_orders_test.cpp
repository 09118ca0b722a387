// SPDX-License-Identifier: Apache-2.0
// Orders of the engine around ends and store failures: cases that the seeded simulation (tests/sim) has found.
#include "engine/engine_orders_test.h"

namespace sublet::engine {
namespace {

TEST_F(EngineOrders, WhoSaysThatItGoesOnIsNotToldAgainByAnOrderThatWaitsForItsCommit) {
  run();
  cooperate();
  pause();
  settle();
  cooperation_->waits(
      {.kind = pause::ParkOutcome::Kind::unknown, .code = core::ObstacleCode::late, .detail = "not in time"});
  ASSERT_EQ(state(), LeaseState::resuming);
  cooperation_->events.runs_late(id_);  // before the resume order is durable
  EXPECT_EQ(state(), LeaseState::active);
  settle();
  EXPECT_EQ(cooperation_->orders, std::vector<std::string>{"yield"});
}

// The program may have been told, so it gets a resume order. The lost actor is no fault of the program.
TEST_F(EngineOrders, AnActorThatIsLostWithItsOrderCountsAgainstNobody) {
  run();
  cooperate();
  pause();
  settle();
  cooperation_->waits({.kind = pause::ParkOutcome::Kind::unknown,
                       .code = core::ObstacleCode::unreachable,
                       .detail = "the actor is not there"});
  settle();
  EXPECT_EQ(cooperation_->orders, (std::vector<std::string>{"yield", "resume"}));
  EXPECT_EQ(core::record_of(engine_->state(), {0, "ana"}, core::PauseMethod::cooperative), nullptr);
}

TEST_F(EngineOrders, WhoHasEndedBeforeItGoesOnLateYieldsNoMore) {
  run();
  core::Cooperation how;
  how.way = core::CooperationWay::signal;
  how.process = {4321, 5};  // a process that does not exist
  request(core::Cooperate{id_, 0, how});
  pause();
  settle();
  cooperation_->waits(
      {.kind = pause::ParkOutcome::Kind::unknown, .code = core::ObstacleCode::late, .detail = "not in time"});
  settle();
  cooperation_->waits(
      {.kind = pause::ParkOutcome::Kind::unknown, .code = core::ObstacleCode::late, .detail = "not in time"});
  ASSERT_EQ(state(), LeaseState::resuming);
  ASSERT_TRUE(core::find(engine_->state(), id_)->cooperation);
  cooperation_->events.runs_late(id_);
  EXPECT_EQ(state(), LeaseState::active);
  EXPECT_FALSE(core::find(engine_->state(), id_)->cooperation);
}

TEST_F(EngineOrders, WhoYieldsIsLetGoOfOnceTheEndOfItsLeaseIsDurable) {
  run();
  request(core::ProgramEnded{id_, 0, false});
  turn();
  EXPECT_TRUE(cooperation_->let_go_of.empty()) << "its end may be lost with the store";
  settle();
  EXPECT_EQ(cooperation_->let_go_of, std::vector<LeaseId>{id_});
}

TEST_F(EngineOrders, WhoYieldsIsLetGoOfWhereACommitThatWasSaidToHaveFailedWasKept) {
  run();
  store_.fail_commit(1, FaultyStore::Fate::kept, unavailable("the answer of the disk was lost"));
  request(core::ProgramEnded{id_, 0, false});
  settle();
  EXPECT_EQ(cooperation_->let_go_of, std::vector<LeaseId>{id_});
}

TEST_F(EngineOrders, WhoYieldsIsNotLetGoOfWhereTheEndOfItsLeaseIsLost) {
  run();
  store_.fail_commit(1, FaultyStore::Fate::lost, unavailable("no space left"));
  request(core::ProgramEnded{id_, 0, false});
  turn();
  EXPECT_TRUE(cooperation_->let_go_of.empty());
}

TEST_F(EngineOrders, WhatEndedBeforeItsOrderWasDurableIsNotParked) {
  run();
  pause();
  request(core::ProgramEnded{id_, 0, false});
  settle();
  EXPECT_TRUE(parker_->orders.empty()) << "nobody would bring it back";
}

TEST_F(EngineOrders, AnEndThatIsLostLeavesTheLeaseToThoseWhoHoldIt) {
  core::Submit submit;
  submit.held = true;
  submit.lease.user = submit.lease.tenant = submit.lease.consumer = "ana";
  submit.lease.vram = GiB;
  request(submit);
  engine_->access().hold(id_, 1);
  settle();
  store_.fail_commit(1, FaultyStore::Fate::lost, unavailable("no space left"));
  request(core::Release{.lease = id_});
  settle();
  ASSERT_NE(core::find(engine_->state(), id_), nullptr);
  EXPECT_FALSE(core::find(engine_->state(), id_)->unheld_since) << "its connection is open";
}

TEST_F(EngineOrders, AProgramThatIsAttachedInTheStepInWhichItsTimeIsOverIsFollowed) {
  begin(std::chrono::nanoseconds(1));
  ASSERT_TRUE(core::find(engine_->state(), id_)->ended());
  EXPECT_TRUE(engine_->programs().can_signal(id_)) << "it is to be ended";
}

TEST_F(EngineOrders, TheDriverLocksOnceItIsStoredWhom) {
  run();
  pause();
  settle();
  parker_->ask_for({4321, 5});
  turn();
  EXPECT_FALSE(parker_->may) << "not durable yet";
  settle();
  ASSERT_EQ(parker_->may, true);
  parker_->waiting.extract(id_).mapped()(
      {.kind = pause::ParkOutcome::Kind::unknown, .code = core::ObstacleCode::helper, .detail = "it ended"});
  settle();
  EXPECT_EQ(parker_->orders.back(), "unpark");
  EXPECT_EQ(parker_->tree, (std::vector<ProcessRef>{{4321, 5}})) << "whom it locked, not who lives by now";
}

// A host with enough memory for everything that is parked.
class RoomyHost final : public machine::Host {
 public:
  core::HostMemory memory(std::span<const ProcessRef> of, const std::optional<proc::SwapStopper>&) const override {
    return {.available = 64 * GiB, .headroom = of.empty() ? std::nullopt : headroom};
  }
  std::vector<std::string> swap_groups(std::span<const ProcessRef> of) const override {
    return std::vector<std::string>(of.size());
  }
  machine::HostUse use(std::span<const ProcessRef>) const override { return {}; }
  Status lock_card(const std::string&) override { return {}; }
  void remove_exit_record(const std::string&) override {}
  void sweep_exit_records(const std::string&, const std::function<bool(LeaseId)>&) override {}
  std::optional<Bytes> headroom;  // of the control group of any process
};

struct Roomy {
  RoomyHost* host_ = new RoomyHost;  // owned by the machine
};

struct RoomyOrders : Roomy, EngineOrders {
  RoomyOrders() : EngineOrders([this](Machine& machine) { machine.host = std::unique_ptr<machine::Host>(host_); }) {}
};

// The core decides by the memory of the machine; the control group of the program may take less.
TEST_F(RoomyOrders, APauseBeyondItsControlGroupIsUndoneBeforeAnyProcessIsAsked) {
  run();
  host_->headroom = 512 * MiB;
  for (const bool cooperative : {false, true}) {
    if (cooperative) cooperate();
    const auto asked = [this] {
      return std::ranges::count(parker_->orders, "park") + std::ranges::count(cooperation_->orders, "yield");
    };
    pause();
    settle();
    EXPECT_EQ(asked(), 0);
    EXPECT_EQ(state(), LeaseState::resuming);
    settle();  // the resume order is durable
    if (const auto waiting = parker_->waiting.extract(id_)) waiting.mapped()({.kind = pause::ParkOutcome::Kind::done});
    if (cooperation_->waits) std::exchange(cooperation_->waits, {})({.kind = pause::ParkOutcome::Kind::done});
    settle();
    EXPECT_EQ(state(), LeaseState::active);
    EXPECT_EQ(core::standing_of(engine_->state(), id_).failures, 0) << "the program is not to blame";
  }
}

// The facts are the order, and the three events of its attempt; the readings of the card come anyway.
TEST_F(RoomyOrders, APauseByTheDriverTakesFourFactsAndThreeCommits) {
  constexpr std::uint64_t readings = 3;
  run();
  const ProcessRef own = core::find(engine_->state(), id_)->owner.process;
  const std::vector<gpu::GpuProcess> holds{{.process = own, .used = 512 * MiB}};
  probe_->tell(512 * MiB, holds), settle();
  const std::uint64_t facts = engine_->state().steps, commits = engine_->commits().last();
  const auto committed = [&] { return engine_->commits().last() - commits; };
  pause(), settle();
  EXPECT_EQ(committed(), 1U) << "the order";
  parker_->ask_for(own), settle();
  EXPECT_EQ(parker_->may, true);
  EXPECT_EQ(committed(), 2U) << "the processes that are about to be locked";
  std::optional<std::string> why_not;
  parker_->weigh({own}, [&why_not](std::string said) { why_not = std::move(said); });
  probe_->tell(512 * MiB, holds), turn();
  EXPECT_EQ(why_not, "") << "nothing has grown: no commit is waited for";
  pause::ParkOutcome parked{.kind = pause::ParkOutcome::Kind::done, .parked = {own}};
  parked.host_bytes = 512 * MiB;
  parker_->waiting.extract(id_).mapped()(parked), settle();
  probe_->tell(), settle();
  EXPECT_EQ(committed(), 2U) << "what was parked is stored with the result";
  probe_->tell(), settle();
  EXPECT_EQ(state(), LeaseState::paused);
  EXPECT_EQ(core::find(engine_->state(), id_)->parking->host_bytes, 512 * MiB);
  EXPECT_EQ(committed(), 3U) << "the result";
  EXPECT_EQ(engine_->state().steps - facts, 4U + readings);
}

TEST_F(RoomyOrders, NothingIsParkedBeforeItIsStoredWhatIsThere) {
  run();
  pause();
  settle();
  const ProcessRef own = core::find(engine_->state(), id_)->owner.process;
  parker_->ask_for(own);
  settle();
  ASSERT_EQ(parker_->may, true);
  for (const bool stored : {true, false}) {
    std::optional<std::string> why_not;
    if (!stored) store_.fail_commit(1, FaultyStore::Fate::lost, unavailable("no space left"));
    parker_->weigh({own}, [&why_not](std::string said) { why_not = std::move(said); });
    const Bytes holds = stored ? 512 * MiB : 700 * MiB;
    probe_->tell(holds, {{.process = own, .used = holds}});
    turn();
    EXPECT_FALSE(why_not) << "not durable yet";
    settle();
    EXPECT_EQ(why_not, stored ? "" : "the store has failed");
  }
}

// The wall clock was set back since the store was written.
struct SetBack : EngineOrders {
  SetBack()
      : EngineOrders([this](Machine& machine) {
          EXPECT_TRUE(inner_.open({}));
          store::Batch batch;
          batch.now = last;
          batch.boot_id = "boot";
          inner_.intend(std::move(batch));
          inner_.pump();
          inner_.close();
          machine.clock = std::make_unique<ManualClock>(Time{last.ns / 2});
        }) {}
  static constexpr Time last{2'000'000'000'000};
};

TEST_F(SetBack, TheNumbersOfOrdersGoOnFromThose) {
  EXPECT_GE(cooperation_->first_number, static_cast<std::uint64_t>(last.ns / 1000));
}

// The parker asked whether it may park its locked processes, and released them before the answer.
TEST_F(RoomyOrders, WhatAnOrderWasNotToldInTimeAnswersNoLaterOne) {
  run();
  pause();
  settle();
  const ProcessRef own = core::find(engine_->state(), id_)->owner.process;
  parker_->ask_for(own);
  settle();
  parker_->weigh({own}, [](const std::string& said) { ADD_FAILURE() << "nobody waits any more: " << said; });
  parker_->waiting.extract(id_).mapped()(
      {.kind = pause::ParkOutcome::Kind::undone, .code = core::ObstacleCode::measure_timeout, .detail = "too late"});
  settle();
  parker_->answer(id_);
  settle();
  ASSERT_EQ(state(), LeaseState::active);
  EXPECT_EQ(core::record_of(engine_->state(), {0, "ana"}, core::PauseMethod::driver), nullptr)
      << "it is nobody's fault";
  pause();
  settle();
  parker_->ask_for(own);
  probe_->tell(512 * MiB, {{.process = own, .used = 512 * MiB}});
  settle();
  EXPECT_EQ(parker_->may, true);
}

TEST_F(EngineOrders, RoomIsMadeSureOfWhereTheCardIsSeenToBeFull) {
  for (const bool full : {false, true}) {
    SCOPED_TRACE(full ? "full" : "free");
    run();
    be_paused(GiB);
    request(core::Resume{id_});  // memory is free in the state, and by the newest reading
    if (full) probe_->tell(24 * GiB);
    settle();
    ASSERT_EQ(parker_->orders.back(), "unpark");
    ASSERT_EQ(parker_->room.empty(), !full);
    const Bytes kept = core::find(engine_->state(), id_)->parking->residue;  // the list names no process with it
    if (full) {
      EXPECT_EQ(parker_->room[0].most, 24 * GiB - kept);
    }
    EXPECT_GT(kept, Bytes{});
    parker_->answer(id_);
    settle();
    request(core::ProgramEnded{id_, 0, false});
    settle();
    probe_->tell();
    settle();
  }
}

TEST_F(EngineOrders, ACallHasTheTimeThatTheCoreGivesIt) {
  run();
  pause();
  settle();
  // A call that was given up counts as running until it has returned.
  parker_->waiting.extract(id_).mapped()(
      {.kind = pause::ParkOutcome::Kind::unknown, .code = core::ObstacleCode::stuck, .detail = "it hangs"});
  settle();
  ASSERT_EQ(parker_->orders, (std::vector<std::string>{"park", "unpark"}));
  EXPECT_GE(std::ranges::min(parker_->given_up), std::chrono::seconds(30));
  EXPECT_LE(std::ranges::max(parker_->given_up), std::chrono::hours(4));
  EXPECT_TRUE(core::is_stuck(engine_->state(), id_));
  parker_->returned(id_);
  settle();
  EXPECT_EQ(parker_->orders.size(), 2U) << "somebody is looking already";
  parker_->waiting.extract(id_).mapped()(
      {.kind = pause::ParkOutcome::Kind::unknown, .code = core::ObstacleCode::stuck, .detail = "it hangs"});
  settle();
  ASSERT_EQ(parker_->orders.size(), 2U) << "it is tried again later …";
  parker_->returned(id_);
  settle();
  ASSERT_EQ(parker_->orders.size(), 3U) << "… or at once, when there is reason to";
  parker_->answer(id_);
  settle();
  EXPECT_EQ(state(), LeaseState::active);
  parker_->returned(id_);
  settle();
  EXPECT_EQ(parker_->orders.size(), 3U);
}

// A call that was given up returns while it is still being undone. Only its duration is new then.
TEST_F(EngineOrders, WhatIsLearnedAloneIsStoredToo) {
  run();
  pause();
  settle();
  parker_->waiting.extract(id_).mapped()(
      {.kind = pause::ParkOutcome::Kind::unknown, .code = core::ObstacleCode::stuck, .detail = "it hangs"});
  settle();
  ASSERT_EQ(parker_->orders, (std::vector<std::string>{"park", "unpark"})) << "which is not answered yet";
  parker_->returned(id_);
  settle();
  inner_.crash();
  const auto loaded = inner_.open({});
  ASSERT_TRUE(loaded);
  ASSERT_EQ(loaded->moves.size(), 1U);
  EXPECT_EQ(loaded->moves[0].move, core::Move::pause);
}

TEST_F(EngineOrders, NobodyIsLockedForALeaseThatHasEndedOrWhenItCannotBeStored) {
  run();
  pause();
  settle();
  store_.fail_commit(1, FaultyStore::Fate::lost, unavailable("no space left"));
  parker_->ask_for({4321, 5});
  settle();
  EXPECT_EQ(parker_->may, false);
  ASSERT_EQ(state(), LeaseState::resuming) << "read anew, and undone";
  parker_->ask_for({4321, 5});
  EXPECT_EQ(parker_->may, false) << "it is to come back";

  parker_->answer(id_);
  settle();
  parker_->answer(id_);
  settle();
  ASSERT_EQ(state(), LeaseState::active);
  pause();
  settle();
  parker_->ask_for({4321, 5});
  request(core::ProgramEnded{id_, 0, false});
  EXPECT_EQ(parker_->may, false);
  settle();
}

TEST_F(EngineOrders, WhatComesOfAnOrderFromBeforeTheStoreFailedAnswersNoLaterOne) {
  run();
  pause();
  settle();
  ASSERT_EQ(parker_->orders, std::vector<std::string>{"park"});
  store_.fail_commit(1, FaultyStore::Fate::lost, unavailable("no space left"));
  request(core::Renew{.lease = id_, .generation = 0, .ttl = std::chrono::hours(1)});
  settle();
  EXPECT_EQ(state(), LeaseState::resuming) << "read anew, and undone";
  parker_->answer(id_);  // answers the earlier park; the order to unpark is not durable yet
  EXPECT_EQ(state(), LeaseState::resuming);
  settle();
  EXPECT_EQ(parker_->orders.back(), "unpark");
  EXPECT_EQ(parker_->orders.size(), 2U);
  parker_->answer(id_);
  settle();
  EXPECT_EQ(state(), LeaseState::active);
}

}  // namespace
}  // namespace sublet::engine
