// SPDX-License-Identifier: Apache-2.0
// A model of time slices: leases of one tier that do not fit on a card together have it in turn, each for its share.
// The model knows the speed of the programs, and nothing of how the core chooses.
#include "core/testing/slice_helpers.h"

#include <numeric>
#include <random>

namespace sublet::core::testing {
namespace {

struct Model {
  Sharing w;
  std::vector<LeaseId> all;
  Duration switching{}, most{};  // one program out and the next one in; a quantum and a switch
  Served served;
  Duration elapsed{};

  // `priority` orders the queue, and gives no lease a larger share.
  Model(const std::vector<int>& sizes, Duration residency, std::mt19937& random) : w(residency, 512 * GiB) {
    w.rules.ledger_user_share = 1;
    w.rules.reserve_after = {};
    w.ram.available = 1024 * GiB;
    w.measure();
    for (const int size : sizes) {
      Lease lease = w.want(size * GiB, Tier::standard, "train-" + std::to_string(all.size()));
      lease.priority = static_cast<int>(random() % 100);
      all.push_back(w.submit(lease, true));
      if (w.state_of(all.back()) == LeaseState::active) w.attach(all.back());
    }
    switching = Duration(1s) * *std::ranges::max_element(sizes) + 5s;  // 2 GiB/s out and in
    const Duration worth(static_cast<std::int64_t>(static_cast<double>(switching.count()) / w.rules.slice_overhead));
    most = std::max(residency, worth) + switching;
  }

  template <typename Look>
  void run(Duration d, Look look) {
    for (const Time until = w.now + d; w.now < until; look()) {
      const Time then = w.now;
      const Served more = share(w, all, 1s);
      elapsed += w.now - then;
      for (const auto& [id, had] : more.had) served.had[id] += had;
    }
  }
  Duration by_all() {
    return std::accumulate(all.begin(), all.end(), Duration{},
                           [&](Duration sum, auto id) { return sum + served.had[id]; });
  }
  std::string text() {
    std::string text = "of " + format_duration(elapsed) + ", quantum and switch " + format_duration(most) + ":";
    for (const LeaseId id : all) text += " " + format_duration(served.had[id]);
    return text;
  }
};

class SliceShares : public ::testing::TestWithParam<unsigned> {};

// No two of them fit together. Over ten rotations each has had its share at any time, but for one quantum and one
// switch, and switches take no more than their part.
TEST_P(SliceShares, AreEqualWithinOneQuantum) {
  std::mt19937 random(GetParam());
  std::vector<int> sizes(std::array<std::size_t, 3>{2, 3, 8}[GetParam() % 3]);
  for (int& size : sizes) size = GetParam() < 3 ? 14 : 13 + static_cast<int>(random() % 10);
  Model model(sizes, 20s * (1 + random() % 6), random);
  const auto count = static_cast<std::int64_t>(sizes.size());
  model.run(10 * count * model.most, [&] {
    const Duration each = model.by_all() / count;
    for (const LeaseId id : model.all)
      ASSERT_LE(std::chrono::abs(model.served.had[id] - each), model.most) << model.text();
  });
  EXPECT_GE(model.by_all() / std::chrono::milliseconds(1), model.elapsed / std::chrono::milliseconds(1) * 8 / 10)
      << model.text();
}

// Some of them fit together, and not all: each has at least the share that it would have if none did.
TEST_P(SliceShares, AreAtLeastEqualPartsOfTheTime) {
  std::mt19937 random(1000 + GetParam());
  std::vector<int> sizes(3 + random() % 2);
  for (int& size : sizes) size = 8 + static_cast<int>(random() % 12);
  if (std::accumulate(sizes.begin(), sizes.end(), 0) <= 24) sizes.back() = 20;
  Model model(sizes, 20s * (1 + random() % 6), random);
  const auto count = static_cast<std::int64_t>(sizes.size());
  model.run(8 * count * model.most, [] {});
  for (const LeaseId id : model.all)
    EXPECT_GE(model.served.had[id] + model.most, model.elapsed * 8 / 10 / count) << model.text();
}

INSTANTIATE_TEST_SUITE_P(Seeds, SliceShares, ::testing::Range(0u, 9u));

}  // namespace
}  // namespace sublet::core::testing
