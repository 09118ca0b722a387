// SPDX-License-Identifier: Apache-2.0
#include "state/queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace sublet::core {
namespace {

constexpr std::int64_t second = 1'000'000'000;

Lease waiter(std::uint64_t id, int priority, std::int64_t at_ns, Bytes vram = GiB,
             std::vector<std::string> devices = {}) {
  Lease lease;
  lease.id = {id};
  lease.priority = priority;
  lease.queued_at = {1'800'000'000 * second + at_ns};
  lease.vram = vram;
  lease.wanted_devices = std::move(devices);
  return lease;
}

TEST(QueueOrder, IsByTierThenByPriorityAndWaiting) {
  Lease late = waiter(2, -100, 100 * second);
  late.tier = Tier::interactive;
  const struct {
    const char* name;
    Lease first, second;
    double aging;
  } rows[] = {
      {"tier comes before everything", late, waiter(1, 100, 0), 1},
      {"a minute of waiting is worth one point", waiter(1, 0, 0), waiter(2, 1, 61 * second), 1},
      {"less than a minute is not", waiter(2, 1, 59 * second), waiter(1, 0, 0), 1},
      {"of equals the older lease", waiter(1, 0, 0), waiter(2, 1, 60 * second), 1},
      {"without ageing priority is never caught up", waiter(2, 1, 1'000'000 * second), waiter(1, 0, 0), 0},
      {"without ageing the older lease of equals", waiter(1, 5, 0), waiter(2, 5, 1), 0},
  };
  for (const auto& row : rows)
    EXPECT_TRUE(queue_key(row.first, row.aging).before(queue_key(row.second, row.aging))) << row.name;
}

TEST(QueueOrder, ExtremeSettingsStayOrdered) {
  for (const double aging : {1e-30, 1e-9, 1e9, 1e30, -1.0}) {
    EXPECT_TRUE(queue_key(waiter(1, 0, 0), aging).before(queue_key(waiter(2, 0, 5), aging))) << aging;
    EXPECT_FALSE(queue_key(waiter(1, -1000, 0), aging).before(queue_key(waiter(2, 1000, 0), aging))) << aging;
  }
}

TEST(Queue, ChangedAgeingOrdersAgain) {
  Queue queue;
  queue.insert(waiter(1, 0, 0));
  queue.insert(waiter(2, 1, 120 * second));
  EXPECT_EQ(queue.place({1}), 1u);
  queue.set_aging(0);
  EXPECT_EQ(queue.place({2}), 1u);
  queue.set_aging(1);
  EXPECT_EQ(queue.place({1}), 1u);
}

std::size_t subsets_of(const std::vector<Lease>& leases) {
  std::set<std::pair<std::vector<std::string>, int>> subsets;
  for (const Lease& lease : leases)
    if (lease.wanted_devices.size() > 1) subsets.emplace(lease.wanted_devices, lease.device_count);
  return subsets.size();
}

// Everything the queue answers, compared with a sorted list, over thousands of random changes.
TEST(Queue, AnswersLikeASortedList) {
  std::mt19937_64 random(7);
  const auto below = [&random](std::uint64_t n) { return random() % n; };
  const std::vector<std::vector<std::string>> devices{
      {}, {}, {"GPU-0"}, {"GPU-1"}, {"GPU-0", "GPU-1"}, {"GPU-0", "GPU-2", "GPU-3"}};
  Queue queue;
  std::vector<Lease> list;
  const auto in_order = [](const Lease& a, const Lease& b) { return queue_key(a, 1).before(queue_key(b, 1)); };
  for (std::uint64_t i = 1; i <= 4000; ++i) {
    if (list.empty() || below(100) < 55) {
      Lease lease = waiter(i, static_cast<int>(below(5)), static_cast<std::int64_t>(below(50)) * 10 * second,
                           {static_cast<std::int64_t>(1 + below(1000))}, devices[below(devices.size())]);
      lease.tier = static_cast<Tier>(below(3));
      const std::size_t most = lease.wanted_devices.empty() ? 3 : lease.wanted_devices.size();
      lease.device_count = static_cast<int>(1 + below(most));
      if (below(4) == 0) lease.min_vram = {1 + lease.vram.count / 2};
      queue.insert(lease);
      list.push_back(lease);
      std::sort(list.begin(), list.end(), in_order);
    } else {
      const auto victim = list.begin() + static_cast<std::ptrdiff_t>(below(list.size()));
      queue.erase(victim->id);
      list.erase(victim);
    }
    ASSERT_EQ(queue.size(), list.size());
    std::vector<LeaseId> ids;
    std::int64_t bytes = 0;
    for (const Lease& lease : list) ids.push_back(lease.id), bytes += lease.device_count * lease.vram.count;
    if (i % 16 == 0) {
      ASSERT_EQ(queue.in_order(), ids);
    }
    ASSERT_EQ(queue.waiting_bytes().count, bytes);
    const std::size_t some = below(ids.size() + 1);
    if (some < ids.size()) {
      ASSERT_EQ(queue.place(ids[some]), some + 1);
    }
    ids.resize(std::min<std::size_t>(ids.size(), some));
    ASSERT_EQ(queue.in_order(some), ids);
    const Bytes limit{static_cast<std::int64_t>(below(1100))};
    const auto first = [&list](const auto& which) -> std::optional<LeaseId> {
      const auto found = std::find_if(list.begin(), list.end(), which);
      return found == list.end() ? std::nullopt : std::optional(found->id);
    };
    const auto named = [](const Lease& lease) { return lease.wanted_devices == std::vector<std::string>{"GPU-0"}; };
    const auto two_of_three = [](const Lease& lease) {
      return lease.wanted_devices.size() == 3 && lease.device_count == 2;
    };
    const auto pairs = [](const Lease& lease) { return lease.wanted_devices.empty() && lease.device_count == 2; };
    const auto tree = queue.any().find(2);
    const QueueTree* any = tree == queue.any().end() ? nullptr : &tree->second;
    const auto of_three = queue.subsets().find({devices.back(), 2});
    const QueueTree* subset = of_three == queue.subsets().end() ? nullptr : &of_three->second;
    const auto answer = [](const QueueTree* of, auto ask) -> std::optional<LeaseId> {
      const QueueKey* key = of == nullptr ? nullptr : ask(*of);
      return key == nullptr ? std::nullopt : std::optional(key->lease);
    };
    const auto within = [limit](const QueueTree& of) { return of.first_within(limit); };
    const auto above = [limit](const QueueTree& of) { return of.first_above(limit); };
    ASSERT_EQ(answer(queue.named("GPU-0"), within),
              first([&](const Lease& l) { return named(l) && l.least() <= limit; }));
    ASSERT_EQ(answer(queue.named("GPU-0"), above),
              first([&](const Lease& l) { return named(l) && l.least() > limit; }));
    ASSERT_EQ(answer(subset, within), first([&](const Lease& l) { return two_of_three(l) && l.least() <= limit; }));
    ASSERT_EQ(answer(subset, above), first([&](const Lease& l) { return two_of_three(l) && l.least() > limit; }));
    ASSERT_EQ(queue.subsets().size(), subsets_of(list));
    ASSERT_EQ(answer(any, within), first([&](const Lease& l) { return pairs(l) && l.least() <= limit; }));
    ASSERT_EQ(answer(any, above), first([&](const Lease& l) { return pairs(l) && l.least() > limit; }));
  }
}

}  // namespace
}  // namespace sublet::core
