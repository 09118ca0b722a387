// SPDX-License-Identifier: Apache-2.0
#include "gpu/topology.h"

#include "gpu/snapshot.h"

#include <gtest/gtest.h>

namespace sublet::gpu {
namespace {

TEST(Topology, GroupsWhatIsLinkedOverAnyNumberOfPairs) {
  const struct {
    const char* name;
    Pairs pairs;
    std::vector<int> groups;
  } rows[] = {
      {"nothing is linked", {}, {-1, -1, -1, -1}},
      {"bridges", {{0, 1}, {1, 0}, {2, 3}}, {0, 0, 2, 2}},
      {"a ring", {{3, 2}, {2, 1}, {1, 3}}, {-1, 1, 1, 1}},
      {"a switch is no device", {{0, 4}, {3, 4}, {1, 5}}, {0, -1, -1, 0}},
      {"with itself", {{2, 2}}, {-1, -1, -1, -1}},
  };
  for (const auto& row : rows) EXPECT_EQ(groups_of(4, row.pairs), row.groups) << row.name;
  EXPECT_TRUE(groups_of(0, {}).empty());
}

TEST(Topology, TravelsWithTheSnapshot) {
  GpuSnapshot snapshot;
  for (int i = 0; i < 2; ++i) {
    GpuDevice& device = snapshot.devices.emplace_back();
    device.uuid = "GPU-" + std::to_string(i);
    device.index = i;
    device.links.group = {i == 0 ? -1 : 3, 0, 0};
  }
  const std::string line = encode_snapshot(1, snapshot);
  const auto reply = decode_snapshot(line);
  ASSERT_TRUE(reply) << reply.error().detail;
  EXPECT_EQ(reply->snapshot, snapshot);
  for (const char* wrong : {"[-2,0,0]", "[0,0]", "[0,0,0,0]", "[0,0,1024]", "[0,0,\"0\"]", "0"}) {
    std::string other = line;
    other.replace(other.find("[3,0,0]"), 7, wrong);
    EXPECT_FALSE(decode_snapshot(other)) << wrong;
  }
}

}  // namespace
}  // namespace sublet::gpu
