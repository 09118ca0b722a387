// SPDX-License-Identifier: Apache-2.0
#include "proc/ended_members.h"

#include <gtest/gtest.h>

namespace sublet::proc {
namespace {

constexpr LeaseId seven{7}, eight{8};

Ancestor ancestor(ProcessRef process, bool dead = false) {
  Ancestor made{.process = process};
  made.dead = dead;
  return made;
}

TEST(EndedMembers, AreRememberedWhileTheirLeasesLast) {
  EndedMembers ended;
  const Lineage before{{{{40, 10}, seven, Link::owner}, {{50, 20}, eight, Link::owner}}, {}};
  const Lineage now{{{{50, 20}, eight, Link::owner}}, {}};
  ended.note(before, now);
  EXPECT_EQ(ended.lease_of({40, 10}), seven);
  EXPECT_EQ(ended.lease_of({50, 20}), LeaseId{}) << "it lives";
  ended.note(now, {});
  EXPECT_EQ(ended.lease_of({50, 20}), eight);
  ended.forget_others([](LeaseId lease) { return lease == eight; });
  EXPECT_EQ(ended.lease_of({40, 10}), LeaseId{});
  EXPECT_EQ(ended.lease_of({50, 20}), eight);
}

TEST(EndedMembers, AreFoundByLooseStartTimes) {
  EndedMembers ended;
  ended.note({{{{40, 1000}, seven, Link::owner}}, {}}, {});
  const struct {
    ProcessRef process;
    LeaseId lease;
  } rows[] = {{{40, 1000}, seven}, {{40, 1299}, seven},     {{40, 701}, seven}, {{40, 1301}, LeaseId{}},
              {{40, 0}, seven},    {{41, 1000}, LeaseId{}}, {{0, 0}, LeaseId{}}};
  for (const auto& row : rows)
    EXPECT_EQ(ended.lease_of(row.process), row.lease) << row.process.pid << " " << row.process.start_ticks;
}

TEST(LeaseAbove, IsTheLeaseOfTheNearestProcess) {
  const Lineage lineage{{{{40, 10}, seven, Link::descendant}}, {}};
  EndedMembers ended;
  ended.note({{{{30, 9}, eight, Link::descendant}}, {}}, {});
  std::vector<LeaseRoots> roots(1);
  roots[0].lease = eight;
  roots[0].main = {20, 8};
  roots[0].keeper = {19, 7};
  roots[0].attached = {{18, 6}};
  const struct {
    const char* name;
    std::vector<Ancestor> above;
    LeaseId lease;
  } rows[] = {
      {"nobody", {}, LeaseId{}},
      {"a stranger", {ancestor({90, 5})}, LeaseId{}},
      {"a living member", {ancestor({90, 5}), ancestor({40, 10})}, seven},
      {"a living process that only looks alike", {ancestor({40, 11})}, LeaseId{}},
      {"a dead member", {ancestor({30, 9}, true)}, eight},
      {"a main process that has ended", {ancestor({20, 8}, true)}, eight},
      {"a keeper that has ended", {ancestor({19, 0}, true)}, eight},
      {"an attached process", {ancestor({18, 6})}, eight},
      {"two of them", {ancestor({30, 9}, true), ancestor({40, 10})}, eight},
  };
  for (const auto& row : rows) EXPECT_EQ(lease_above(row.above, lineage, ended, roots), row.lease) << row.name;
}

}  // namespace
}  // namespace sublet::proc
