// SPDX-License-Identifier: Apache-2.0
#include "store/plan_row.h"

#include <gtest/gtest.h>

namespace sublet::store {
namespace {

TEST(PlanRow, IsReadAsItWasWritten) {
  const core::PlanRecord record{.id = 7,
                                .cause = core::Cause::request,
                                .tier = core::Tier::interactive,
                                .beneficiaries = {LeaseId{3}, LeaseId{9}},
                                .devices = {"GPU-a", "GPU-b"},
                                .victims = {LeaseId{1}},
                                .asked = {LeaseId{2}}};
  const CapabilityRow row = row_of({record, false});
  EXPECT_EQ(plans_in({row}), std::vector{record});
  const CapabilityRow removed = row_of({record, true});
  EXPECT_EQ(removed.key, row.key);
  EXPECT_TRUE(removed.data.empty()) << "the row is removed";
}

TEST(PlanRow, ARowThatCannotBeReadIsSkipped) {
  const CapabilityRow good = row_of({{.id = 1, .beneficiaries = {LeaseId{3}}, .devices = {"GPU-a"}}, false});
  for (const std::string_view data : {"{", "[]", R"({"id":1})", R"({"id":"1"})"}) {
    CapabilityRow bad = good;
    bad.data = data;
    EXPECT_EQ(plans_in({bad, good}).size(), 1U) << data;
  }
  CapabilityRow nobody = row_of({{.id = 2, .devices = {"GPU-a"}}, false});
  EXPECT_TRUE(plans_in({nobody}).empty()) << "no lease waits";
  nobody.kind = "verdict";
  EXPECT_TRUE(plans_in({nobody}).empty());
}

}  // namespace
}  // namespace sublet::store
