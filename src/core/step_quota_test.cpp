// SPDX-License-Identifier: Apache-2.0
// Guarantees of tenants: memory is taken back from borrowers, and leases within a guarantee are protected.
#include "core/testing/ideal_executor.h"
#include "state/tenants.h"

namespace sublet::core::testing {
namespace {

Tenant guaranteed(std::string name, Bytes quota, std::string parent = {}) {
  Tenant tenant;
  tenant.name = std::move(name);
  tenant.parent = std::move(parent);
  if (quota > Bytes{}) tenant.quota.bytes = quota;
  return tenant;
}

struct Guarantees : Card {
  explicit Guarantees(const std::vector<Tenant>& tenants) {
    rules.min_residency = 3600s;  // no time slices
    EXPECT_TRUE(accepts(SetTenants{tenants}));
  }
  LeaseId of(std::string tenant, Bytes vram, Tier tier = Tier::standard, Pausable pausable = Pausable::automatic) {
    Lease lease = want(vram, tier, tenant + std::to_string(state.leases.last_id));
    lease.tenant = std::move(tenant);
    lease.pausable = pausable;
    const LeaseId id = submit(lease, true);
    if (state_of(id) == LeaseState::active) attach(id);
    return id;
  }
};

TEST(Quota, ALeaseWithinItTakesMemoryBackFromABorrowerOfItsTier) {
  Guarantees w({guaranteed("vision", 8 * GiB)});
  const LeaseId borrower = w.of("other", 20 * GiB);
  w.live(30s);
  EXPECT_SAYS(w.helps(borrower), "the tenant other has no quota: 20.0 GiB are borrowed");
  const LeaseId waiter = w.of("vision", 8 * GiB);
  const PauseCause cause = w.at(borrower).parking.value().cause;
  EXPECT_EQ(cause.kind, PauseCauseKind::quota);
  EXPECT_SAYS(text_of(cause), "within the quota of its tenant vision; the tenant other had borrowed 20.0 GiB");
  EXPECT_EQ(plan_for(w.state, waiter)->cause, Cause::quota);
  w.obey();
  EXPECT_EQ(w.states(borrower, waiter), "paused active");
  EXPECT_TRUE(w.at(borrower).parking->resume_requested);
  EXPECT_SAYS(w.helps(waiter), "the tenant vision is guaranteed 8.0 GiB and has 8.0 GiB: no lease beyond a guarantee");
}

TEST(Quota, ALeaseBeyondItWaits) {
  Guarantees w({guaranteed("vision", 8 * GiB)});
  const LeaseId borrower = w.of("other", 20 * GiB);
  w.live(30s);
  const LeaseId waiter = w.of("vision", 9 * GiB);
  w.live(60s);
  EXPECT_EQ(w.states(borrower, waiter), "active queued");
}

TEST(Quota, ABorrowerOfAHigherTierIsNotPaused) {
  Guarantees w({guaranteed("vision", 8 * GiB)});
  const LeaseId borrower = w.of("other", 20 * GiB, Tier::interactive);
  w.live(30s);
  const LeaseId waiter = w.of("vision", 8 * GiB);
  w.live(30s);
  EXPECT_EQ(w.states(borrower, waiter), "active queued");
}

TEST(Quota, ProtectsFromHigherTiersAndFromSlices) {
  Guarantees w({guaranteed("vision", 20 * GiB)});
  w.rules.min_residency = 10s;
  const LeaseId within = w.of("vision", 20 * GiB, Tier::batch);
  w.live(30s);
  const LeaseId higher = w.of("other", 8 * GiB, Tier::interactive), equal = w.of("other", 8 * GiB, Tier::batch);
  w.live(120s);
  EXPECT_EQ(w.states(within, higher, equal), "active queued queued");
  EXPECT_SAYS(w.helps(higher), "it is within the quota of its tenant vision");
}

TEST(Quota, OnlyWhatIsBorrowedIsTaken) {
  Guarantees w({guaranteed("vision", 8 * GiB), guaranteed("speech", 6 * GiB)});
  const LeaseId first = w.of("speech", 6 * GiB), second = w.of("speech", 6 * GiB), third = w.of("speech", 6 * GiB);
  w.live(30s);
  const LeaseId waiter = w.of("vision", 8 * GiB);
  w.obey();
  EXPECT_EQ(w.state_of(waiter), LeaseState::active);
  const auto paused = std::ranges::count_if(std::vector{first, second, third},
                                            [&w](LeaseId id) { return w.state_of(id) == LeaseState::paused; });
  EXPECT_EQ(paused, 1) << "2 GiB were lacking";
  const LeaseId higher = w.of("other", 16 * GiB, Tier::interactive);
  w.live(60s);
  EXPECT_EQ(w.state_of(higher), LeaseState::queued) << "one lease of speech is within its quota";
}

TEST(Quota, OfAParentCoversWhatItsChildrenAreNotGuaranteed) {
  Guarantees w({guaranteed("org", 12 * GiB), guaranteed("vision", 8 * GiB, "org"), guaranteed("speech", {}, "org")});
  const LeaseId borrower = w.of("other", 22 * GiB);
  w.live(30s);
  const LeaseId beyond = w.of("speech", 6 * GiB);
  w.live(30s);
  EXPECT_EQ(w.states(borrower, beyond), "active queued") << "8 of the 12 GiB are those of vision";
  const LeaseId within = w.of("speech", 4 * GiB);
  w.obey();
  EXPECT_EQ(w.state_of(within), LeaseState::active);
}

TEST(Quota, TwoWaitersDoNotTakeMoreThanItTogether) {
  Guarantees w({guaranteed("vision", 8 * GiB)});
  w.cards = 2;
  w.measure();
  const LeaseId one = w.of("other", 20 * GiB), two = w.of("other", 20 * GiB);
  w.live(30s);
  const LeaseId first = w.of("vision", 6 * GiB), second = w.of("vision", 6 * GiB);
  w.live(30s);
  EXPECT_EQ(w.states(first, second), "active active") << "the second finds what the first leaves free";
  EXPECT_EQ(std::ranges::count(std::vector{w.state_of(one), w.state_of(two)}, LeaseState::active), 1);
}

TEST(Quota, ALeaseThatCannotBePausedBorrowsAsSpotOnly) {
  Guarantees w({guaranteed("vision", 8 * GiB), guaranteed("speech", 4 * GiB)});
  Lease lease = w.want(6 * GiB, Tier::standard);
  lease.pausable = Pausable::no;
  lease.tenant = "speech";
  const Error refused = w.refusal(Submit{lease});
  EXPECT_EQ(refused.code, Code::Quota);
  EXPECT_SAYS(refused.detail, "of the 4.0 GiB that the tenant speech is guaranteed, 0 B are in use");
  EXPECT_SAYS(refused.hint, "--tier spot");
  const LeaseId within = w.of("speech", 4 * GiB, Tier::standard, Pausable::no);
  const LeaseId waits = w.of("speech", 2 * GiB, Tier::standard, Pausable::no);
  EXPECT_EQ(w.states(within, waits), "active queued");
  EXPECT_EQ(w.states(w.of("other", 6 * GiB, Tier::spot, Pausable::no)), "active");
}

TEST(Quota, APlanGoesOnAfterARestart) {
  Guarantees w({guaranteed("vision", 8 * GiB)});
  w.of("other", 20 * GiB);
  w.live(30s);
  const LeaseId waiter = w.of("vision", 8 * GiB);
  ASSERT_EQ(w.plans.size(), 1U);
  EXPECT_EQ(w.plans.begin()->second.cause, Cause::quota);
  w.state = State::load(w.stored(), {}, w.state.leases.last_id, w.rules, w.now);
  restore_plans(w.state, {w.plans.begin()->second}, w.now);
  w.step(SetTenants{{guaranteed("vision", 8 * GiB)}});
  ASSERT_NE(plan_for(w.state, waiter), nullptr);
  EXPECT_EQ(plan_for(w.state, waiter)->cause, Cause::quota);
}

}  // namespace
}  // namespace sublet::core::testing
