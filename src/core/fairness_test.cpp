// SPDX-License-Identifier: Apache-2.0
// Random requests show how queue order and free memory may change the result of others. SEED=n replays one run.
#include "core/testing/world.h"

#include <cstdlib>
#include <random>

namespace sublet::core::testing {
namespace {

// -------------------------------------------------------------------------------- order of arrival

// Requests of one instant, decided together because the device was unknown until all had come.
std::vector<std::string> granted_of(const std::vector<Lease>& batch) {
  World w;
  for (const Lease& lease : batch) w.submit(lease);
  w.snapshot({gpu(0, 24 * GiB), gpu(1, 16 * GiB)});
  std::vector<std::string> granted;
  for (const auto& [id, lease] : w.state.leases.by_id)
    if (lease.reserves()) granted.push_back(lease.consumer + " on " + lease.devices.front());
  std::sort(granted.begin(), granted.end());
  return granted;
}

TEST(Property, TheOrderOfSimultaneousRequestsChangesOnlyTies) {
  std::mt19937_64 random(number("SEED", 20261121));
  for (int round = 0; round < 200; ++round) {
    std::vector<Lease> batch, equals;
    for (int i = 0; i < 12; ++i) {
      Lease lease = wish(static_cast<std::int64_t>(1 + random() % 12) * GiB, "c" + std::to_string(i));
      lease.tier = static_cast<Tier>(random() % 3);
      lease.priority = i;
      batch.push_back(lease);
      lease.tier = Tier::standard, lease.priority = 0, lease.vram = 5 * GiB, lease.consumer = "same";
      equals.push_back(lease);
    }
    const auto granted = granted_of(batch), granted_equals = granted_of(equals);
    EXPECT_FALSE(granted.empty());
    std::shuffle(batch.begin(), batch.end(), random);
    EXPECT_EQ(granted_of(batch), granted);
    EXPECT_EQ(granted_of(equals), granted_equals);
  }
}

// -------------------------------------------------------------------------------- monotony

// When each of a row of equal requests starts, first come, first served, each held for its own time.
std::vector<std::int64_t> starts(std::int64_t slots, const std::vector<int>& lengths) {
  World w;
  w.rules.claim_window = 24h;
  w.snapshot({gpu(0, slots * GiB)});
  std::vector<std::int64_t> begun(lengths.size(), -1);
  std::map<LeaseId, std::size_t> index;
  for (std::size_t i = 0; i < lengths.size(); ++i) index[w.submit(wish(GiB), true)] = i;
  for (std::int64_t second = 0; second < 1000; ++second) {
    for (const auto& [id, i] : index) {
      const Lease* lease = find(w.state, id);
      if (lease == nullptr || lease->state != LeaseState::active) continue;
      if (begun[i] < 0) begun[i] = second;
      if (second - begun[i] >= lengths[i]) w.step(Release{id});
    }
    w.now = w.now + 1s;
    w.snapshot({gpu(0, slots * GiB)});
  }
  return begun;
}

TEST(Property, AmongEqualRequestsMoreRoomOrOneCompetitorLessDelaysNobody) {
  std::mt19937_64 random(number("SEED", 7));
  for (int round = 0; round < 10; ++round) {
    std::vector<int> lengths(12);
    for (int& length : lengths) length = static_cast<int>(1 + random() % 20);
    const auto base = starts(2, lengths), wider = starts(3, lengths);
    const std::size_t gone = random() % lengths.size();
    std::vector<int> fewer = lengths;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(gone));
    const auto without = starts(2, fewer);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      ASSERT_GE(base[i], 0);
      EXPECT_LE(wider[i], base[i]);
      EXPECT_TRUE(i == gone || without[i > gone ? i - 1 : i] <= base[i]) << i;
    }
  }
}

}  // namespace
}  // namespace sublet::core::testing
