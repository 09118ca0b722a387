// SPDX-License-Identifier: Apache-2.0
// Tenants take turns on a device, whatever their number, their weights and their place in the tree.
#include "core/testing/slice_helpers.h"
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

class TurnsOf : public ::testing::TestWithParam<TurnRow> {};

TEST_P(TurnsOf, GiveEachTenantItsShare) {
  const TurnRow& row = GetParam();
  Sharing w(20s, 256 * GiB);
  EXPECT_TRUE(w.accepts(SetTenants{row.tenants}));
  std::vector<LeaseId> all;
  for (const char* tenant : row.leases) {
    Lease lease = w.want(20 * GiB, Tier::standard, "l" + std::to_string(all.size()));
    lease.tenant = tenant;
    all.push_back(w.submit(lease, true));
    if (w.state_of(all.back()) == LeaseState::active) w.attach(all.back());
  }
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

}  // namespace
}  // namespace sublet::core::testing
