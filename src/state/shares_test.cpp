// SPDX-License-Identifier: Apache-2.0
#include "state/shares.h"

#include <gtest/gtest.h>

#include <random>

namespace sublet::core {
namespace {

using namespace std::chrono_literals;

Time at(Duration since_start) { return Time{1'000'000'000'000} + since_start; }

std::int64_t seconds(Integral held) { return static_cast<std::int64_t>(held / 1'000'000'000); }

TEST(Shares, CountWhatIsHeld) {
  struct Case {
    const char* name;
    void (*change)(Shares<int>& shares);
    std::int64_t after_20s;
  };
  const Case cases[] = {
      {"a key that never held anything has nothing", [](auto&) {}, 0},
      {"an amount counts from its change on", [](auto& s) { s.hold(1, 3, at(5s)); }, 45},
      {"the next amount counts from there", [](auto& s) { s.hold(1, 3, at(5s)), s.hold(1, 1, at(10s)); }, 25},
      {"a key that gives all back keeps what it had", [](auto& s) { s.hold(1, 2, at(0s)), s.hold(1, 0, at(4s)); }, 8},
      {"time that is skipped does not count", [](auto& s) { s.hold(1, 1, at(0s)), s.skip(at(5s), at(15s)); }, 10},
      {"a key joins level with the least",
       [](auto& s) { s.hold(2, 1, at(0s)), s.hold(3, 2, at(0s)), s.join(1, at(7s)); }, 7},
      {"a key joins once", [](auto& s) { s.hold(1, 1, at(0s)), s.hold(2, 0, at(0s)), s.join(1, at(7s)); }, 20},
      {"a key that is erased has nothing",
       [](auto& s) { s.hold(1, 1, at(0s)), s.erase_if([](int key) { return key == 1; }); }, 0},
  };
  for (const Case& test : cases) {
    Shares<int> shares;
    test.change(shares);
    EXPECT_EQ(seconds(shares.of(1, at(20s))), test.after_20s) << test.name;
  }
}

// Random changes and questions, beside a plain sum over all changes.
TEST(Shares, OfAWindowAreTheSumOfAllChangesInIt) {
  struct Change {
    Time at;
    std::int64_t amount;
  };
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    const Window window{seed % 4 == 0 ? 0s : std::chrono::seconds(1 + random() % 50),
                        static_cast<std::int64_t>(1 + random() % 5)};
    Shares<int> shares(window);
    std::map<int, std::vector<Change>> changes;
    Time now = at(0s);
    for (int i = 0; i < 300; ++i) {
      now =
          now + Duration(static_cast<std::int64_t>(random() % (random() % 10 == 0 ? 300'000'000'000 : 20'000'000'000)));
      const int key = static_cast<int>(random() % 3);
      if (random() % 2 == 0) {
        const auto amount = static_cast<std::int64_t>(random() % 3 == 0 ? 0 : random() % (80ULL << 30));
        shares.hold(key, amount, now);
        changes[key].push_back({now, amount});
      }
      Time begin;
      if (window.slot > 0s) begin = {(now.ns / window.slot.count() - window.slots + 1) * window.slot.count()};
      Integral sum = 0;
      for (std::size_t c = 0; c < changes[key].size(); ++c) {
        const Time from = std::max(changes[key][c].at, begin);
        const Time to = c + 1 < changes[key].size() ? changes[key][c + 1].at : now;
        if (to > from) sum += Integral{changes[key][c].amount} * (to - from).count();
      }
      ASSERT_TRUE(shares.of(key, now) == sum) << "seed " << seed << ", change " << i;
    }
  }
}

}  // namespace
}  // namespace sublet::core
