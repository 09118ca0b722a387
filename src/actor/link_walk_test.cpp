// SPDX-License-Identifier: Apache-2.0
// Looks above many processes in one order: each process is read a few times at most. The process table is a test tree.
#include "actor/link_sources.h"
#include "base/clock.h"
#include "proc/test_support.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>

namespace sublet::actor {
namespace {

using Kind = proc::ProcessEvent::Kind;

struct CountedReports : EventSource {
  Reading read(std::vector<proc::ProcessEvent>& events) override {
    ++*readings;
    events = std::exchange(*waiting, {});
    return Reading::complete;
  }
  int* readings = nullptr;
  std::vector<proc::ProcessEvent>* waiting = nullptr;
};

// A chain of processes, the first below pid 1, and each with the same number of children beside the next of the chain.
struct WalkTest : ::testing::Test {
  static constexpr std::int32_t depth = 200, children = 5, top = 1000;

  WalkTest() {
    add(1, 0);
    for (std::int32_t level = 0; level < depth; ++level) {
      add(at(level), level == 0 ? 1 : at(level - 1));
      for (std::int32_t i = 1; i <= children; ++i) add(at(level) + i, at(level));
    }
    root.emplace(std::move(*proc::ProcRoot::open(dir.path())));
    links.emplace(*root, [this]() -> Result<std::unique_ptr<EventSource>> {
      auto made = std::make_unique<CountedReports>();
      made->readings = &readings;
      made->waiting = &waiting;
      return std::unique_ptr<EventSource>(std::move(made));
    });
    EXPECT_TRUE(links->listen().works);
    readings = 0;
  }
  static std::int32_t at(std::int32_t level) { return top + 10 * level; }
  static std::uint64_t start_of(std::int32_t pid) { return static_cast<std::uint64_t>(100 + pid); }
  void add(std::int32_t pid, std::int32_t parent) {
    dir.write(fmt::format("{}/stat", pid),
              fmt::format("{} (x) S {} 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {} 0 0\n", pid, parent, start_of(pid)));
    if (pid != 1) processes.push_back({pid, start_of(pid)});
  }
  LinkSources::Walk walk(std::int32_t wanted) {
    return {*links, [wanted](const proc::Ancestor& each) { return each.process.pid == wanted; }};
  }

  proc::TempDir dir;
  std::optional<proc::ProcRoot> root;
  std::optional<LinkSources> links;
  std::vector<ProcessRef> processes;  // parents before children
  std::vector<proc::ProcessEvent> waiting;
  int readings = 0;
};

TEST_F(WalkTest, ReadsNoProcessAgainAndAgain) {
  auto all = walk(0);
  for (const ProcessRef process : processes) EXPECT_FALSE(all.finds(process)) << process.pid;
  EXPECT_EQ(readings, 1) << "the reports are read once";
  EXPECT_LE(all.steps(), processes.size() + 1) << "one step for each process";
}

TEST_F(WalkTest, FindsExactlyTheProcessesBelow) {
  const std::int32_t wanted = at(50);
  auto all = walk(wanted);
  for (const ProcessRef process : processes) EXPECT_EQ(all.finds(process), process.pid >= wanted) << process.pid;
  EXPECT_LE(all.steps(), processes.size() + 1);
}

TEST_F(WalkTest, ConcludesNothingFromAWalkThatWasCutShort) {
  auto all = walk(at(0));
  EXPECT_FALSE(all.finds({at(depth - 1), start_of(at(depth - 1))})) << "so far up nobody looks";
  EXPECT_TRUE(all.finds({at(100), start_of(at(100))}));
  EXPECT_TRUE(all.finds({at(100) + 1, start_of(at(100) + 1)}));
}

// Many processes of one dead parent, whose end alone was reported, and whose own parents are dead too.
TEST_F(WalkTest, TakesDeadParentsOnce) {
  constexpr std::int32_t first_dead = 20, dead = 60;
  for (std::int32_t i = 0; i < dead; ++i)
    waiting.push_back({Kind::exit, first_dead + i, i + 1 < dead ? first_dead + i + 1 : at(0), 200'000'000'000, 0});
  std::vector<ProcessRef> orphans;
  for (std::int32_t i = 0; i < 300; ++i) {
    const std::int32_t pid = 5000 + i;
    add(pid, 1);
    orphans.push_back({pid, start_of(pid)});
    waiting.push_back(
        {Kind::fork, pid, first_dead, static_cast<std::int64_t>(start_of(pid)) * 10'000'000 - slept_ns(), 0});
  }
  auto all = walk(at(0));
  for (const ProcessRef process : orphans) EXPECT_TRUE(all.finds(process)) << process.pid;
  EXPECT_LE(all.steps(), 2 * orphans.size() + 2 * dead);
}

}  // namespace
}  // namespace sublet::actor
