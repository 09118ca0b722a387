// SPDX-License-Identifier: Apache-2.0
#include "state/queue_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace sublet::core {
namespace {

struct Waiter {
  QueueKey key;
  Bytes bytes;
  Time queued_at;
};

// The tree, and a sorted list that must give the same answers.
struct Both {
  QueueTree tree;
  std::vector<Waiter> list;

  void insert(const Waiter& waiter) {
    tree.insert(waiter.key, waiter.bytes, waiter.queued_at);
    list.insert(place(waiter.key), waiter);
  }
  void erase(std::size_t index) {
    tree.erase(list[index].key);
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(index));
  }
  std::vector<Waiter>::iterator place(const QueueKey& key) {
    return std::partition_point(list.begin(), list.end(), [&](const Waiter& w) { return w.key.before(key); });
  }
  template <typename Wanted>
  std::vector<QueueKey> wanted(std::size_t limit, const Wanted& wanted) const {
    std::vector<QueueKey> keys;
    for (const Waiter& waiter : list)
      if (keys.size() < limit && wanted(waiter)) keys.push_back(waiter.key);
    return keys;
  }
};

std::vector<QueueKey> one(const QueueKey* key) { return key == nullptr ? std::vector<QueueKey>{} : std::vector{*key}; }

void expect_same(const Both& both, Bytes room, Time then, std::size_t limit) {
  const auto fits = [room](const Waiter& w) { return w.bytes <= room; };
  const auto large = [room](const Waiter& w) { return w.bytes > room; };
  const auto old = [then](const Waiter& w) { return w.queued_at <= then; };
  ASSERT_EQ(both.tree.size(), both.list.size());
  ASSERT_EQ(one(both.tree.first_within(room)), both.wanted(1, fits));
  ASSERT_EQ(one(both.tree.first_above(room)), both.wanted(1, large));
  const QueueKey mark{
      .tier = Tier::critical, .points = 77, .since = 77, .lease = {77}};  // what was there before stays in front
  std::vector<QueueKey> within{mark}, queued_by{mark}, first{mark};
  both.tree.within(room, limit, within);
  both.tree.queued_by(then, limit, queued_by);
  both.tree.first(limit, first);
  const auto rest = [](const std::vector<QueueKey>& keys) { return std::vector(keys.begin() + 1, keys.end()); };
  ASSERT_EQ(rest(within), both.wanted(limit, fits));
  ASSERT_EQ(rest(queued_by), both.wanted(limit, old));
  ASSERT_EQ(rest(first), both.wanted(limit, [](const Waiter&) { return true; }));
}

class QueueTrees : public ::testing::Test {
 protected:
  std::size_t below(std::size_t n) { return random_() % n; }
  Waiter somebody() {
    const auto number = static_cast<std::int64_t>(below(1'000'000));
    return {{.limited = below(3) == 0,
             .guaranteed = below(3) == 0,
             .tier = static_cast<Tier>(below(5)),
             .share = below(3),
             .fixed = below(2) == 0,
             .points = static_cast<int>(below(3)),
             .since = number,
             .lease = {++last_}},
            {static_cast<std::int64_t>(1 + below(1000))},
            {static_cast<std::int64_t>(below(1'000'000))}};
  }
  void ask(const Both& both) {
    expect_same(both, {static_cast<std::int64_t>(below(1100))}, {static_cast<std::int64_t>(below(1'000'000))},
                below(40));
    const QueueKey key = somebody().key;
    const auto before = std::count_if(both.list.begin(), both.list.end(), [&](auto& w) { return w.key.before(key); });
    ASSERT_EQ(both.tree.before(key), static_cast<std::size_t>(before));
  }

 private:
  std::mt19937_64 random_{11};
  std::uint64_t last_ = 0;
};

// Full enough for blocks above blocks above blocks, and back to nobody; again, in what is left of the blocks.
TEST_F(QueueTrees, AnswerLikeASortedListWhileTheyGrowAndShrink) {
  Both both;
  for (int time = 0; time < 2; ++time) {
    for (std::size_t most : {40U, 4000U}) {
      while (both.list.size() < most) {
        if (both.list.empty() || below(4) != 0) both.insert(somebody());
        else both.erase(below(both.list.size()));
        if (below(16) == 0) ask(both);
        if (HasFatalFailure()) return;
      }
      while (!both.list.empty()) {
        if (below(4) != 0) both.erase(below(both.list.size()));
        else both.insert(somebody());
        if (below(16) == 0) ask(both);
        if (HasFatalFailure()) return;
      }
      ask(both);
    }
  }
}

// Always the first leaves and somebody comes last, so that blocks are emptied at one end and split at the other.
TEST_F(QueueTrees, AnswerLikeASortedListWhileTheyAreServed) {
  Both both;
  for (std::int64_t i = 0; i < 12'000; ++i) {
    Waiter last = somebody();
    last.key.tier = Tier::standard;
    last.key.points = 0;
    last.key.since = i;
    both.insert(last);
    if (i >= 2000) both.erase(0);
    if (i % 32 == 0) ask(both);
    if (HasFatalFailure()) return;
  }
  while (both.list.size() > 1) both.erase(both.list.size() - 1);
  ask(both);
}

}  // namespace
}  // namespace sublet::core
