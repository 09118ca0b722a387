// SPDX-License-Identifier: Apache-2.0
#include "meter/feed.h"

#include "base/text.h"
#include "meter/test_support.h"

#include <gtest/gtest.h>

namespace sublet::meter {
namespace {

using core::LeaseState;

constexpr Ms begin = monday, patience = 15'000;

std::string event_of(std::uint64_t lease, Ms at, const char* state) {
  const bool ended = std::string_view(state) == "ended";
  return nlohmann::json{{"type", "lease"},
                        {"at", format_rfc3339(Time{(begin + at) * 1'000'000})},
                        {"lease", "lease-" + std::to_string(lease)},
                        {"state", state},
                        {"end_reason", ended ? nlohmann::json("released") : nlohmann::json(nullptr)},
                        {"kind", "granted"},
                        {"args", nlohmann::json::object()},
                        {"user", "ana"},
                        {"tenant", "lab"},
                        {"consumer", "train"},
                        {"vram_bytes", gib},
                        {"devices", {"g0"}}}
      .dump();
}

Reading reading_of(Ms at, std::int64_t used = 1000) {
  Reading reading{begin + at};
  reading.uses[{"g0", 1}] = {used, 50};
  reading.devices["g0"] = {8 * gib, used, 50};
  return reading;
}

struct Totals {
  std::int64_t leased = 0, used = 0;
  std::vector<Gap> gaps{};

  void add(Feed::Flushed flushed) {
    for (const auto& [key, cell] : flushed.deltas.cells) leased += cell.leased, used += cell.used;
    gaps.insert(gaps.end(), flushed.deltas.gaps.begin(), flushed.deltas.gaps.end());
  }
};

TEST(Feed, ReadingsWaitForTheEventsBeforeThem) {
  Feed feed("life", patience);
  feed.caught_up(begin);
  feed.reading(reading_of(0));
  feed.reading(reading_of(10'000));
  feed.reading(reading_of(14'000, 2000));
  EXPECT_TRUE(feed.has_readings());
  feed.event(1, "lease", event_of(1, 2'000, "active"));
  feed.event(2, "lease", event_of(1, 16'000, "ended"));
  EXPECT_FALSE(feed.has_readings());
  Totals totals;
  totals.add(feed.flush());
  EXPECT_EQ(totals.leased, gib * 14'000);
  EXPECT_EQ(totals.used, 1000 * 12'000 + 2000 * 2'000) << "each reading holds until the next one";
  EXPECT_TRUE(totals.gaps.empty());
}

TEST(Feed, AnOldReadingDoesNotHold) {
  Feed feed("life", patience);
  feed.reading(reading_of(0));
  feed.event(1, "lease", event_of(1, 0, "active"));
  feed.caught_up(begin + 10'000);
  feed.caught_up(begin + 60'000);
  Totals totals;
  totals.add(feed.flush());
  feed.reading(reading_of(90'000));
  feed.caught_up(begin + 100'000);
  totals.add(feed.flush());
  EXPECT_EQ(totals.leased, gib * 100'000);
  EXPECT_EQ(totals.used, 1000 * 20'000);
  EXPECT_EQ(totals.gaps, (std::vector<Gap>{{begin, begin + 60'000, "used", "the devices were not read"},
                                           {begin + 60'000, begin + 90'000, "used", "the devices were not read"}}))
      << "piece by piece; the file joins them";
}

TEST(Feed, ADeviceThatCannotBeReadHasAGapOfItsOwn) {
  Feed feed("life", patience);
  feed.reading(reading_of(0));
  Reading blind{begin + 1'000};
  blind.unread = {"gpu0"};
  feed.reading(blind);
  feed.reading(reading_of(5'000));
  feed.event(1, "lease", event_of(1, 0, "active"));
  feed.caught_up(begin + 6'000);
  Totals totals;
  totals.add(feed.flush());
  EXPECT_EQ(totals.used, 1000 * 2'000) << "one second on each side";
  EXPECT_EQ(totals.gaps, (std::vector<Gap>{{begin, begin + 5'000, "used", "gpu0 was not read"}}));
}

TEST(Feed, ARestartGoesOnFromTheMark) {
  Feed feed("life", patience);
  feed.reading(reading_of(0));
  feed.event(1, "lease", event_of(1, 0, "active"));
  feed.caught_up(begin + 5'000);
  Totals totals;
  Feed::Flushed flushed = feed.flush();
  const Mark mark = flushed.mark;
  totals.add(std::move(flushed));
  feed.event(2, "lease", event_of(1, 6'000, "ended"));  // the daemon is killed before this is flushed
  auto again = Feed::resume(mark, patience);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->after(), 1U);
  again->event(2, "lease", event_of(1, 6'000, "ended"));
  again->reading(reading_of(7'000));
  again->caught_up(begin + 8'000);
  totals.add(again->flush());
  EXPECT_EQ(totals.leased, gib * 6'000);
  EXPECT_EQ(totals.gaps,
            (std::vector<Gap>{{begin + 5'000, begin + 7'000, "used", "the daemon was killed, and did not run"}}));
}

TEST(Feed, AStopIsNoKill) {
  Feed feed("life", patience);
  feed.reading(reading_of(0));
  feed.caught_up(begin + 3'000);
  const Feed::Flushed flushed = feed.flush(true);
  auto again = Feed::resume(flushed.mark, patience);
  ASSERT_TRUE(again);
  again->reading(reading_of(7'000));
  again->caught_up(begin + 7'000);
  Totals totals;
  totals.add(again->flush());
  EXPECT_EQ(totals.gaps, (std::vector<Gap>{{begin + 3'000, begin + 7'000, "used", "the daemon did not run"}}));
}

TEST(Feed, MissingEventsAreAGapAndTheLivingAreTaken) {
  Feed feed("life", patience);
  feed.event(4, "lease", event_of(2, 1'000, "active"));
  EXPECT_TRUE(feed.needs_living());
  Living one;
  one.fact.lease = LeaseId{1};
  one.fact.at = begin + 3'000;
  one.fact.state = LeaseState::active;
  one.fact.account = {"ben", "lab", "old"};
  one.fact.vram = gib;
  one.fact.devices = {"g0"};
  one.created = begin - 5'000;
  one.granted = begin - 4'000;
  Living known = one;
  known.fact.lease = LeaseId{2};
  feed.caught_up(begin + 3'000, {one, known});
  EXPECT_FALSE(feed.needs_living());
  feed.event(5, "lease", event_of(1, 5'000, "ended"));
  Feed::Flushed flushed = feed.flush();
  ASSERT_EQ(flushed.deltas.leases.size(), 2U);
  EXPECT_EQ(flushed.deltas.leases[0].created, begin - 5'000);
  EXPECT_TRUE(std::ranges::none_of(flushed.deltas.waits, [](const Wait& wait) { return wait.lease == LeaseId{1}; }))
      << "its wait is not known";
  Totals totals;
  totals.add(std::move(flushed));
  EXPECT_EQ(totals.leased, gib * (2'000 + 4'000)) << "from the events, and from the gap's end on";
  const std::string why = "the events of this time are no longer stored";
  EXPECT_EQ(totals.gaps[0], (Gap{0, begin + 1'000, "leased", why}));
  EXPECT_EQ(totals.gaps[1], (Gap{begin + 1'000, begin + 3'000, "leased", why}));
}

TEST(Feed, AnotherStoreBeginsAnew) {
  Feed feed("life", patience);
  feed.event(1, "lease", event_of(1, 0, "active"));
  feed.event(2, "other", "{}");
  feed.replace_store("next");
  EXPECT_EQ(feed.life(), "next");
  EXPECT_EQ(feed.after(), 0U);
  feed.event(1, "lease", event_of(1, 9'000, "active"));
  feed.caught_up(begin + 10'000);
  Totals totals;
  totals.add(feed.flush());
  EXPECT_EQ(totals.leased, gib * 1'000);
  ASSERT_GE(totals.gaps.size(), 1U);
  EXPECT_EQ(totals.gaps[0], (Gap{begin, begin + 9'000, "leased", "the store was replaced"}));
}

TEST(Feed, ReadingsThatWaitForTooLongAreDropped) {
  Feed feed("life", patience);
  feed.reading(reading_of(0));
  feed.event(1, "lease", event_of(1, 0, "active"));
  for (Ms i = 1; i <= 1001; ++i) feed.reading(reading_of(i * 1000));
  feed.caught_up(begin + 1'002'000);
  Totals totals;
  totals.add(feed.flush());
  EXPECT_EQ(totals.gaps[0], (Gap{begin, begin + 1'001'000, "used", "the daemon could not store its events"}));
  EXPECT_EQ(totals.used, 1000 * 1'000);
}

}  // namespace
}  // namespace sublet::meter
