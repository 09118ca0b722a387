// SPDX-License-Identifier: Apache-2.0
#include "meter/integrator.h"
#include "meter/test_support.h"

#include <gtest/gtest.h>

#include <random>

namespace sublet::meter {
namespace {

using core::EndReason;
using core::LeaseState;

constexpr Ms start = 1'764'000'000'000;

LeaseFact fact(std::uint64_t lease, Ms at, LeaseState state, std::int64_t vram = gib,
               std::vector<std::string> devices = {"g0"}, const std::string& user = "ana") {
  LeaseFact made;
  made.lease = LeaseId{lease};
  made.at = start + at;
  made.state = state;
  if (state == LeaseState::ended) made.end_reason = EndReason::released;
  made.account = {user, user, "train"};
  made.vram = vram;
  if (state != LeaseState::queued) made.devices = std::move(devices);
  return made;
}

// The tables, with the deltas added.
struct Sums {
  std::map<std::uint64_t, Cell> leases{};  // by lease, over all devices and minutes
  std::vector<Wait> waits{};
  std::map<std::pair<std::string, std::string>, double> pairs{};  // by users
  std::map<std::uint64_t, LeaseRow> rows{};
  std::vector<Gap> gaps{};
  Ms waiting = 0;

  void add(const Deltas& deltas) {
    for (const auto& [key, cell] : deltas.cells) {
      Cell& sum = leases[std::get<1>(key)];
      EXPECT_LE(cell.waited_ms, minute);
      for (const auto field : {&Cell::leased, &Cell::paused, &Cell::used, &Cell::used_ms, &Cell::busy, &Cell::busy_ms,
                               &Cell::judged, &Cell::idle, &Cell::idle_waited, &Cell::waited_ms, &Cell::parked,
                               &Cell::moved, &Cell::pauses_caused, &Cell::pauses_suffered})
        sum.*field += cell.*field;
      sum.peak = std::max(sum.peak, cell.peak);
    }
    waits.insert(waits.end(), deltas.waits.begin(), deltas.waits.end());
    for (const auto& [key, ms] : deltas.pairs) pairs[{std::get<1>(key).user, std::get<2>(key).user}] += ms;
    for (const LeaseRow& row : deltas.leases) rows[row.lease.number] = row;
    for (const auto& [slot, ms] : deltas.waiting) waiting += ms;
    gaps.insert(gaps.end(), deltas.gaps.begin(), deltas.gaps.end());
  }
};

TEST(Integrator, MemoryOnADeviceThatWasNotLeasedIsHeldAndUsed) {
  Integrator meter(start);
  meter.take(fact(1, 0, LeaseState::active, 2 * gib));
  Reading reading;
  reading.at = start;
  reading.uses[{"g0", 1}] = {gib, {}};
  reading.strays["g1"][1] = 3 * gib;
  reading.devices = {{"g0", {8 * gib, gib, {}}}, {"g1", {8 * gib, 3 * gib, {}}}};
  meter.take(reading);
  meter.take(fact(1, 10'000, LeaseState::ended, 2 * gib));
  Sums sums;
  const Deltas deltas = meter.flush(start + 20'000);
  sums.add(deltas);
  EXPECT_EQ(sums.leases[1].leased, (2 + 3) * gib * 10'000);
  EXPECT_EQ(sums.leases[1].used, (1 + 3) * gib * 10'000);
  EXPECT_EQ(sums.leases[1].peak, 3 * gib);
  EXPECT_DOUBLE_EQ(sums.rows[1].leased, 5.0 * gib * 10'000);
}

TEST(Integrator, ALeaseHoldsWaitsAndIsPaused) {
  Integrator meter(start);
  meter.take(fact(1, 0, LeaseState::queued, 2 * gib));
  meter.take(fact(1, 5'000, LeaseState::active, 2 * gib));
  LeaseFact pausing = fact(1, 70'000, LeaseState::pausing, 2 * gib);
  pausing.preemptor = LeaseId{2};
  meter.take(fact(2, 65'000, LeaseState::queued, gib, {}, "ben"));
  meter.take(pausing);
  LeaseFact paused = fact(1, 71'000, LeaseState::paused, 2 * gib);
  paused.parked_bytes = gib;
  meter.take(paused);
  meter.take(fact(2, 71'000, LeaseState::active, gib, {"g0"}, "ben"));
  meter.take(fact(2, 81'000, LeaseState::ended, gib, {"g0"}, "ben"));
  meter.take(fact(1, 81'000, LeaseState::resuming, 2 * gib));
  meter.take(fact(1, 82'000, LeaseState::active, 2 * gib));
  meter.take(fact(1, 90'000, LeaseState::ended, 2 * gib));
  Sums sums;
  sums.add(meter.flush(start + 100'000));
  const Cell& one = sums.leases[1];
  EXPECT_EQ(one.leased, 2 * gib * (66'000 + 9'000));
  EXPECT_EQ(one.paused, 2 * gib * 10'000);
  EXPECT_EQ(one.parked, gib * 10'000);
  EXPECT_EQ(one.moved, gib);
  EXPECT_EQ(one.waited_ms, 5'000);
  EXPECT_EQ(one.pauses_suffered, 1);
  EXPECT_EQ(sums.leases[2].pauses_caused, 1);
  EXPECT_EQ(sums.leases[2].leased, gib * 10'000);
  EXPECT_EQ(sums.waiting, 5'000 + 6'000);
  ASSERT_EQ(sums.waits.size(), 2U);
  EXPECT_EQ(sums.waits[0].waited, 5'000);
  EXPECT_EQ(sums.waits[1].waited, 6'000);
  EXPECT_DOUBLE_EQ((sums.pairs[{"ana", ""}]), 5'000);  // nobody held memory
  EXPECT_NEAR((sums.pairs[{"ben", "ana"}]), 6'000, 1e-6);
  EXPECT_EQ(sums.rows[1].end_reason, "released");
  EXPECT_DOUBLE_EQ(sums.rows[1].leased, static_cast<double>(one.leased));
  EXPECT_EQ(sums.rows[1].held, 66'000 + 9'000);
}

TEST(Integrator, ALeaseThatIsHeldBackDoesNotWait) {
  Integrator meter(start);
  meter.take(fact(1, 0, LeaseState::active, gib));
  meter.take(fact(2, 0, LeaseState::queued, gib, {}, "ben"));
  LeaseFact held_back = fact(2, 5'000, LeaseState::queued, gib, {}, "ben");
  held_back.held_back = true;
  meter.take(held_back);
  meter.take(fact(2, 35'000, LeaseState::queued, gib, {}, "ben"));
  meter.take(fact(2, 36'000, LeaseState::active, gib, {"g0"}, "ben"));
  Sums sums;
  sums.add(meter.flush(start + 100'000));
  EXPECT_EQ(sums.leases[2].waited_ms, 6'000);
  EXPECT_EQ(sums.waiting, 6'000);
  ASSERT_EQ(sums.waits.size(), 2U);
  EXPECT_EQ(sums.waits[1].waited, 6'000);
}

TEST(Integrator, AWaitIsSharedAmongTheHoldersByTheirBytes) {
  Integrator meter(start);
  meter.take(fact(1, 0, LeaseState::active, 3 * gib, {"g0"}, "ana"));
  meter.take(fact(2, 0, LeaseState::active, gib, {"g0"}, "ben"));
  meter.take(fact(3, 10'000, LeaseState::queued, gib, {}, "cleo"));
  meter.take(fact(2, 14'000, LeaseState::ended, gib, {"g0"}, "ben"));
  meter.take(fact(3, 20'000, LeaseState::active, gib, {"g0"}, "cleo"));
  Sums sums;
  sums.add(meter.flush(start + 400'000));
  EXPECT_NEAR((sums.pairs[{"cleo", "ana"}]), 4'000 * 0.75 + 6'000, 1e-6);
  EXPECT_NEAR((sums.pairs[{"cleo", "ben"}]), 4'000 * 0.25, 1e-6);
  EXPECT_EQ(sums.pairs.count({"cleo", "cleo"}), 0U);
}

TEST(Integrator, OfVeryManyPairsOnlyUsersAreToldApart) {
  Integrator meter(start);
  const auto take = [&](std::uint64_t lease, LeaseState state, const std::string& user) {
    LeaseFact made = fact(lease, 0, state, gib, {"g0"}, user);
    made.account.consumer = "job-" + std::to_string(lease);
    meter.take(made);
  };
  for (std::uint64_t lease = 1; lease <= 20; ++lease) take(lease, LeaseState::active, "ana");
  for (std::uint64_t lease = 21; lease <= 40; ++lease) take(lease, LeaseState::queued, "ben");
  const Deltas deltas = meter.flush(start + 1'000);
  ASSERT_EQ(deltas.pairs.size(), 1U);
  const auto& [key, ms] = *deltas.pairs.begin();
  EXPECT_EQ(std::get<1>(key).user, "ben");
  EXPECT_EQ(std::get<2>(key), (Account{"ana", "ana", "(many)"}));
  EXPECT_DOUBLE_EQ(ms, 20 * 1'000);
}

TEST(Integrator, UseIsThatOfTheLastReadingUntilTheNext) {
  Integrator meter(start);
  meter.take(fact(1, 0, LeaseState::active, 4 * gib));
  const auto read = [&](Ms at, std::int64_t used, std::optional<int> busy) {
    Reading reading{start + at};
    reading.uses[{"g0", 1}] = {used, busy};
    reading.devices["g0"] = {8 * gib, used, busy};
    meter.take(reading);
  };
  read(1'000, gib, 50);
  read(3'000, 2 * gib, 0);
  meter.take(fact(2, 4'000, LeaseState::queued, gib, {}, "ben"));
  read(6'000, 2 * gib, {});
  meter.forget_reading(start + 7'000);
  Sums sums;
  const Deltas deltas = meter.flush(start + 9'000);
  sums.add(deltas);
  const Cell& one = sums.leases[1];
  EXPECT_EQ(one.used, gib * 2'000 + 2 * gib * 4'000);
  EXPECT_EQ(one.used_ms, 6'000);
  EXPECT_EQ(one.busy, 50 * 2'000);
  EXPECT_EQ(one.busy_ms, 5'000);
  EXPECT_EQ(one.idle, 4 * gib * 3'000);
  EXPECT_EQ(one.idle_waited, 4 * gib * 2'000);
  EXPECT_EQ(one.peak, 2 * gib);
  const DeviceCell& device = deltas.devices.at({start - start % minute, "g0"});
  EXPECT_EQ(device.leased, 4 * gib * 9'000);
  EXPECT_EQ(device.used_ms, 6'000);
  EXPECT_EQ(device.total, 8 * gib);
}

TEST(Integrator, ASessionOfALeaseIsPartOfItsAccount) {
  Integrator meter(start);
  meter.take(fact(1, 0, LeaseState::active));
  meter.take(SessionFact{start + 1'000, LeaseId{1}, "session-7"});
  meter.take(fact(1, 2'000, LeaseState::active, 2 * gib));
  Sums sums;
  sums.add(meter.flush(start + 3'000));
  EXPECT_EQ(sums.rows[1].account.session, "session-7");
}

TEST(Integrator, MissingEventsAreAGap) {
  Integrator meter(start);
  meter.take(fact(1, 0, LeaseState::active));
  meter.lose_events(start + 1'000, start + 5'000, "events are missing");
  meter.take(fact(2, 6'000, LeaseState::active));
  Sums sums;
  sums.add(meter.flush(start + 7'000));
  EXPECT_EQ(sums.leases[1].leased, gib * 1'000);
  EXPECT_EQ(sums.leases[2].leased, gib * 1'000);
  ASSERT_EQ(sums.gaps.size(), 1U);
  EXPECT_EQ(sums.gaps[0], (Gap{start + 1'000, start + 5'000, "leased", "events are missing"}));
}

TEST(Integrator, ABreakOfMonthsIsBoundedAndALongerOneIsAGap) {
  Integrator meter(start);
  meter.take(fact(1, 0, LeaseState::active, 80 * gib));
  Deltas deltas = meter.flush(start + 30 * 24 * hour);
  EXPECT_LT(deltas.size(), 110'000U);
  Sums sums;
  sums.add(deltas);
  EXPECT_DOUBLE_EQ(sums.rows[1].leased, 80.0 * gib * 30 * 24 * static_cast<double>(hour));
  deltas = meter.flush(start + 20'000 * 24 * hour);
  EXPECT_LT(deltas.size(), 100U);
  ASSERT_EQ(deltas.gaps.size(), 1U);
  EXPECT_EQ(deltas.gaps[0].to, start + 20'000 * 24 * hour);
}

TEST(Integrator, AfterABreakOfDaysAnyMinuteHasItsPart) {
  Integrator meter(start);
  meter.take(fact(1, 0, LeaseState::active));
  const Deltas deltas = meter.flush(start + 50 * hour);
  std::int64_t last = 0;
  for (const auto& [key, cell] : deltas.cells) last += std::get<0>(key) >= start + 27 * hour + minute ? cell.leased : 0;
  EXPECT_EQ(last, gib * (23 * hour - minute)) << "a period that begins inside the break";
}

TEST(Integrator, ABreakOfDaysIsBoundedWithManyLeases) {
  Integrator meter(start);
  for (std::uint64_t lease = 1; lease <= 1000; ++lease) meter.take(fact(lease, 0, LeaseState::active));
  Sums sums;
  const Deltas deltas = meter.flush(start + 50 * hour);
  EXPECT_LT(deltas.size(), 110'000U);
  sums.add(deltas);
  EXPECT_EQ(sums.leases[7].leased, gib * 50 * hour);
}

TEST(Integrator, WorkAndCheckpointsAreThatOfTheTimeForWhichTheyAreKnown) {
  Integrator meter(start);
  meter.take(fact(1, 0, LeaseState::active));
  Reading reading{start + 10'000};
  reading.uses[{"g0", 1}] = {gib, 0};
  meter.take(reading);
  meter.take(SessionFact{start + 15'000, LeaseId{1}, "session-1", 700});
  meter.forget_reading(start + 20'000);
  meter.take(SessionFact{start + 25'000, LeaseId{1}, "session-1", 300});
  const Deltas deltas = meter.flush(start + 40'000);
  Sums sums;
  sums.add(deltas);
  EXPECT_EQ(sums.leases[1].leased, gib * 40'000);
  EXPECT_EQ(sums.leases[1].judged, gib * 10'000);
  EXPECT_EQ(sums.leases[1].idle, gib * 10'000);
  EXPECT_EQ(deltas.checkpoints, (decltype(deltas.checkpoints){{{start, 1}, 1000}}));
}

TEST(Blame, ManyAccountsAreToldApartByUser) {
  Blame blame;
  const auto job = [](const char* user, int number) { return Account{user, "lab", "job-" + std::to_string(number)}; };
  for (int i = 0; i < 1000; ++i) blame.hold(job("ana", i), gib, 0);
  for (int i = 0; i < 1000; ++i) blame.wait(job("ben", i), 1, 0);
  const Blame::Pairs pairs = blame.take(1'000);
  EXPECT_LT(pairs.size(), 300U);
  double ms = 0;
  for (const auto& [pair, charged] : pairs) ms += charged;
  EXPECT_NEAR(ms, 1'000'000, 1);
  for (int i = 0; i < 1000; ++i) blame.hold(job("ana", i), -gib, 1'000);
  for (int i = 0; i < 1000; ++i) blame.wait(job("ben", i), -1, 1'000);
  (void)blame.take(2'000);
  EXPECT_TRUE(blame.take(3'000).empty());
}

// --- thirty days, with restarts ---

// The events of leases that come, wait, are resized and paused, and go.
std::vector<LeaseFact> month(std::mt19937_64& random) {
  const auto up_to = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most));
  };
  std::vector<LeaseFact> events;
  const std::vector<std::string> users{"ana", "ben", "cleo"};
  const Ms end = 30LL * 24 * hour;
  std::uint64_t next = 0;
  for (Ms at = 0; at < end; at += 1 + up_to(40 * minute)) {
    const std::uint64_t lease = ++next;
    const std::string& user = users[random() % users.size()];
    std::int64_t vram = (1 + up_to(16'000)) * (1LL << 20) + up_to(1000);
    const std::vector<std::string> devices =
        random() % 4 == 0 ? std::vector<std::string>{"g0", "g1"} : std::vector<std::string>{"g1"};
    Ms time = at;
    const auto add = [&](LeaseState state) { events.push_back(fact(lease, time, state, vram, devices, user)); };
    if (random() % 2 == 0) {
      add(LeaseState::queued);
      time += up_to(3 * hour);
      if (random() % 8 == 0) {
        events.push_back(fact(lease, time, LeaseState::ended, vram, {}, user));
        continue;
      }
    }
    add(LeaseState::active);
    for (int i = static_cast<int>(random() % 4); i > 0; --i) {
      time += up_to(5 * hour);
      if (random() % 2 == 0) {
        vram += up_to(gib);
        add(LeaseState::active);
        continue;
      }
      for (const LeaseState state :
           {LeaseState::pausing, LeaseState::paused, LeaseState::resuming, LeaseState::active}) {
        add(state);
        time += up_to(state == LeaseState::paused ? 4 * hour : 9'000);
      }
    }
    time += up_to(9 * hour);
    add(LeaseState::ended);
  }
  std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  return events;
}

struct Expected {
  std::map<std::uint64_t, std::int64_t> leased{}, waited{}, pauses{};
  std::size_t waits = 0;
};

// Integrates each lease's own events, one by one.
Expected independently(const std::vector<LeaseFact>& events, Ms until) {
  std::map<std::uint64_t, std::vector<const LeaseFact*>> by_lease;
  for (const LeaseFact& event : events) by_lease[event.lease.number].push_back(&event);
  Expected expected;
  for (const auto& [lease, own] : by_lease) {
    bool was_granted = false;
    for (std::size_t i = 0; i < own.size(); ++i) {
      const Ms to = i + 1 < own.size() ? own[i + 1]->at : std::max(until, own[i]->at);
      const Ms passed = to - own[i]->at;
      switch (own[i]->state) {
        case LeaseState::queued: expected.waited[lease] += passed; break;
        case LeaseState::active:
        case LeaseState::pausing:
        case LeaseState::resuming:
          expected.leased[lease] += passed * own[i]->vram * static_cast<std::int64_t>(own[i]->devices.size());
          was_granted = true;
          break;
        default: break;
      }
      if (own[i]->state == LeaseState::pausing) ++expected.pauses[lease];
    }
    const bool ended = own.back()->state == LeaseState::ended;
    if (was_granted || ended) ++expected.waits;
  }
  return expected;
}

TEST(Integrator, AMonthWithTwentyRestartsIsExact) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    std::mt19937_64 random(seed);
    const std::vector<LeaseFact> events = month(random);
    const Ms until = events.back().at + 1'000;
    Sums sums;
    Integrator meter(start);
    nlohmann::json stored = meter.write();
    std::size_t taken = 0, stored_taken = 0;
    int restarts = 0;
    while (taken < events.size()) {
      if (taken > events.size() * static_cast<std::size_t>(restarts + 1) / 21) {
        // The daemon is killed: what was not flushed is lost, and the events after the last flush are read again.
        ++restarts;
        auto again = Integrator::read(nlohmann::json::parse(stored.dump()));
        ASSERT_TRUE(again) << again.error().detail;
        meter = std::move(*again);
        taken = stored_taken;
      }
      const std::size_t burst = std::min(events.size(), taken + 1 + random() % 5);
      while (taken < burst) meter.take(events[taken++]);
      if (random() % 3 != 0) continue;
      sums.add(meter.flush(taken < events.size() ? events[taken].at : until));
      stored = meter.write();
      stored_taken = taken;
    }
    sums.add(meter.flush(until));
    ASSERT_EQ(restarts, 20);
    const Expected expected = independently(events, until);
    EXPECT_EQ(sums.waits.size(), expected.waits);
    std::int64_t pauses = 0;
    for (const auto& [lease, row] : sums.rows) {
      const auto at = [&, id = lease](const auto& map) { return map.contains(id) ? map.at(id) : 0; };
      EXPECT_EQ(sums.leases[lease].leased, at(expected.leased)) << lease;
      const auto leased = static_cast<double>(at(expected.leased));
      EXPECT_NEAR(row.leased, leased, 1e-12 * leased) << lease;  // the cells above are exact
      EXPECT_EQ(sums.leases[lease].waited_ms, at(expected.waited)) << lease;
      EXPECT_EQ(sums.leases[lease].pauses_suffered, at(expected.pauses)) << lease;
      pauses += sums.leases[lease].pauses_suffered;
    }
    EXPECT_GT(pauses, 100);
    EXPECT_GT(sums.rows.size(), 1000U);
    // Each waited second is charged to somebody, exactly once.
    double charged = 0;
    std::int64_t waited = 0;
    for (const auto& [pair, ms] : sums.pairs) charged += ms;
    for (const auto& [lease, ms] : expected.waited) waited += ms;
    EXPECT_NEAR(charged, static_cast<double>(waited), 1.0);
  }
}

TEST(ParseEvent, LeasesAndSessions) {
  const auto paused = parse_event(
      "lease",
      R"({"type":"lease","at":"2025-11-24T16:00:00.123Z","lease":"lease-7","state":"paused","end_reason":null,)"
      R"("kind":"paused","code":"paused","text":"x","args":{"parked_bytes":5,"preemptor":"lease-9 (chat, ben"},)"
      R"("user":"ana","tenant":"lab","consumer":"train","tag":null,"tier":"batch","vram_bytes":9,"devices":["g0"],)"
      R"("generation":3})");
  const auto* lease = std::get_if<LeaseFact>(&paused);
  ASSERT_NE(lease, nullptr);
  EXPECT_EQ(lease->at, 1'764'000'000'123);
  EXPECT_EQ(lease->lease, LeaseId{7});
  EXPECT_EQ(lease->account, (Account{"ana", "lab", "train"}));
  EXPECT_EQ(lease->parked_bytes, 5);
  EXPECT_EQ(lease->preemptor, LeaseId{9});
  EXPECT_FALSE(lease->held_back);
  const auto held_back = parse_event(
      "lease",
      R"({"type":"lease","at":"2025-11-24T16:00:00.123Z","lease":"lease-7","state":"queued","end_reason":null,)"
      R"("user":"ana","tenant":"lab","consumer":"train","vram_bytes":9,"devices":[],"held_back":true})");
  ASSERT_TRUE(std::holds_alternative<LeaseFact>(held_back));
  EXPECT_TRUE(std::get<LeaseFact>(held_back).held_back);
  const auto session = parse_event(
      "session", R"({"type":"session","at":"2025-11-24T16:00:00.000Z","session":"session-1","lease":"lease-7"})");
  ASSERT_TRUE(std::holds_alternative<SessionFact>(session));
  for (const char* bad : {"", "{}", "[]", "null", R"({"at":"x"})", R"({"at":"2025-11-24T16:00:00.123Z","lease":7})"})
    EXPECT_TRUE(std::holds_alternative<std::monostate>(parse_event("lease", bad))) << bad;
  EXPECT_TRUE(std::holds_alternative<std::monostate>(parse_event("device", "{}")));
}

}  // namespace
}  // namespace sublet::meter
