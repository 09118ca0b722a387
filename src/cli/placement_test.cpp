// SPDX-License-Identifier: Apache-2.0
#include "cli/placement.h"

#include <gtest/gtest.h>

namespace sublet::cli {
namespace {

using nlohmann::json;

const json status{{"devices",
                   {{{"id", "gpu0"}, {"index", 0}, {"uuid", "GPU-aaaa1111-2222"}},
                    {{"id", "gpu1"}, {"index", 1}, {"uuid", "GPU-aabb3333-4444"}}}}};

TEST(Placement, OneNamedDeviceIsRequested) {
  for (const char* wish : {"1", " 1 ", "1,-1,0", "GPU-aab", "GPU-aabb3333-4444", "1,GPU-aab"}) {
    const auto device = devices_of_wish(wish, 1, status);
    ASSERT_TRUE(device) << wish << ": " << device.error().detail;
    EXPECT_EQ(*device, "GPU-aabb3333-4444") << wish;
  }
}

TEST(Placement, AllDevicesAreNoRestriction) {
  for (const int count : {1, 2}) EXPECT_EQ(*devices_of_wish("1,0", count, status), "") << count;
}

TEST(Placement, OtherWishesAreRefused) {
  struct Case {
    const char* wish;
    int count;
    Code code;
    const char* says;
  };
  const Case cases[] = {
      {"", 1, Code::BadRequest, "no device"},
      {"-1", 1, Code::BadRequest, "CUDA_VISIBLE_DEVICES is '-1'"},
      {"NoDevFiles", 1, Code::BadRequest, "no device"},
      {"2", 1, Code::NotFound, "'2' names no device"},
      {"0,", 1, Code::NotFound, "'' names no device"},
      {"gpu1", 1, Code::NotFound, "'gpu1' names no device"},
      {"GPU", 1, Code::NotFound, "'GPU' names no device"},
      {"MIG-aaaa1111", 1, Code::NotFound, "'MIG-aaaa1111' names no device"},
      {"GPU-aa", 1, Code::BadRequest, "'GPU-aa' names 2 devices"},
      {"0", 2, Code::BadRequest, "fewer than --gpus 2"},
      {"0,1", 3, Code::BadRequest, "fewer than --gpus 3"},
  };
  for (const Case& c : cases) {
    const auto device = devices_of_wish(c.wish, c.count, status);
    ASSERT_FALSE(device) << c.wish << ": " << *device;
    EXPECT_EQ(device.error().code, c.code) << c.wish;
    EXPECT_NE(device.error().detail.find(c.says), std::string::npos) << device.error().detail;
    EXPECT_NE(device.error().hint, "") << c.wish;
  }
  EXPECT_EQ(devices_of_wish("7", 1, status).error().hint, "the devices are 0 (GPU-aaaa1111), 1 (GPU-aabb3333)");
}

TEST(Placement, SomeOfTheDevicesAreASet) {
  json more = status;
  more["devices"].push_back({{"index", 2}, {"uuid", "GPU-cccc"}});
  for (const int count : {1, 2})
    EXPECT_EQ(*devices_of_wish("2,GPU-aaaa1111,2", count, more), "GPU-cccc,GPU-aaaa1111-2222") << count;
  EXPECT_EQ(devices_of_wish("2,0", 3, more).error().code, Code::BadRequest);
  EXPECT_EQ(*devices_of_wish("2,1,0", 3, more), "");
}

TEST(Placement, WithoutKnownDevicesNamesArePassedOn) {
  const json none{{"devices", json::array()}};
  for (const char* wish : {"0", "GPU-aaaa1111", "0,1"}) EXPECT_EQ(*devices_of_wish(wish, 1, none), wish);
  EXPECT_EQ(devices_of_wish("gpu 1", 1, none).error().code, Code::Unavailable);
  EXPECT_EQ(devices_of_wish("0", 2, none).error().code, Code::Unavailable);
}

}  // namespace
}  // namespace sublet::cli
