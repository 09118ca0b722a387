// SPDX-License-Identifier: Apache-2.0
#include "cli/render_test.h"
#include "cli/tenant_file.h"
#include "config/schema.h"

#include <gtest/gtest.h>

namespace sublet::cli {
namespace {

using nlohmann::json;

TEST(TenantFile, StatesOnlyWhatTheFileHas) {
  const auto loaded = config::parse(
      "[[tenant]]\nname = \"a\"\nquota = \"1GiB\"\nweight = 2.5\ntiers = [\"batch\"]\n"
      "[[tenant]]\nname = \"b\"\nparent = \"a\"\nlongest_lease = \"2h\"\nlive_leases = 0\n",
      "f", config::tenant_schema());
  ASSERT_TRUE(loaded.problems.empty()) << config::to_string(loaded.problems.front());
  EXPECT_EQ(tenants_in(loaded), json::parse(R"([
    {"name": "a", "quota_bytes": 1073741824, "weight": 2.5, "tiers": ["batch"]},
    {"name": "b", "parent": "a", "longest_lease_seconds": 7200, "live_leases": 0}])"));
  const Error error = in_tenant_file({Code::BadRequest, "tenant b is odd", "", {{"entry", 1}}}, loaded);
  EXPECT_EQ(error.detail, "f:6: tenant b is odd");
  EXPECT_EQ(in_tenant_file({Code::Denied, "no", "", {}}, loaded).detail, "no");
}

TEST(TenantFields, AreReadFromWords) {
  EXPECT_EQ(tenant_fields({"quota=4GiB", "limit=", "tiers=batch,spot", "on_limit=refuse", "quota_devices=0.5"}).value(),
            json::parse(R"({"quota_bytes": 4294967296, "limit_bytes": null, "tiers": ["batch", "spot"],
                            "on_limit": "refuse", "quota_devices": 0.5})"));
  const struct {
    std::vector<std::string> words;
    const char* text;
  } cases[] = {
      {{"quota"}, "'quota' is not KEY=VALUE"},
      {{"wieght=2"}, "'wieght' is no key of a tenant – did you mean 'weight'?"},
      {{"name=b"}, "'name' is no key of a tenant"},
      {{"weight=1", "weight=2"}, "weight is given twice"},
      {{"weight=0"}, "weight: 0 is not between 0.001 and 1000000"},
      {{"on_limit=wait"}, "on_limit: wait is none of: queue, refuse"},
  };
  for (const auto& [words, text] : cases) {
    const auto fields = tenant_fields(words);
    ASSERT_FALSE(fields.has_value()) << text;
    EXPECT_EQ(fields.error().detail, text);
    EXPECT_FALSE(fields.error().hint.empty());
  }
}

TEST(RenderTenants, IndentsTheTree) {
  const json body = json::parse(R"({"tenants": [
    {"name": "lab", "parent": null, "entry": true, "quota_bytes": 2147483648, "quota_devices": null, "weight": 1,
     "held_bytes": 3221225472, "borrowed_bytes": 1073741824, "leases": 2, "waiting": 0, "used_byte_seconds": 3.9e12},
    {"name": "vision", "parent": "lab", "entry": true, "quota_devices": 0.5, "weight": 2.5, "held_bytes": 0,
     "held_devices": 0,
     "borrowed_bytes": 0, "leases": 0, "waiting": 1, "used_byte_seconds": 0}]})");
  EXPECT_EQ(render_tenants(body, Common{}, Look{}).value(),
            "TENANT          QUOTA  LIMIT  WEIGHT     HELD  BORROWED  LEASES  WAITING        USE\n"
            "lab           2.0 GiB      -       1  3.0 GiB   1.0 GiB       2        0  1.0 GiB·h\n"
            "  vision  0.5 devices      -     2.5      0 B         -       0        1  0.0 GiB·h\n");
  EXPECT_EQ(tenants_phrase(body),
            "tenants (held of quota): lab 3.0 GiB of 2.0 GiB (1.0 GiB borrowed), vision 0 of 0.5 devices");
  EXPECT_EQ(tenants_phrase(json()), "");
}

TEST(RenderTenant, DeclaresItsTurns) {
  const json body = json::parse(R"({"name": "vision", "entry": true, "weight": 1, "held_bytes": 0, "children": [],
    "rotations": [{"devices": ["GPU-1111"], "tier": "standard", "leases": 3, "slice_seconds": 90, "turns": 3,
                   "period_seconds": 270, "share": 0.333}]})");
  const std::string text = render_tenant(body, at_noon());
  EXPECT_NE(text.find("1 min 30 s of every 4 min 30 s on gpu0 (tier standard, 3 leases)\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace sublet::cli
