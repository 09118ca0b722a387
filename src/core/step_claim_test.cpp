// SPDX-License-Identifier: Apache-2.0
// A waiter proves by its claim that it still runs.
#include "core/testing/world.h"

namespace sublet::core {
namespace {

using namespace testing;

struct Waiting : OneCard {
  Waiting() {
    claims = false;
    holder = submit(24 * GiB);
    Lease lease = wish(24 * GiB, "stopped");
    lease.owner.kind = OwnerKind::connection;
    Submit asked{std::move(lease), true, true};
    asked.waiter = 4711;
    waiter = *step(asked).outcome;
    behind = submit(wish(24 * GiB, "behind"), true);
    step(Release{.lease = holder});
  }
  LeaseId holder, waiter, behind;
};

TEST(Claim, IsNeededThoughTheConnectionIsOpen) {
  Waiting w;
  EXPECT_EQ(w.state_of(w.waiter), LeaseState::offered);
  w.step(Claim{w.waiter});
  EXPECT_EQ(w.state_of(w.waiter), LeaseState::active);
  w.pass(1h);
  EXPECT_EQ(w.state_of(w.waiter), LeaseState::active);
}

TEST(Claim, ThatIsMissingGivesThePlaceToTheNextAndNamesTheProcess) {
  Waiting w;
  w.pass(w.rules.claim_window + 1s);
  EXPECT_EQ(w.state_of(w.waiter), LeaseState::queued);
  EXPECT_EQ(w.reason(w.waiter, ReasonKind::lapsed).number("waiter"), 4711);
  EXPECT_EQ(w.state_of(w.behind), LeaseState::offered);
  w.step(Claim{w.behind});
  w.step(Release{.lease = w.behind});
  EXPECT_EQ(w.state_of(w.waiter), LeaseState::offered) << "it gets a second offer";
  w.pass(w.rules.claim_window + 1s);
  EXPECT_TRUE(w.gone(w.waiter));
  EXPECT_EQ(w.reason(w.waiter, ReasonKind::unclaimed).number("waiter"), 4711);
}

TEST(Claim, IsNotNeededWhereNothingWasWaitedFor) {
  OneCard w;
  Lease lease = wish(2 * GiB);
  lease.owner.kind = OwnerKind::connection;
  w.claims = false;
  EXPECT_EQ(w.state_of(w.submit(lease, true)), LeaseState::active);
}

TEST(Grant, TellsTheAgeOfTheReadingThatItRestsOn) {
  OneCard w;
  w.now = w.now + 3s;
  const LeaseId id = w.submit(wish(2 * GiB), true);
  EXPECT_EQ(w.reason(id, ReasonKind::granted).duration("look"), Duration(3s));
}

}  // namespace
}  // namespace sublet::core
