// SPDX-License-Identifier: Apache-2.0
// A model of time slices: leases of one tier that do not fit on a card together have it in turn, each for its share.
// The model knows the speed of the programs, and nothing of how the core chooses.
#include "core/testing/slice_helpers.h"

#include <numeric>
#include <random>

namespace sublet::core::testing {
namespace {

constexpr Bytes card_size = 24 * GiB;

class SliceModel {
 public:
  SliceModel(const std::vector<int>& sizes, Duration residency, std::mt19937& random) {
    card_.rules.min_residency = residency;
    card_.rules.ledger_limit = 256 * GiB;
    card_.rules.ledger_user_share = 1;
    card_.rules.reserve_after = {};
    for (const int size : sizes) {
      Lease lease = card_.want(size * GiB, Tier::standard, "train-" + std::to_string(leases_.size()));
      lease.priority = static_cast<int>(random() % 100);  // orders the queue, and gives nobody a larger share
      leases_.push_back(card_.submit(lease, true));
      if (card_.state_of(leases_.back()) == LeaseState::active) card_.attach(leases_.back());
      longest_move_ = std::max(longest_move_, Duration(1s) * size / 2);
    }
    // The share of the time that switching takes decides how long a slice is, unless the configuration asks for more.
    const auto worth = Duration(static_cast<std::int64_t>(static_cast<double>(switching().count()) / overhead()));
    quantum_ = std::max(residency, worth);
  }

  // One program out, the next one in; beyond that a program is asked, measured and found at the next tick.
  Duration switching() const { return 2 * longest_move_ + 5s; }
  Duration quantum() const { return quantum_; }
  double overhead() const { return card_.rules.slice_overhead; }
  std::size_t count() const { return leases_.size(); }

  // Calls `look` about every second.
  template <typename Look>
  void run(Duration d, Look look) {
    const Time until = card_.now + d;
    while (card_.now < until) {
      const Time then = card_.now;
      const Shares its = share(card_, leases_, 1s);
      elapsed_ += card_.now - then;
      for (const auto& [id, had] : its.had) had_[id] += had;
      for (const LeaseId id : leases_) {
        const bool has = card_.state_of(id) == LeaseState::active;
        switches_ += !std::exchange(has_[id], has) && has;
      }
      look();
    }
  }

  Duration had(std::size_t at) const {
    const auto found = had_.find(leases_[at]);
    return found == had_.end() ? Duration{} : found->second;
  }
  Duration had_by_all() const {
    Duration sum{};
    for (std::size_t at = 0; at < count(); ++at) sum += had(at);
    return sum;
  }
  Duration elapsed() const { return elapsed_; }
  int switches() const { return switches_; }  // so many times a lease came in
  // How many have the card now.
  std::size_t active() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(leases_, [this](LeaseId id) { return card_.state_of(id) == LeaseState::active; }));
  }

 private:
  Card card_;
  std::vector<LeaseId> leases_;
  Duration longest_move_{}, quantum_{}, elapsed_{};
  std::map<LeaseId, Duration> had_;
  std::map<LeaseId, bool> has_;
  int switches_ = 0;
};

std::string text(const std::vector<int>& sizes, const SliceModel& model) {
  std::string text = "sizes";
  for (const int size : sizes) text += " " + std::to_string(size);
  text += " GiB; had";
  for (std::size_t at = 0; at < model.count(); ++at) text += " " + format_duration(model.had(at));
  return text + " of " + format_duration(model.elapsed()) + "; quantum " + format_duration(model.quantum());
}

class SliceShares : public ::testing::TestWithParam<unsigned> {};

// No two of them fit together: at any time each had its share, but for one quantum and one switch.
TEST_P(SliceShares, AreEqualWithinOneQuantum) {
  std::mt19937 random(GetParam());
  std::vector<int> sizes(2 + random() % 3);
  for (int& size : sizes) size = 13 + static_cast<int>(random() % 10);
  const Duration residency = 20s * (1 + random() % 6);
  SliceModel model(sizes, residency, random);
  const auto most = model.quantum() + model.switching();
  const auto rounds = 6 * static_cast<int>(sizes.size());
  model.run(rounds * most, [&] {
    const Duration each = model.had_by_all() / static_cast<std::int64_t>(model.count());
    ASSERT_LE(model.active(), 1u) << text(sizes, model);
    for (std::size_t at = 0; at < model.count(); ++at) {
      ASSERT_LE(model.had(at), each + most) << text(sizes, model);
      ASSERT_GE(model.had(at), each - most) << text(sizes, model);
    }
  });
  EXPECT_GE(model.switches(), rounds / 2) << text(sizes, model);
  const double busy = static_cast<double>(model.had_by_all().count()) / static_cast<double>(model.elapsed().count());
  EXPECT_GE(busy, 1 - 2 * model.overhead()) << text(sizes, model);
}

// Some of them fit together, and not all: each has at least the share that it would have if none did.
TEST_P(SliceShares, AreAtLeastEqualPartsOfTheTime) {
  std::mt19937 random(1000 + GetParam());
  std::vector<int> sizes(3 + random() % 2);
  for (int& size : sizes) size = 8 + static_cast<int>(random() % 12);
  if (std::accumulate(sizes.begin(), sizes.end(), 0) * GiB <= card_size) sizes.back() = 20;
  SliceModel model(sizes, 20s * (1 + random() % 6), random);
  const auto most = model.quantum() + model.switching();
  model.run(8 * static_cast<int>(sizes.size()) * most, [] {});
  const auto used = model.elapsed() * static_cast<int>(100 * (1 - 2 * model.overhead())) / 100;
  for (std::size_t at = 0; at < model.count(); ++at)
    EXPECT_GE(model.had(at) + most, used / static_cast<std::int64_t>(model.count())) << text(sizes, model);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SliceShares, ::testing::Range(1u, 9u));

}  // namespace
}  // namespace sublet::core::testing
