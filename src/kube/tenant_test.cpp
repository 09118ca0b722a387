// SPDX-License-Identifier: Apache-2.0
#include "kube/tenant.h"

#include <gtest/gtest.h>

namespace sublet::kube {
namespace {

using nlohmann::json;

json space(const json& labels) { return {{"metadata", {{"name", "vision"}, {"labels", labels}}}}; }

std::string refusal(const json& labels) {
  const auto parsed = parse_space(space(labels));
  return parsed ? "" : parsed.error().detail;
}

TEST(Tenant, HasTheLabelsOfItsNamespace) {
  const auto labels = parse_space(space({{"sublet.dev/quota", "8Gi"},
                                         {"sublet.dev/limit", "9G"},
                                         {"sublet.dev/weight", "1.5"},
                                         {"sublet.dev/tier", "batch"},
                                         {"kubernetes.io/metadata.name", "vision"}}));
  ASSERT_TRUE(labels);
  EXPECT_EQ(labels->fields, json({{"quota_bytes", 8 * GiB.count}, {"limit_bytes", 9'000'000'000}, {"weight", 1.5}}));
  EXPECT_EQ(labels->tier, "batch");
  EXPECT_TRUE(parse_space(space({}))->fields.empty());
  EXPECT_TRUE(parse_space(json())->fields.empty());
  EXPECT_TRUE(parse_space(space("none"))->fields.empty());
}

TEST(Tenant, RefusesLabelsThatDoNotExist) {
  EXPECT_NE(refusal({{"sublet.dev/wait", "2"}}).find("sublet.dev/wait, which is unknown"), std::string::npos);
  EXPECT_NE(refusal({{"sublet.dev/weigth", "2"}}).find("did you mean 'weight'"), std::string::npos);
  for (const char* value : {"", "much", "-1", "0", "nan", "inf", "2x", "1e9"})
    EXPECT_NE(refusal({{"sublet.dev/weight", value}}), "") << value;
  for (const char* value : {"", "much", "-1Gi", "nan", "8", "1023Ki"})
    EXPECT_NE(refusal({{"sublet.dev/quota", value}}), "") << value;
  for (const char* value : {"0", "1Mi"}) EXPECT_EQ(refusal({{"sublet.dev/limit", value}}), "") << value;
  EXPECT_NE(refusal({{"sublet.dev/limit", 7}}), "");
  EXPECT_NE(refusal({{"sublet.dev/tier", "urgent"}}), "");
}

TEST(Tenant, IsToldOfDifferencesAndOfLabelsThatWentAway) {
  const json entry{{"name", "vision"}, {"quota_bytes", 5}, {"weight", 2.0}, {"limit_bytes", nullptr}};
  EXPECT_EQ(tenant_change({{"quota_bytes", 5}, {"weight", 2}}, nullptr, entry), json::object());
  EXPECT_EQ(tenant_change({{"quota_bytes", 6}}, {{"quota_bytes", 5}, {"weight", 2}}, entry),
            json({{"quota_bytes", 6}, {"weight", nullptr}}));
  EXPECT_EQ(tenant_change({{"limit_bytes", 7}}, nullptr, entry), json({{"limit_bytes", 7}}));
  EXPECT_EQ(tenant_change({{"weight", 1.0}}, nullptr, json::object()), json({{"weight", 1.0}}));
  EXPECT_EQ(tenant_change(json::object(), nullptr, entry), json::object());
}

}  // namespace
}  // namespace sublet::kube
