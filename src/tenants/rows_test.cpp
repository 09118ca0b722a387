// SPDX-License-Identifier: Apache-2.0
#include "tenants/rows.h"

#include <gtest/gtest.h>

namespace sublet::tenants {
namespace {

using core::Tenant;

Tenant tenant(std::string name, std::string parent = {}, core::TenantAmount quota = {}, core::TenantAmount limit = {}) {
  return {.name = std::move(name), .parent = std::move(parent), .quota = quota, .limit = limit};
}

TEST(Rows, KeepAllFields) {
  Tenant full = tenant("vision", "lab", {Bytes{GiB.count}, 500}, {Bytes{2 * GiB.count}, 1000});
  full.live_leases = 4, full.queued_leases = 0, full.longest_lease = std::chrono::hours(4);
  full.on_limit = core::OnLimit::refuse, full.weight = 1500, full.tiers = {core::Tier::batch};
  full.highest_priority = -3, full.park_share = 250;
  for (const Tenant& each : {full, tenant("plain")}) EXPECT_EQ(tenant_from(to_row(each)).value(), each);
  StoredUse stored{{"vision", Time{17}, {{4, core::Integral{1} << 100}, {5, 7}}, {{5, 3}}}, {Bytes{3}, 2}};
  EXPECT_EQ(use_from(to_row(stored)).value(), stored);
  stored = {{"vision", Time{17}, {}, {}}, {}};
  EXPECT_EQ(to_row(stored).data, "") << "nothing is left to store";
  for (const char* data : {"", "[]", R"({"quota_bytes":"x"})", R"({"tiers":["odd"]})", R"({"parent":1})"})
    EXPECT_FALSE(tenant_from({"tenant", "a", data}).has_value()) << data;
  for (const char* data : {"{", R"({"at":1,"bytes":[[1]]})", R"({"at":1,"bytes":[[1,"-4"]]})"})
    EXPECT_FALSE(use_from({"tenant_use", "a", data}).has_value()) << data;
}

TEST(Rows, MemoryThatIsHeldCountsUntilTheDaemonIsBack) {
  const core::Window hours{std::chrono::hours(1), 2};
  const std::int64_t hour = Duration(std::chrono::hours(1)).count();
  const StoredUse stored{{"vision", Time{hour / 2}, {{0, 5}}, {}}, {Bytes{10}, 0}};
  const core::TenantUse use = up_to(Time{hour + 7}, stored, hours);
  EXPECT_EQ(use.at, Time{hour + 7});
  EXPECT_EQ(use.bytes, (std::vector<std::pair<std::int64_t, core::Integral>>{{0, 5 + 10 * (hour / 2)}, {1, 70}}));
  EXPECT_TRUE(use.devices.empty());
  EXPECT_TRUE(up_to(Time{9 * hour}, {stored.use, {}}, hours).bytes.empty()) << "it has left the window";
  const StoredUse old{{"vision", Time{9 * hour}, {{7, 5}, {8, 6}, {9, 1}}, {}}, {}, std::chrono::hours(1)};
  using Slots = std::vector<std::pair<std::int64_t, core::Integral>>;
  EXPECT_EQ(up_to(Time{9 * hour}, old, {std::chrono::hours(2), 2}).bytes, (Slots{{3, 5}, {4, 7}})) << "longer slots";
  EXPECT_EQ(up_to(Time{9 * hour}, old, {std::chrono::minutes(30), 4}).bytes, (Slots{{16, 6}, {18, 1}})) << "shorter";
}

}  // namespace
}  // namespace sublet::tenants
