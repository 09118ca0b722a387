// SPDX-License-Identifier: Apache-2.0
// Tenants take turns on a device, whatever their number, their weights and their place in the tree.
#include "core/testing/slice_helpers.h"
#include "state/rotation.h"
#include "state/tenants.h"

namespace sublet::core::testing {
namespace {

struct TurnRow {
  const char* name;
  std::vector<Tenant> tenants;
  std::vector<const char*> leases;  // the tenant of each; each wants the whole card
  std::vector<int> percent;         // of the time that each lease gets
};

Tenant node(std::string name, std::string parent, int weight = usual_weight) {
  Tenant tenant;
  tenant.name = std::move(name);
  tenant.parent = std::move(parent);
  tenant.weight = weight;
  return tenant;
}

// A lease of the tenant that wants the whole card.
LeaseId ask(Sharing& w, const char* tenant) {
  Lease lease = w.want(20 * GiB, Tier::standard, "l" + std::to_string(w.state.leases.last_id));
  lease.tenant = tenant;
  const LeaseId id = w.submit(lease, true);
  if (w.state_of(id) == LeaseState::active) w.attach(id);
  return id;
}

class TurnsOf : public ::testing::TestWithParam<TurnRow> {};

TEST_P(TurnsOf, GiveEachTenantItsShare) {
  const TurnRow& row = GetParam();
  Sharing w(20s, 256 * GiB);
  EXPECT_TRUE(w.accepts(SetTenants{row.tenants}));
  std::vector<LeaseId> all;
  for (const char* tenant : row.leases) all.push_back(ask(w, tenant));
  const Duration length = 8000s;
  Served served = share(w, all, length);
  Duration sum{};
  for (const auto& [id, had] : served.had) sum += had;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Duration share = sum * row.percent[i] / 100;
    EXPECT_NEAR(static_cast<double>(served.had[all[i]].count()) / 1e9, static_cast<double>(share.count()) / 1e9, 400)
        << row.leases[i] << " " << i << " of " << sum.count() / 1'000'000'000 << " s";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, TurnsOf,
    ::testing::Values(TurnRow{"two_tenants", {}, {"a", "b"}, {50, 50}},
                      TurnRow{"three_tenants", {}, {"a", "b", "c"}, {33, 33, 33}},
                      TurnRow{"a_tenant_with_two_leases_has_no_more", {}, {"a", "a", "b"}, {25, 25, 50}},
                      TurnRow{"weights", {node("a", "", 3000), node("b", "")}, {"a", "b"}, {75, 25}},
                      TurnRow{"a_nested_tree",
                              {node("org", ""), node("a", "org"), node("b", "org"), node("lab", "")},
                              {"a", "b", "lab"},
                              {25, 25, 50}}),
    [](const auto& row_info) { return std::string(row_info.param.name); });

// The machine slept for an hour in the middle of a rotation: the tenant that had the card owes nothing for it.
TEST(Turns, GoOnAfterAnHourOfSleep) {
  Sharing w(20s, 256 * GiB);
  std::vector<LeaseId> all;
  for (const char* tenant : {"a", "b", "c"}) all.push_back(ask(w, tenant));
  share(w, all, 1000s);
  w.now = w.now + 1h;
  w.step(ClockGap{1h});
  w.measure();
  Served served = share(w, all, 4000s);
  for (const LeaseId id : all)
    EXPECT_NEAR(static_cast<double>(served.had[id].count()) / 1e9,
                static_cast<double>(served.had[all[0]].count()) / 1e9, 400);
}

// ------------------------------------------------------------------------------- strict turns

struct CycleRow {
  const char* name;
  std::vector<Tenant> tenants;
  std::vector<const char*> leases;  // the tenant of each; each wants the whole card
  std::size_t period;               // in turns
};

class StrictTurns : public ::testing::TestWithParam<CycleRow> {};

// The exact length of each slice differs a little. Such differences do not change the order.
TEST_P(StrictTurns, RepeatAfterThePeriod) {
  const CycleRow& row = GetParam();
  Sharing w(20s, 512 * GiB);
  w.rules.ledger_user_share = 1;
  w.ram.available = 1024 * GiB;
  w.measure();
  EXPECT_TRUE(w.accepts(SetTenants{row.tenants}));
  std::vector<LeaseId> all;
  for (const char* tenant : row.leases) {
    all.push_back(ask(w, tenant));
    w.live(7s);
  }
  std::vector<std::string> turns;
  LeaseId last;
  double sum = 0;
  for (int looks = 0; turns.size() < 5 * row.period && looks < 20'000; ++looks) {
    w.live(1s + std::chrono::milliseconds(37 * (looks % 7)));
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (w.state_of(all[i]) != LeaseState::active) continue;
      if (!w.programs.contains(all[i])) w.attach(all[i]);
      if (all[i] != last) turns.emplace_back(row.leases[i]);
      last = all[i];
    }
  }
  ASSERT_EQ(turns.size(), 5 * row.period);
  for (std::size_t i = 2 * row.period; i < turns.size(); ++i) EXPECT_EQ(turns[i], turns[i - row.period]) << i;
  ASSERT_EQ(w.state.preemption.rotations.size(), 1u);
  const Rotation& rotation = w.state.preemption.rotations.front();
  for (const char* tenant : std::set<const char*>(row.leases.begin(), row.leases.end())) {
    const auto count = std::count(turns.end() - static_cast<std::ptrdiff_t>(row.period), turns.end(), tenant);
    const double part = part_of_time(w.state, rotation, tenant);
    EXPECT_NEAR(part, static_cast<double>(count) / static_cast<double>(row.period), 0.001) << tenant;
    sum += part;
  }
  EXPECT_NEAR(sum, 1, 0.001);
  for (const LeaseId id : all) EXPECT_EQ(rotation_with(w.state, id), &rotation);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, StrictTurns,
    ::testing::Values(CycleRow{"two", {}, {"a", "b"}, 2}, CycleRow{"three", {}, {"a", "b", "c"}, 3},
                      CycleRow{"eight", {}, {"a", "b", "c", "d", "e", "f", "g", "h"}, 8},
                      CycleRow{"a_nested_tree",
                               {node("org", ""), node("a", "org"), node("b", "org"), node("lab", "")},
                               {"a", "b", "lab"},
                               4},
                      CycleRow{"two_leases_of_one_user", {}, {"a", "a", "b"}, 4}),
    [](const auto& row_info) { return std::string(row_info.param.name); });

TEST(Rotation, ExistsOnlyWhereNoTwoLeasesFitTogether) {
  Sharing w(20s, 256 * GiB);
  add(w, {{14 * GiB}, {8 * GiB}, {14 * GiB}});
  w.live(30s);
  EXPECT_EQ(w.state.preemption.slices.size(), 1u);
  EXPECT_TRUE(w.state.preemption.rotations.empty());
}

TEST(Rotation, ANewcomerStandsBehindAllThatWait) {
  Sharing w(20s, 512 * GiB);
  w.rules.ledger_user_share = 1;
  std::vector<LeaseId> all;
  const auto come = [&] {
    Lease lease = w.want(20 * GiB, Tier::standard, "l" + std::to_string(all.size()));
    lease.tenant = lease.consumer;
    all.push_back(w.submit(lease, true));
    if (w.state_of(all.back()) == LeaseState::active) w.attach(all.back());
  };
  for (int i = 0; i < 3; ++i) come();
  share(w, all, 3000s);
  ASSERT_EQ(w.state.preemption.rotations.size(), 1u);
  for (const LeaseState state : {LeaseState::active, LeaseState::paused})
    for (int second = 0; second < 2000 && w.state_of(all[0]) != state; ++second) share(w, all, 1s);
  const auto turns = turns_before(w.state, w.state.preemption.rotations.front(), all[0], w.now);
  ASSERT_TRUE(turns);
  EXPECT_EQ(turns->slices, 2);
  come();
  share(w, all, 1s);
  const auto after = turns_before(w.state, w.state.preemption.rotations.front(), all[0], w.now);
  ASSERT_TRUE(after);
  EXPECT_EQ(after->slices, turns->slices);
}

}  // namespace
}  // namespace sublet::core::testing
