// SPDX-License-Identifier: Apache-2.0
#include "proc/lineage.h"

#include "proc/lease_group.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace sublet::proc {
namespace {

// A process: pid, parent, start ticks (default: the pid), group, session, uid.
struct P {
  std::int32_t pid;
  std::int32_t ppid;
  std::uint64_t start = 0;
  std::int32_t pgrp = 1;
  std::int32_t session = 1;
  std::uint32_t uid = 1000;
  char state = 'S';
};

std::vector<ProcessInfo> table(std::initializer_list<P> processes) {
  std::vector<ProcessInfo> out;
  for (const P& p : processes) {
    out.push_back({{p.pid, p.start == 0 ? static_cast<std::uint64_t>(p.pid) : p.start},
                   p.ppid,
                   p.pgrp,
                   p.session,
                   p.uid,
                   p.state,
                   1,
                   "x"});
  }
  return out;
}

ProcessRef ref(std::int32_t pid, std::uint64_t start = 0) {
  return {pid, start == 0 ? static_cast<std::uint64_t>(pid) : start};
}

std::string show(const Lineage& lineage) {
  std::string text;
  for (const Member& m : lineage.members) {
    text += fmt::format("{}{}:{}={}", text.empty() ? "" : " ", m.process.pid, m.lease.number, to_string(m.link));
  }
  return text;
}

LeaseRoots lease(std::uint64_t id, std::int32_t main, std::int32_t keeper = 0) {
  LeaseRoots roots;
  roots.lease = {id};
  roots.main = main == 0 ? ProcessRef{} : ref(main);
  roots.keeper = keeper == 0 ? ProcessRef{} : ref(keeper);
  return roots;
}

TEST(Lineage, TheOwnGroupIsAsGoodAsDescent) {
  LeaseRoots outer = lease(7, 100), inner = lease(8, 200);
  outer.in_own_group = {ref(100), ref(300), ref(200), ref(201), ref(400)};
  // Process 300 is an orphan without a link back. Processes 200 and 201 belong to a nested lease, which is nearer. 400
  // is dead. 500 descends from a process that the group brought in.
  const std::vector<LeaseRoots> roots{outer, inner};
  const auto now =
      table({{1, 0}, {100, 1}, {200, 100}, {201, 200}, {300, 1}, {400, 1, 0, 1, 1, 1000, 'Z'}, {500, 300}});
  const Lineage traced = trace_lineage(roots, {}, now);
  EXPECT_EQ(show(traced), "100:7=owner 200:8=owner 201:8=descendant 300:7=descendant 500:7=descendant");
}

TEST(Lineage, TheOwnGroupMakesAWeakLinkStrong) {
  LeaseRoots roots = lease(7, 100);
  roots.attached = {ref(300)};
  const auto now = table({{1, 0}, {100, 1}, {300, 1}});
  EXPECT_EQ(show(trace_lineage(std::span(&roots, 1), {}, now)), "100:7=owner 300:7=attached");
  roots.in_own_group = {ref(300)};
  const Lineage strong = trace_lineage(std::span(&roots, 1), {}, now);
  EXPECT_EQ(show(strong), "100:7=owner 300:7=descendant");
  // In another lease's group a process keeps the lease that names it.
  LeaseRoots other = lease(8, 0);
  other.in_own_group = {ref(300)};
  roots.in_own_group.clear();
  const std::vector<LeaseRoots> both{roots, other};
  EXPECT_EQ(show(trace_lineage(both, {}, now)), "100:7=owner 300:7=attached");
}

TEST(LeaseGroup, TheInnermostOfTheNameCounts) {
  EXPECT_EQ(lease_of_group("/user.slice/session-3.scope/sublet/lease-7", "sublet"), LeaseId{7});
  EXPECT_EQ(lease_of_group("/sublet/lease-7/its-own/below", "sublet"), LeaseId{7});
  EXPECT_EQ(lease_of_group("/sublet/lease-7/sublet/lease-8", "sublet"), LeaseId{8});
  EXPECT_EQ(lease_of_group("/sublet/lease-7/sublet-x/lease-8", "sublet"), LeaseId{7});
  for (const char* none : {"/", "", "/sublet", "/sublet/lease-", "/sublet/lease-x", "/xsublet/lease-7", "/lease-7"}) {
    EXPECT_EQ(lease_of_group(none, "sublet"), LeaseId{}) << none;
  }
}

TEST(Lineage, TakesTheWholeTreeBelowTheOwner) {
  const std::vector roots{lease(1, 10, 9)};
  const auto result = trace_lineage(roots, {}, table({{1, 0}, {9, 1}, {10, 9}, {11, 10}, {12, 11}, {20, 1}, {21, 20}}));
  EXPECT_EQ(show(result), "10:1=owner 11:1=descendant 12:1=descendant");
  EXPECT_EQ(result.find(ref(9)), nullptr) << "the keeper is not a member";
  EXPECT_NE(result.find(ref(12)), nullptr);
  EXPECT_EQ(result.find(ref(12, 99)), nullptr) << "the same pid started at another time is another process";
}

TEST(Lineage, OrderOfTheTableDoesNotMatter) {
  const std::vector roots{lease(1, 10, 9), lease(2, 30, 29)};
  auto processes =
      table({{1, 0}, {9, 1}, {10, 9}, {11, 10}, {12, 11}, {13, 12}, {29, 13}, {30, 29}, {31, 30}, {40, 1}});
  const auto expected = trace_lineage(roots, {}, processes);
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::shuffle(processes.begin(), processes.end(), random);
    EXPECT_EQ(show(trace_lineage(roots, {}, processes)), show(expected));
  }
}

TEST(Lineage, OrphansFallToTheKeeper) {
  // Process 10 forked 11 and ended. The keeper is the child subreaper, so 11 is below the keeper, and no pass has seen
  // it before.
  const std::vector roots{lease(1, 10, 9)};
  EXPECT_EQ(show(trace_lineage(roots, {}, table({{1, 0}, {9, 1}, {11, 9}, {12, 11}}))),
            "11:1=descendant 12:1=descendant");
}

TEST(Lineage, MembersStayWhenKeeperAndOwnerAreGone) {
  const std::vector roots{lease(1, 10, 9)};
  const auto before = trace_lineage(roots, {}, table({{1, 0}, {9, 1}, {10, 9}, {11, 10}, {12, 11}}));
  const auto after = trace_lineage(roots, before, table({{1, 0}, {12, 1}, {13, 12}}));
  EXPECT_EQ(show(after), "12:1=descendant 13:1=descendant");
}

TEST(Lineage, DoubleForkIsFollowed) {
  // Process 10 forks 11. 11 calls setsid, forks 12 and exits. 12 is below the keeper, in the session 11.
  const std::vector roots{lease(1, 10, 9)};
  const auto first = trace_lineage(roots, {}, table({{1, 0}, {9, 1}, {10, 9}, {11, 10, 0, 11, 11}}));
  const auto second = trace_lineage(roots, first, table({{1, 0}, {9, 1}, {10, 9}, {12, 9, 0, 11, 11}}));
  EXPECT_EQ(show(second), "10:1=owner 12:1=descendant");
  // The same with a killed keeper. No pass has seen 12 below it, but the session links 12.
  const auto orphaned = trace_lineage(roots, first, table({{1, 0}, {10, 1}, {12, 1, 0, 11, 11}, {13, 12, 0, 13, 13}}));
  EXPECT_EQ(show(orphaned), "10:1=owner 12:1=session 13:1=session") << "what descends from a weak link is as weak";
  // The link stays when 12 leaves the session.
  const auto later = trace_lineage(roots, orphaned, table({{1, 0}, {12, 1, 0, 12, 12}}));
  EXPECT_EQ(show(later), "12:1=session");
}

TEST(Lineage, ProcessGroupBringsInWhatTheTableNeverShowed) {
  const std::vector roots{lease(1, 10, 9)};
  const auto first = trace_lineage(roots, {}, table({{1, 0}, {9, 1}, {10, 9, 0, 10, 5}}));
  const auto second = trace_lineage(roots, first, table({{1, 0}, {14, 1, 0, 10, 5}, {15, 1, 0, 15, 5}}));
  EXPECT_EQ(show(second), "14:1=group") << "the shell's session is not the program's";
}

TEST(Lineage, GroupsOfOtherUsersAndOlderProcessesAreNotJoined) {
  EXPECT_EQ(show(trace_lineage(std::vector{lease(1, 10)}, {}, table({{1, 0}, {10, 1, 50, 10, 10}}))), "")
      << "10 started at another tick: it is not the owner";
  const std::vector right{[] {
    auto r = lease(1, 10, 9);
    r.main = ref(10, 50);
    return r;
  }()};
  const auto known = trace_lineage(right, {}, table({{1, 0}, {9, 1}, {10, 9, 50, 10, 10}}));
  EXPECT_EQ(show(known), "10:1=owner");
  const auto next = trace_lineage(
      right, known, table({{1, 0}, {60, 1, 60, 10, 10, 1000}, {61, 1, 61, 10, 10, 2000}, {62, 1, 40, 10, 10, 1000}}));
  EXPECT_EQ(show(next), "60:1=session");
}

TEST(Lineage, RecycledPidsAreStrangers) {
  const std::vector roots{lease(1, 10, 9)};
  const auto before = trace_lineage(roots, {}, table({{1, 0}, {9, 1}, {10, 9}, {11, 10, 11, 11, 11}}));
  EXPECT_EQ(show(before), "10:1=owner 11:1=descendant");
  // Other processes have all four pids now. The former member's pid leads a session and has a child in it.
  const auto after = trace_lineage(
      roots, before, table({{1, 0}, {9, 1, 900}, {10, 9, 901}, {11, 1, 902, 11, 11}, {12, 11, 903, 11, 11}}));
  EXPECT_EQ(show(after), "");
  EXPECT_TRUE(after.groups.empty());
}

TEST(Lineage, ParentYoungerThanItsChildIsNoParent) {
  // Process 10 died while the table was read, and a new process got its pid. So 11 (start 11) cannot be its child.
  const std::vector roots{[] {
    auto r = lease(1, 10, 0);
    r.main = ref(10, 500);
    return r;
  }()};
  EXPECT_EQ(show(trace_lineage(roots, {}, table({{1, 0}, {10, 1, 500}, {11, 10, 11}, {12, 10, 501}}))),
            "10:1=owner 12:1=descendant");
}

TEST(Lineage, NearestLeaseCountsWhereLeasesAreNested) {
  const std::vector roots{lease(1, 10, 9), lease(2, 20, 19)};
  const auto first =
      trace_lineage(roots, {}, table({{1, 0}, {9, 1}, {10, 9}, {11, 10}, {19, 11}, {20, 19}, {21, 20}, {22, 19}}));
  EXPECT_EQ(show(first), "10:1=owner 11:1=descendant 19:1=descendant 20:2=owner 21:2=descendant 22:2=descendant");
  // The inner keeper dies. Its orphan falls to the outer keeper and still belongs to the inner lease.
  const auto second = trace_lineage(roots, first, table({{1, 0}, {9, 1}, {10, 9}, {21, 9}, {23, 21}, {24, 9}}));
  EXPECT_EQ(show(second), "10:1=owner 21:2=descendant 23:2=descendant 24:1=descendant");
}

TEST(Lineage, AttachedProcessesBringTheirTree) {
  auto roots = lease(1, 10, 9);
  roots.attached = {ref(30), ref(40, 4000), ref(10)};
  auto other = lease(2, 50, 49);
  other.attached = {ref(10)};  // the main process of a lease cannot be taken from its lease
  const std::vector both{roots, other};
  EXPECT_EQ(show(trace_lineage(both, {}, table({{1, 0}, {9, 1}, {10, 9}, {30, 1}, {31, 30}, {40, 1}, {41, 40}}))),
            "10:1=owner 30:1=attached 31:1=attached")
      << "40 started at another tick than the one attached";
}

TEST(Lineage, CgroupsBringTheirProcesses) {
  auto roots = lease(1, 0);
  roots.in_cgroups = {30, 31, 32, 99};
  // Child 33 of 31 was moved out of the group, and is a member as a descendant.
  EXPECT_EQ(show(trace_lineage(std::vector{roots}, {}, table({{1, 0}, {30, 1}, {31, 30}, {32, 1}, {33, 31}, {34, 1}}))),
            "30:1=cgroup 31:1=cgroup 32:1=cgroup 33:1=cgroup");
}

TEST(Lineage, CgroupEnteredBelowAnotherLeaseIsNearer) {
  auto outer = lease(1, 10, 9);
  auto inner = lease(2, 0);
  inner.in_cgroups = {12, 13};  // a container that 10's program started without an engine
  EXPECT_EQ(show(trace_lineage(std::vector{outer, inner}, {},
                               table({{1, 0}, {9, 1}, {10, 9}, {11, 10}, {12, 11}, {13, 12}}))),
            "10:1=owner 11:1=descendant 12:2=cgroup 13:2=cgroup");
  // A lease is nested inside another lease's cgroup: the nearer owner wins.
  outer.in_cgroups = {9, 10, 19, 20, 21};
  EXPECT_EQ(show(trace_lineage(std::vector{outer, lease(2, 20, 19)}, {},
                               table({{1, 0}, {9, 1}, {10, 9}, {19, 10}, {20, 19}, {21, 20}}))),
            "9:1=cgroup 10:1=owner 19:1=descendant 20:2=owner 21:2=descendant");
}

TEST(Lineage, TheDeadAreNoMembers) {
  const std::vector roots{lease(1, 10, 9)};
  EXPECT_EQ(show(trace_lineage(roots, {}, table({{1, 0}, {9, 1}, {10, 9, 0, 1, 1, 1000, 'Z'}, {11, 9}}))),
            "11:1=descendant");
}

TEST(Lineage, EndedLeasesAreForgotten) {
  const auto processes = table({{1, 0}, {9, 1}, {10, 9, 0, 10, 10}, {11, 10, 0, 10, 10}});
  const auto before = trace_lineage(std::vector{lease(1, 10, 9)}, {}, processes);
  EXPECT_EQ(show(before), "10:1=owner 11:1=descendant");
  const auto after = trace_lineage(std::vector<LeaseRoots>{}, before, processes);
  EXPECT_EQ(show(after), "");
  EXPECT_TRUE(after.groups.empty());
}

TEST(Lineage, DetachedKeepersSessionIsItsPrograms) {
  const std::vector roots{lease(1, 10, 9)};
  const auto first = trace_lineage(roots, {}, table({{1, 0}, {9, 1, 0, 9, 9}, {10, 9, 0, 9, 9}}));
  const auto second = trace_lineage(roots, first, table({{1, 0}, {12, 1, 0, 9, 9}}));
  EXPECT_EQ(show(second), "12:1=session");
}

TEST(Lineage, CirclesInATornTableEnd) {
  const std::vector roots{lease(1, 10, 9)};
  EXPECT_EQ(show(trace_lineage(roots, {}, table({{20, 21, 5}, {21, 22, 5}, {22, 20, 5}, {23, 23, 5}, {24, 22, 6}}))),
            "");
}

// Compares random histories with a model that knows the truth. A history has forks, exits (the kernel moves orphans to
// the nearest living keeper) and reused pids. No foreign process is ever a member by a sure link. A process that a pass
// saw below the owner stays a member until it ends.
TEST(Lineage, RandomHistoriesKeepTheTruth) {
  for (unsigned seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    struct Truth {
      ProcessInfo info;
      std::uint64_t lease;
      bool seen;
    };
    std::map<std::int32_t, Truth> living;
    std::uint64_t tick = 10;
    const auto add = [&](std::int32_t pid, std::int32_t ppid, std::uint64_t owner) {
      ProcessInfo info{{pid, ++tick}, ppid, 1, 1, 1000, 'S', 1, "x"};
      living[pid] = {info, owner, false};
    };
    add(1, 0, 0);
    std::vector<LeaseRoots> roots;
    for (std::uint64_t id = 1; id <= 3; ++id) {
      const auto keeper = static_cast<std::int32_t>(id * 2);
      add(keeper, 1, 0);
      add(keeper + 1, keeper, id);
      LeaseRoots r;
      r.lease = {id};
      r.keeper = living[keeper].info.ref;
      r.main = living[keeper + 1].info.ref;
      roots.push_back(r);
    }
    add(30, 1, 0);
    Lineage lineage;
    for (int step = 0; step < 200; ++step) {
      auto at = std::next(living.begin(), static_cast<long>(random() % living.size()));
      const auto pid = at->first;
      const auto choice = random() % 10;
      if (choice < 6) {
        const auto child = static_cast<std::int32_t>(2 + random() % 40);
        const bool is_keeper = pid == roots[0].keeper.pid || pid == roots[1].keeper.pid || pid == roots[2].keeper.pid;
        if (!living.contains(child) && !(is_keeper && at->second.lease == 0 && pid < 7))
          add(child, pid, at->second.lease);
      } else if (choice < 8 && pid != 1 && living.size() > 4) {
        std::int32_t heir = 1;
        for (auto up = at->second.info.ppid; up > 1 && living.contains(up); up = living[up].info.ppid) {
          for (const auto& r : roots) {
            if (living[up].info.ref == r.keeper && heir == 1) heir = up;
          }
        }
        living.erase(at);
        for (auto& [other, truth] : living) {
          if (truth.info.ppid == pid) truth.info.ppid = heir;
        }
      } else {
        std::vector<ProcessInfo> now;
        for (const auto& [number, truth] : living) now.push_back(truth.info);
        std::shuffle(now.begin(), now.end(), random);
        lineage = trace_lineage(roots, lineage, now);
        for (const Member& member : lineage.members) {
          const Truth& truth = living.at(member.process.pid);
          ASSERT_EQ(truth.lease, member.lease.number)
              << "seed " << seed << " step " << step << " pid " << member.process.pid;
        }
        for (auto& [number, truth] : living) {
          const Member* member = lineage.find(truth.info.ref);
          if (truth.seen) {
            ASSERT_NE(member, nullptr) << "seed " << seed << " step " << step << " pid " << number;
          }
          truth.seen = truth.seen || member != nullptr;
        }
      }
    }
  }
}

}  // namespace
}  // namespace sublet::proc
