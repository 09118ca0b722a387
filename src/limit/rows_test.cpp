// SPDX-License-Identifier: Apache-2.0
#include "limit/rows.h"

#include <gtest/gtest.h>

namespace sublet::limit {
namespace {

const std::string card = "GPU-01234567-89ab-cdef-0123-456789ABCDEF";

TEST(Rows, CreditsComeBackAsTheyWereStored) {
  const StoredCredit credit{{4711, 99}, LeaseId{7}, "boot", {{card, 20 * MiB}, {"GPU-2", 2 * MiB}}};
  const auto row = to_row(credit);
  EXPECT_EQ(row.key, "4711:99");
  const auto read = from_row(row);
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, credit);
}

TEST(Rows, AProcessWithoutCreditHasARowForAsLongAsItHasALease) {
  EXPECT_TRUE(from_row(to_row(StoredCredit{{4711, 99}, LeaseId{7}, "boot", {{card, {}}}})));
  EXPECT_EQ(to_row(StoredCredit{{4711, 99}, {}, "boot", {{card, 2 * MiB}}}).data, "");
}

TEST(Rows, OddRowsAreRefused) {
  const auto good = to_row(StoredCredit{{4711, 99}, LeaseId{7}, "boot", {{card, 20 * MiB}}});
  for (const std::string key : {"", "4711", "4711:", "-1:99", "0:99", "x:y", "4711:99:3"})
    EXPECT_FALSE(from_row({good.kind, key, good.data})) << key;
  for (const std::string data : {"", "x", "[]", "{}", R"({"lease":-1,"boot":"b","bytes":{}})",
                                 R"({"lease":7,"boot":1,"bytes":{}})", R"({"lease":7,"boot":"b","bytes":{"a":-1}})",
                                 R"({"lease":7,"boot":"b","bytes":{"a":"1"}})", R"({"lease":7,"boot":"b","bytes":[]})"})
    EXPECT_FALSE(from_row({good.kind, good.key, data})) << data;
}

TEST(Rows, SizesOfContextsComeBackAsTheyWereStored) {
  const StoredContext context{card, "570.86", 300 * MiB};
  const auto read = context_from_row(to_row(context));
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, context);
  for (const std::string data : {"", "x", "[]", "{}", R"({"driver":1,"bytes":1})", R"({"driver":"1","bytes":-1})"})
    EXPECT_FALSE(context_from_row({std::string(context_kind), card, data})) << data;
}

TEST(Rows, NamesOfDevicesAreTheBytesThatTheDriverTells) {
  const auto bytes = uuid_bytes(card);
  ASSERT_TRUE(bytes);
  const credit::Uuid expected{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef,
                              0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef};
  EXPECT_EQ(*bytes, expected);
  EXPECT_EQ(uuid_bytes("MIG" + card.substr(3)), bytes);
  for (const std::string& odd : {std::string(), card.substr(1), card + "0", card.substr(0, 39), "XPU" + card.substr(3),
                                 std::string("MIG-GPU-01234567-89ab-cdef-0123-456789abcdef/1/0"),
                                 std::string("GPU-0123456789ab-cdef-0123-456789abcdef0000"),
                                 std::string("GPU-0123456g-89ab-cdef-0123-456789abcdef")})
    EXPECT_FALSE(uuid_bytes(odd)) << odd;
}

}  // namespace
}  // namespace sublet::limit
