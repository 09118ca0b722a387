// SPDX-License-Identifier: Apache-2.0
// A model of stated bounds: tenants come and go, and share one card in strict order. No lease waits longer than the
// bound that it was told at any time, although newcomers keep coming.
#include "core/testing/slice_helpers.h"
#include "explain/bound.h"

#include <random>

namespace sublet::core::testing {
namespace {

constexpr Duration late = 1s;  // the model looks once a second

struct BoundModel {
  explicit BoundModel(unsigned seed) : random(seed), w(20s, 4096 * GiB) {
    w.rules.ledger_user_share = 1;
    size = static_cast<std::int64_t>(13 + random() % 10) * GiB;
    w.rules.reserve_after = {};
    w.ram.available = 8192 * GiB;
    w.measure();
  }

  void come() {
    Lease lease = w.want(size, Tier::standard, "l");
    lease.consumer = "train";
    lease.tag = "l" + std::to_string(w.state.leases.last_id);
    lease.tenant = lease.tag;  // a newcomer each time
    all.push_back(w.submit(lease, true));
    if (w.state_of(all.back()) == LeaseState::active) w.attach(all.back());
  }
  void go() {
    const std::size_t which = random() % all.size();
    if (!w.state.queue.contains(all[which])) told.clear();  // its memory goes by the queue
    w.step(Release{all[which]});
    told.erase(all[which]);
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(which));
  }
  // Keeps the earliest moment that each waiter was told.
  void look() {
    for (const LeaseId id : all) {
      const auto promised = told.find(id);
      if (!w.state.queue.contains(id)) {
        told.erase(id);
        continue;
      }
      if (promised != told.end()) {
        ASSERT_LE(w.now, promised->second + late) << to_string(id) << " " << w.states(id);
      }
      const auto bound = explain::bound_of(w.state, w.rules, w.at(id), w.now);
      looks += 1;
      if (!bound) continue;
      stated += 1;
      const Time at = w.now + bound->within;
      if (promised == told.end() || at < promised->second) told[id] = at;
    }
  }

  std::mt19937 random;
  Sharing w;
  Bytes size;  // of each lease
  std::vector<LeaseId> all = {};
  std::map<LeaseId, Time> told = {};
  int looks = 0, stated = 0;
};

class Bounds : public ::testing::TestWithParam<unsigned> {};

TEST_P(Bounds, HoldWhileNewcomersKeepComing) {
  BoundModel model(GetParam());
  for (int i = 0; i < 3; ++i) model.come();
  for (int second = 0; second < 8000; ++second) {
    if (model.all.size() < 9 && model.random() % 200 == 0) model.come();
    if (model.all.size() > 2 && model.random() % 900 == 0) model.go();
    share(model.w, model.all, 1s);
    if (second > 3000) model.look();  // the price of a switch is known
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(model.stated * 3, model.looks) << "a bound is stated often";
}

INSTANTIATE_TEST_SUITE_P(Seeds, Bounds, ::testing::Range(0u, 6u));

TEST(Bound, IsNotStatedWithoutARule) {
  Sharing w(20s);
  const LeaseId holder = w.start(20 * GiB, Tier::interactive, "holder");
  const LeaseId waits = w.queue(20 * GiB, Tier::standard, "low");
  w.live(30s);
  EXPECT_EQ(w.state_of(holder), LeaseState::active);
  EXPECT_FALSE(explain::bound_of(w.state, w.rules, w.at(waits), w.now));
  EXPECT_FALSE(explain::bound_of(w.state, w.rules, w.at(holder), w.now)) << "it has its memory";
}

TEST(Bound, FollowsFromAGuarantee) {
  Sharing w(20s, 256 * GiB);
  Tenant lender;
  lender.name = "lender";
  lender.quota.bytes = 16 * GiB;
  EXPECT_TRUE(w.accepts(SetTenants{{lender}}));
  w.start(20 * GiB, Tier::standard, "borrower");
  w.live(30s);
  Lease lease = w.want(12 * GiB, Tier::standard, "ours");
  lease.tenant = "lender";
  const LeaseId ours = w.submit(lease, true);
  const auto bound = explain::bound_of(w.state, w.rules, w.at(ours), w.now);
  ASSERT_TRUE(bound);
  EXPECT_SAYS(bound->from, "the guarantee of its tenant");
  EXPECT_EQ(bound->unless, "a lease of a higher tier and within a guarantee comes");
  const Time until = w.now + bound->within + 1s;
  while (w.now < until && !w.at(ours).reserves()) w.live(1s);
  EXPECT_TRUE(w.at(ours).reserves());
}

}  // namespace
}  // namespace sublet::core::testing
