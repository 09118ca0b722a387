// SPDX-License-Identifier: Apache-2.0
#include "kube/units.h"

#include <gtest/gtest.h>

namespace sublet::kube {
namespace {

Card card(const std::string& uuid, std::int64_t gib) {
  return {.id = "gpu0", .uuid = uuid, .name = "card", .index = 0, .capacity = gib * GiB};
}

std::vector<std::string> ids(const std::string& uuid, std::int64_t count) {
  std::vector<std::string> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(unit_id(uuid, i));
  return all;
}

TEST(Units, OfACardFollowSizeAndFactor) {
  EXPECT_EQ(resource_name(512 * MiB), "sublet.dev/vram-512mi");
  EXPECT_EQ(units_of(card("A", 24), {512 * MiB, 1}), 48);
  EXPECT_EQ(units_of(card("A", 24), {512 * MiB, 2.5}), 120);
  EXPECT_EQ(units_of(card("A", 1), {700 * MiB, 1}), 1);
  EXPECT_EQ(card_of_unit(unit_id("GPU-1::2", 7)), "GPU-1::2");
  for (const char* other : {"", "::3", "GPU-1", "GPU-1::", "GPU-1::x"}) EXPECT_FALSE(card_of_unit(other)) << other;
}

TEST(Units, TooSmallOnesAreRefusedWithASizeThatFits) {
  std::vector<Card> cards(8, card("GPU-00000000-0000-0000-0000-000000000000", 141));
  EXPECT_TRUE(check_list_size(cards, {512 * MiB, 2}));
  const auto refused = check_list_size(cards, {4 * MiB, 1});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().detail.find("288768 units"), std::string::npos) << refused.error().detail;
  EXPECT_EQ(refused.error().hint, "choose --unit 32Mi or larger");
  EXPECT_TRUE(check_list_size(cards, {32 * MiB, 1}));
}

TEST(Units, AreChosenOnOneCardThatIsFullest) {
  std::vector<std::string> free = ids("A", 10);
  for (const std::string& id : ids("B", 4)) free.push_back(id);
  EXPECT_EQ(count_by_card(choose_units(free, {}, 3)), (std::map<std::string, std::int64_t>{{"B", 3}}));
  EXPECT_EQ(count_by_card(choose_units(free, {}, 5)), (std::map<std::string, std::int64_t>{{"A", 5}}));
  EXPECT_EQ(count_by_card(choose_units(free, {unit_id("A", 1)}, 3)), (std::map<std::string, std::int64_t>{{"A", 3}}));
  const auto spread = choose_units(free, {}, 12);
  EXPECT_EQ(count_by_card(spread), (std::map<std::string, std::int64_t>{{"A", 10}, {"B", 2}}));
  EXPECT_EQ(main_card(spread), "A");
  EXPECT_EQ(main_card({}), "");
  EXPECT_EQ(choose_units({}, {}, 2).size(), 0U);
}

}  // namespace
}  // namespace sublet::kube
