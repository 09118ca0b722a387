// SPDX-License-Identifier: Apache-2.0
#include "explain/nesting.h"

#include "core/testing/world.h"

namespace sublet::core::testing {
namespace {

TEST(Nesting, ARequestThatNeedsTheMemoryOfItsOwnLeaseWaitsForItself) {
  struct Row {
    const char* what;
    Bytes vram;
    int devices;
    std::vector<std::string> named;
    Bytes least;
    bool waits;
  };
  // Two cards of 24 GiB. The outer lease has 10 GiB of the first.
  const Row rows[] = {
      {"it fits beside it", 14 * GiB, 1, {uuid_of(0)}, {}, false},
      {"it does not fit beside it", 15 * GiB, 1, {uuid_of(0)}, {}, true},
      {"a smaller lease would do", 15 * GiB, 1, {uuid_of(0)}, 14 * GiB, false},
      {"the other card is there", 24 * GiB, 1, {}, {}, false},
      {"it needs both cards", 15 * GiB, 2, {}, {}, true},
      {"it fits on both cards", 14 * GiB, 2, {}, {}, false},
      {"one of the named cards is free", 24 * GiB, 1, {uuid_of(0), uuid_of(1)}, {}, false},
      {"it needs all named cards", 15 * GiB, 2, {uuid_of(0), uuid_of(1)}, {}, true},
  };
  for (const Row& row : rows) {
    World w;
    w.snapshot({gpu(0, 24 * GiB), gpu(1, 24 * GiB)});
    Lease first = wish(10 * GiB);
    first.wanted_devices = {uuid_of(0)};
    const LeaseId outer = w.submit(first, true);
    w.step(Claim{outer});
    Lease asked = wish(row.vram);
    asked.device_count = row.devices;
    asked.wanted_devices = row.named;
    asked.min_vram = row.least;
    EXPECT_EQ(explain::would_wait_for(w.state, w.rules, asked, w.at(outer)), row.waits) << row.what;
    w.step(Release{.lease = outer, .force = true});
    Lease ended = first;
    ended.state = LeaseState::ended;
    EXPECT_FALSE(explain::would_wait_for(w.state, w.rules, asked, ended)) << row.what;
  }
}

TEST(Nesting, ADeviceThatWasNeverReadMayHaveAnySize) {
  World w;
  EXPECT_FALSE(explain::would_wait_for(w.state, w.rules, wish(100 * GiB), Lease{.state = LeaseState::active}));
}

}  // namespace
}  // namespace sublet::core::testing
