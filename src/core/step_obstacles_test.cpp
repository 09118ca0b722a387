// SPDX-License-Identifier: Apache-2.0
#include "core/testing/ideal_executor.h"

namespace sublet::core::testing {
namespace {

using Words = std::vector<std::string>;

TEST(Obstacles, AreNotedWithTheWaiterOnce) {
  Card w;
  Lease lease = wish(20 * GiB, "pinned");
  lease.tier = Tier::batch;
  lease.pausable = Pausable::no;
  lease.owner = {OwnerKind::process, process(50), {}, ""};
  const LeaseId pinned = w.submit(lease);
  const LeaseId urgent = w.start(10 * GiB, Tier::interactive, "infer");
  const ReasonArgs noted = w.reason(urgent, ReasonKind::preemption_obstructed);
  EXPECT_EQ(noted.list("leases"), Words{to_string(pinned)});
  EXPECT_EQ(noted.list("codes"), Words{"obstacle"});
  EXPECT_EQ(noted.bytes("held"), 20 * GiB);
  EXPECT_EQ(noted.bytes("needs"), 10 * GiB);
  w.pass(5min);
  EXPECT_EQ(w.times_told(urgent, ReasonKind::preemption_obstructed), 1);
}

TEST(Obstacles, OfTheLedgerAreNotedToo) {
  Card w;
  w.rules.ledger_limit = 4 * GiB;
  w.start(20 * GiB, Tier::batch);
  const LeaseId urgent = w.start(10 * GiB, Tier::interactive, "infer");
  EXPECT_GE(w.times_told(urgent, ReasonKind::preemption_obstructed), 1);
}

TEST(Obstacles, OfLeasesThatItDoesNotReachAreNot) {
  Card w;
  Lease lease = wish(20 * GiB, "pinned");
  lease.pausable = Pausable::no;
  w.submit(lease);
  const LeaseId equal = w.start(10 * GiB, Tier::standard, "infer");
  EXPECT_EQ(w.times_told(equal, ReasonKind::preemption_obstructed), 0);
}

}  // namespace
}  // namespace sublet::core::testing
