// SPDX-License-Identifier: Apache-2.0
// The order of simultaneous requests changes the result of no lease but equals. SEED=n replays one run.
#include "core/testing/world.h"

#include <random>

namespace sublet::core::testing {
namespace {

// Requests of one instant, decided together because the device was unknown until all had come.
std::vector<std::string> granted_of(const std::vector<Lease>& batch) {
  World w;
  w.rules.placement = placement::Policy::best_fit;  // the usual requests are those of before, in their order
  for (const Lease& lease : batch) w.submit(lease);
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 16 * GiB)});
  std::vector<std::string> granted;
  for (const auto& [id, lease] : w.state.leases.by_id)
    if (lease.reserves()) granted.push_back(lease.consumer + " on " + lease.devices.front());
  std::sort(granted.begin(), granted.end());
  return granted;
}

TEST(Property, TheOrderOfSimultaneousRequestsChangesOnlyTies) {
  std::mt19937_64 random(number("SEED", 20261121));
  for (int round = 0; round < 200; ++round) {
    std::vector<Lease> batch, equals;
    for (int i = 0; i < 12; ++i) {
      Lease lease = wish(static_cast<std::int64_t>(1 + random() % 12) * GiB, "c" + std::to_string(i));
      lease.tier = static_cast<Tier>(random() % 3);
      lease.priority = i;
      batch.push_back(lease);
      lease.tier = Tier::standard, lease.priority = 0, lease.vram = 5 * GiB, lease.consumer = "same";
      equals.push_back(lease);
    }
    const auto granted = granted_of(batch), granted_equals = granted_of(equals);
    EXPECT_FALSE(granted.empty());
    std::shuffle(batch.begin(), batch.end(), random);
    EXPECT_EQ(granted_of(batch), granted);
    EXPECT_EQ(granted_of(equals), granted_equals);
  }
}

}  // namespace
}  // namespace sublet::core::testing
