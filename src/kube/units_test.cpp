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

using Counts = std::map<std::string, std::int64_t>;

TEST(Units, AreChosenOnOneCardThatIsFullest) {
  const std::vector<Card> cards{card("A", 5), card("B", 2)};
  const UnitRules rules{512 * MiB, 1};
  std::vector<std::string> free = ids("A", 10);
  for (const std::string& id : ids("B", 4)) free.push_back(id);
  const auto choose = [&](const std::vector<std::string>& needed, std::int64_t count) {
    return choose_units(cards, rules, free, needed, count);
  };
  EXPECT_EQ(count_by_card(choose({}, 3)), (Counts{{"B", 3}}));
  EXPECT_EQ(count_by_card(choose({}, 5)), (Counts{{"A", 5}}));
  EXPECT_EQ(count_by_card(choose({unit_id("A", 1)}, 3)), (Counts{{"A", 3}}));
  const auto spread = choose({}, 12);
  EXPECT_EQ(count_by_card(spread), (Counts{{"A", 10}, {"B", 2}}));
  EXPECT_EQ(main_card(spread), "A");
  EXPECT_EQ(main_card({}), "");
  EXPECT_EQ(choose_units(cards, rules, {}, {}, 2).size(), 0U);
}

TEST(Units, AreChosenWhereNobodyHasToBePaused) {
  const std::vector<Card> cards{card("A", 4), card("B", 4)};
  const UnitRules twice{512 * MiB, 2};  // 16 units of each card, and memory for 8
  const auto choose = [&](std::int64_t left_on_a, std::int64_t left_on_b, std::int64_t count) {
    std::vector<std::string> free = ids("A", left_on_a);
    for (const std::string& id : ids("B", left_on_b)) free.push_back(id);
    return count_by_card(choose_units(cards, twice, free, {}, count));
  };
  EXPECT_EQ(choose(12, 16, 4), (Counts{{"A", 4}})) << "A has memory for 4 more";
  EXPECT_EQ(choose(12, 16, 5), (Counts{{"B", 5}}));
  EXPECT_EQ(choose(6, 4, 4), (Counts{{"A", 4}})) << "A is over-committed less";
  EXPECT_EQ(choose(2, 4, 4), (Counts{{"B", 4}}));
}

TEST(Units, OfInitContainersAreThoseOfTheOthersLater) {
  const auto init = ids("A", 6), app = ids("A", 2);
  EXPECT_EQ(need_of_units({app}, app, 0).count, 2);
  EXPECT_EQ(need_of_units({app}, init, 0).count, 6) << "an init container that starts";
  EXPECT_EQ(need_of_units({app}, app, 6).count, 6) << "by the object of the pod";
  EXPECT_EQ(need_of_units({}, init, 6).cards, std::vector<std::string>{"A"}) << "only an init container has units";
  EXPECT_EQ(need_of_units({app, ids("B", 5)}, app, 0).cards, (std::vector<std::string>{"A", "B"}));
  EXPECT_EQ(need_of_units({app, ids("A", 5)}, app, 3).count, 7);
  EXPECT_TRUE(need_of_units({}, {}, 0).cards.empty());
}

}  // namespace
}  // namespace sublet::kube
