// SPDX-License-Identifier: Apache-2.0
#include "stacks/room.h"

#include <gtest/gtest.h>

namespace sublet::stacks {
namespace {

Idle idle(std::string name, std::vector<std::string> devices, Bytes each, std::int64_t since, bool leaves = false) {
  return {std::move(name), std::move(devices), each, Time{since}, leaves};
}

TEST(Room, TheFewestAndOldestAreBroughtDown) {
  const std::map<std::string, Bytes> free{{"A", 2 * GiB}, {"B", 4 * GiB}};
  const std::vector<std::string> both{"A", "B"};
  const std::vector<Idle> some{idle("new", {"A"}, 8 * GiB, 3), idle("old", {"A"}, 4 * GiB, 1),
                               idle("other", {"B"}, 2 * GiB, 2), idle("wide", {"A", "B"}, 6 * GiB, 4)};
  const std::vector<Idle> leaving{idle("old", {"A"}, 4 * GiB, 1, true), idle("new", {"A"}, 8 * GiB, 3)};
  using Names = std::vector<std::string>;
  const struct {
    const char* name;
    Need need;
    std::vector<Idle> stacks;
    std::optional<Names> chosen;
  } rows[] = {
      {"enough is free", {4 * GiB, 1, both}, some, Names{}},
      {"enough is free on the named device", {2 * GiB, 1, {"A"}}, some, Names{}},
      {"the oldest", {5 * GiB, 1, {"A"}}, some, Names{"old"}},
      {"the oldest two", {7 * GiB, 1, {"A"}}, some, Names{"new", "old"}},
      {"the device with fewer",
       {6 * GiB, 1, both},
       {idle("old", {"A"}, GiB, 1), idle("new", {"A"}, 8 * GiB, 3), idle("other", {"B"}, 8 * GiB, 4)},
       Names{"other"}},
      {"both devices", {6 * GiB, 2, both}, some, Names{"old", "other"}},
      {"one on both devices counts once", {11 * GiB, 2, both}, some, Names{"new", "old", "other", "wide"}},
      {"too little", {30 * GiB, 1, both}, some, std::nullopt},
      {"one device of two", {12 * GiB, 2, both}, {idle("old", {"A"}, 24 * GiB, 1)}, std::nullopt},
      {"none", {6 * GiB, 1, both}, {}, std::nullopt},
      {"unknown device", {GiB, 1, {"C"}}, some, std::nullopt},
      {"one that leaves is enough", {6 * GiB, 1, {"A"}}, leaving, Names{}},
      {"one that leaves is too little", {7 * GiB, 1, {"A"}}, leaving, Names{"new"}},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    const auto chosen = choose_idle(row.need, free, row.stacks);
    EXPECT_EQ(chosen.has_value(), row.chosen.has_value());
    if (chosen && row.chosen) {
      EXPECT_EQ(*chosen, *row.chosen);
    }
  }
}

}  // namespace
}  // namespace sublet::stacks
