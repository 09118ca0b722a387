// SPDX-License-Identifier: Apache-2.0
#include "explain/dry_run.h"

#include "core/testing/world.h"

namespace sublet::core::testing {
namespace {

using explain::Would;

struct Asked : OneCard {
  Submit asking(Bytes vram, Tier tier = Tier::standard) {
    Submit fact;
    fact.lease = wish(vram, "new");
    fact.lease.tier = tier;
    fact.held = true;
    return fact;
  }
  // A program that has been started by Sublet.
  Submit program_of(Bytes vram) {
    Submit fact = asking(vram);
    fact.lease.owner.kind = OwnerKind::connection;
    fact.lease.command = "python train.py";
    return fact;
  }
  LeaseId program(Bytes vram, int pid, Tier tier, Pausable pausable = Pausable::automatic) {
    Lease lease = wish(vram, "train");
    lease.tier = tier;
    lease.pausable = pausable;
    lease.owner.kind = OwnerKind::connection;
    const LeaseId id = submit(std::move(lease), true);
    step(Attach{id, 0, kept_process(pid), true, {}});
    running_.push_back(uses(pid, vram, id));
    measure();
    return id;
  }
  void measure() { snapshot({gpu(0, 24 * GiB, running_)}); }
  explain::DryRun would(const Submit& fact) { return *explain::dry_run(state, rules, fact, now); }

 private:
  std::vector<ProcessUse> running_;
};

TEST(DryRun, TellsWhatTheRequestWouldDoAndChangesNothing) {
  const struct {
    const char* what;
    Tier tier;  // of the lease that has 20 of 24 GiB
    Pausable pausable;
    Bytes asked;
    Would would;
    std::string basis;
  } rows[] = {
      {"it fits", Tier::standard, Pausable::automatic, 4 * GiB, Would::start, ""},
      {"a lower tier is paused", Tier::batch, Pausable::automatic, 10 * GiB, Would::preempt, "by pausing lease-1"},
      {"a spot lease is ended", Tier::spot, Pausable::no, 10 * GiB, Would::preempt, "has its grace time to end"},
      {"equals take time slices", Tier::standard, Pausable::automatic, 10 * GiB, Would::wait, "its time slice begins"},
      {"a higher tier stays", Tier::interactive, Pausable::automatic, 10 * GiB, Would::wait, "has no known end"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.what);
    Asked w;
    const LeaseId holder = w.program(20 * GiB, 100, row.tier, row.pausable);
    const std::uint64_t steps = w.state.steps;
    const auto found = w.would(w.program_of(row.asked));
    EXPECT_EQ(found.would, row.would);
    EXPECT_EQ(found.lease.devices.empty(), row.would != Would::start);
    EXPECT_EQ(found.queue.place, row.would == Would::start ? 0U : 1U);
    EXPECT_SAYS(found.queue.basis, row.basis);
    const bool gives_way = row.would == Would::preempt || row.tier == Tier::standard;
    if (row.would != Would::start) EXPECT_EQ(found.room.victims.size(), gives_way ? 1U : 0U);
    if (!found.room.victims.empty()) EXPECT_EQ(found.room.victims[0].ends, row.tier == Tier::spot);
    if (!gives_way) EXPECT_EQ(found.room.ineligible.at(0).lease, holder);
    EXPECT_EQ(w.state.steps, steps);
    EXPECT_EQ(w.states(holder), "active");
  }
}

TEST(DryRun, IsRefusedAsTheRequestWouldBe) {
  Asked w;
  w.program(20 * GiB, 100, Tier::standard);
  Submit at_once = w.asking(10 * GiB);
  at_once.may_queue = false;
  EXPECT_EQ(explain::dry_run(w.state, w.rules, at_once, w.now).error().code, Code::Memory);
  for (const Bytes size : {Bytes{}, 100 * GiB}) {
    const auto refused = explain::dry_run(w.state, w.rules, w.asking(size), w.now);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().detail, w.refusal(w.asking(size)).detail);
  }
}

TEST(DryRun, CountsTheHostMemoryOfTheMachine) {
  Asked w;
  w.program(10 * GiB, 100, Tier::batch), w.program(10 * GiB, 102, Tier::batch);
  for (const bool enough : {true, false}) {  // 2 GiB are kept free
    w.ram.available = enough ? 22 * GiB : 21 * GiB;
    w.measure();
    auto found = w.would(w.asking(20 * GiB, Tier::interactive));
    EXPECT_TRUE(found.room.found);
    EXPECT_EQ(found.would, enough ? Would::preempt : Would::wait);
    explain::limit_to_host(found.room, w.state, w.rules, 1000);
    EXPECT_EQ(found.room.victims.size(), enough ? 2U : 0U);
    if (enough) continue;
    EXPECT_EQ(found.room.no_victims.code, NoVictims::Code::beyond_ledger);
    EXPECT_SAYS(found.room.why_not, "20.0 GiB");
    EXPECT_SAYS(found.room.why_not, "19.0 GiB");
    EXPECT_FALSE(found.queue.eta);
  }
}

// The preemptor has no lease yet; with its lease, the other user is not alone any more.
TEST(DryRun, EndsASpotLeaseThatTheShareOfItsUserDoesNotTake) {
  Asked w;
  w.rules.ledger_limit = 24 * GiB;
  w.program(20 * GiB, 100, Tier::spot);
  Submit fact = w.asking(10 * GiB);
  for (const bool own : {true, false}) {
    fact.lease.uid = own ? 1000 : 1001;
    const auto found = w.would(fact);
    EXPECT_EQ(found.would, Would::preempt);
    ASSERT_EQ(found.room.victims.size(), 1u);
    EXPECT_EQ(found.room.victims[0].ends, !own);
  }
}

TEST(DryRun, TellsForHowLongTheVictimsStayPaused) {
  Asked w;
  w.program(20 * GiB, 100, Tier::batch);
  Submit fact = w.asking(10 * GiB);
  EXPECT_FALSE(w.would(fact).room.paused_for);
  EXPECT_SAYS(w.would(fact).room.paused_for_basis, "it has no known end");
  fact.lease.owner.kind = OwnerKind::connection;
  fact.lease.ttl = 10min;
  EXPECT_EQ(w.would(fact).room.paused_for, 10min);
  EXPECT_EQ(w.would(fact).room.paused_for_basis, "until it ends at its time limit");
  w.rules.automatic = false;
  EXPECT_EQ(w.would(fact).would, Would::wait);

  Asked slices;
  slices.program(20 * GiB, 100, Tier::standard);
  const VictimPlan room = slices.would(slices.program_of(10 * GiB)).room;
  EXPECT_GT(room.wait, Duration{});
  EXPECT_SAYS(room.wait_for, "it has its time slice for");
  EXPECT_GE(room.paused_for, 10s);
  EXPECT_SAYS(room.paused_for_basis, "for one time slice");
}

}  // namespace
}  // namespace sublet::core::testing
