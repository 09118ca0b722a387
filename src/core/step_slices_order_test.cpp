// SPDX-License-Identifier: Apache-2.0
// The order of time slices, when they begin, and their announcement.
#include "core/testing/slice_helpers.h"

namespace sublet::core::testing {
namespace {

// A measurement of the first lease that leaves makes the next slice longer, and not the slice that has ended.
TEST(SlicesBegun, AreGoneOnWithWhateverThatTeaches) {
  Card w;
  w.rules.min_residency.reset();
  const LeaseId a = w.start(10 * GiB, Tier::standard, "a"), b = w.start(10 * GiB, Tier::standard, "b");
  const LeaseId c = w.start(20 * GiB, Tier::standard, "c");
  const auto foretold = w.info(c).eta;
  ASSERT_TRUE(foretold);
  for (int second = 0; second < 300 && w.state_of(c) != LeaseState::active; ++second) {
    w.live(1s);
    ASSERT_FALSE(w.state_of(a) == LeaseState::resuming || w.state_of(b) == LeaseState::resuming) << "for nothing";
  }
  EXPECT_EQ(w.states(c), "active");
}

TEST(SlicesMixed, ThoseBelowLeaveWithAnEqualWhereTheseAloneAreNotEnough) {
  Sharing w(20s);
  const LeaseId equal = w.start(11 * GiB, Tier::standard, "equal"), low = w.start(11 * GiB, Tier::batch, "low");
  const LeaseId c = w.start(20 * GiB, Tier::standard, "c");
  const Shares shares = share(w, {equal, low, c}, 600s);
  EXPECT_GT(shares.had.at(c), 100s);
  EXPECT_GT(shares.had.at(equal), 100s);
  EXPECT_EQ(w.at(low).parking->cause.kind, PauseCauseKind::tier);
  EXPECT_EQ(w.at(low).parking->cause.preemptor, c);
  EXPECT_EQ(w.at(equal).parking->cause.kind, PauseCauseKind::slice);
  EXPECT_EQ(w.at(equal).parking->cause.preemptor, c);
}

TEST(SlicesMixed, OneOnSeveralCardsHasAnEqualLeaveOneAndWhoIsBelowTheOther) {
  Sharing w(20s, 128 * GiB, 2);
  const LeaseId equal = w.start(14 * GiB, Tier::standard, "equal"), low = w.start(14 * GiB, Tier::batch, "low");
  Lease lease = w.want(14 * GiB, Tier::standard, "both");
  lease.device_count = 2;
  const LeaseId both = w.submit(lease, true);
  const Shares shares = share(w, {equal, low, both}, 600s);
  EXPECT_GT(shares.had.at(both), 100s);
  EXPECT_GT(shares.had.at(equal), 100s);
}

// Priority breaks ties and displaces nobody: of those who want several cards, too.
TEST(SlicesOfSeveral, GoToWhoeverHadLeast) {
  Sharing w(20s, 256 * GiB, 2);
  std::vector<LeaseId> all;
  for (const int priority : {50, 50, 0}) {
    Lease lease = w.want(14 * GiB, Tier::standard, "gang" + std::to_string(all.size()));
    lease.device_count = 2;
    lease.priority = priority;
    all.push_back(w.submit(lease, true));
    if (w.state_of(all.back()) == LeaseState::active) w.attach(all.back());
  }
  const Shares shares = share(w, all, 1800s);
  for (const LeaseId id : all) EXPECT_GT(shares.had.at(id), 350s) << to_string(id);
}

// The lease that came in last has had least until it draws level: the moment of the switch is known all the same.
TEST(SlicesAnnounced, AsLongAsOneHasTheRoomAndTheOtherWaits) {
  Sharing w(30s);
  const LeaseId a = w.start(14 * GiB, Tier::standard, "a"), b = w.start(14 * GiB, Tier::standard, "b");
  int looks = 0;
  std::map<LeaseId, Time> foretold;  // when it should have its memory again
  for (int second = 0; second < 900; ++second) {
    share(w, {a, b}, 1s);
    for (const LeaseId id : {a, b}) {
      const LeaseId other = id == a ? b : a;
      if (w.at(id).reserved() > GiB) {  // its memory again
        const auto promised = foretold.find(id);
        EXPECT_TRUE(promised == foretold.end() || w.now <= promised->second + 10s) << to_string(id);
        foretold.erase(id);
      }
      if (w.state_of(id) != LeaseState::paused || w.state_of(other) != LeaseState::active) continue;
      const auto eta = w.info(id).eta;
      ASSERT_TRUE(eta) << to_string(id) << " at " << second << " s";
      ASSERT_TRUE(explain::leaves_in(w.state, other, w.now)) << to_string(other) << " at " << second << " s";
      foretold.try_emplace(id, w.now + *eta);
      ++looks;
    }
  }
  EXPECT_GT(looks, 600);
}

// The first in the queue wait for another card, where nobody yields: that keeps nobody from coming back.
TEST(SlicesOfOne, GoOnWhateverWaitsForAnother) {
  Sharing w(20s, 128 * GiB, 2);
  const auto on = [&w](unsigned card, const std::string& name, Tier tier) {
    Lease lease = w.want(14 * GiB, tier, name);
    lease.wanted_devices = {uuid_of(card)};
    if (name == "pinned") lease.pausable = Pausable::no;
    const LeaseId id = w.submit(lease, true);
    if (w.state_of(id) == LeaseState::active) w.attach(id);
    return id;
  };
  const LeaseId a = on(1, "a", Tier::standard), b = on(1, "b", Tier::standard);
  share(w, {a, b}, 100s);
  on(0, "pinned", Tier::standard);
  for (int i = 0; i < 40; ++i) on(0, "waits" + std::to_string(i), Tier::interactive);
  const Shares shares = share(w, {a, b}, 600s);
  EXPECT_GT(shares.switches, 3);
  for (const LeaseId id : {a, b}) EXPECT_GT(shares.had.at(id), 200s) << to_string(id);
}

}  // namespace
}  // namespace sublet::core::testing
