// SPDX-License-Identifier: Apache-2.0
#include "engine/event_log.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include "core/step.h"

namespace sublet::engine {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr Time noon{1'700'000'000'000'000'000};

core::Lease lease_of(std::uint64_t id) {
  core::Lease lease;
  lease.id = {id};
  lease.user = "ana";
  lease.consumer = "train";
  lease.command = "python3 secret.py";
  lease.state = core::LeaseState::active;
  lease.vram = GiB;
  return lease;
}

core::Plan plan_about(std::initializer_list<core::Lease> leases) {
  core::Plan plan;
  for (const core::Lease& lease : leases) {
    plan.changed.push_back(lease);
    plan.reasons.push_back({lease.id, noon, core::ReasonKind::granted, core::args("vram", GiB)});
  }
  return plan;
}

const core::Lease* nobody(LeaseId) { return nullptr; }

json data_of(const EventLog::Event& event) { return json::parse(event->data); }

struct Log : EventLog, testing::Test {
  Log() { open(0, "5eed"); }

  // Writes an event in a batch of its own.
  Event write(std::uint64_t sequence) {
    const Event event = of_daemon("started", noon);
    intended(sequence, {event});
    return event;
  }
  void write_and_commit(int count) {
    for (int i = 0; i < count; ++i) write(++sequence_);
    committed(sequence_);
  }
  std::vector<std::uint64_t> numbers(std::uint64_t after, std::size_t limit = 1000) const {
    std::vector<std::uint64_t> found;
    for (const Event& event : above(after, limit)) found.push_back(event->number);
    return found;
  }

  std::uint64_t sequence_ = 0;
};

using Numbers = std::vector<std::uint64_t>;

TEST_F(Log, TellsWhatIsDurableAndNothingElse) {
  write(1);
  write(2);
  write(2);
  EXPECT_EQ(last(), 0U);
  EXPECT_TRUE(numbers(0).empty());
  EXPECT_TRUE(committed(1));
  EXPECT_EQ(last(), 1U);
  EXPECT_EQ(numbers(0), Numbers{1});
  EXPECT_FALSE(committed(1)) << "nothing new";
  EXPECT_TRUE(committed(7)) << "all batches up to that one";
  EXPECT_EQ(numbers(0), (Numbers{1, 2, 3}));
}

TEST_F(Log, AReaderGoesOnBehindTheLastItHadAndTakesNoMoreThanItWants) {
  write_and_commit(10);
  EXPECT_EQ(numbers(0), (Numbers{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(numbers(7), (Numbers{8, 9, 10}));
  EXPECT_EQ(numbers(4, 2), (Numbers{5, 6}));
  EXPECT_EQ(numbers(4, 0), Numbers{});
  EXPECT_EQ(numbers(10), Numbers{});
  EXPECT_EQ(numbers(99), Numbers{}) << "a number that was never given";
  EXPECT_TRUE(holds(10) && holds(99) && holds(0));
}

TEST_F(Log, WhatIsNoLongerInMemoryIsNotHeld) {
  write_and_commit(1000);
  EXPECT_FALSE(holds(0));
  EXPECT_EQ(last(), 1000U);
  const Numbers kept = numbers(0);
  ASSERT_FALSE(kept.empty());
  EXPECT_LT(kept.size(), 1000U);
  EXPECT_EQ(kept.back(), 1000U);
  for (std::size_t i = 1; i < kept.size(); ++i) ASSERT_EQ(kept[i], kept[i - 1] + 1) << "without a gap";
  // A reader just behind the oldest event misses nothing. A reader further back needs the store.
  EXPECT_TRUE(holds(kept.front() - 1));
  EXPECT_FALSE(holds(kept.front() - 2));
  EXPECT_EQ(numbers(kept.front() - 1), kept);
}

TEST_F(Log, NumbersGoOnAfterARestart) {
  write_and_commit(3);
  EventLog later;
  later.open(3, "5eed");
  EXPECT_EQ(later.life(), "5eed");
  EXPECT_EQ(later.last(), 3U);
  EXPECT_TRUE(later.above(0, 10).empty());
  EXPECT_FALSE(later.holds(0)) << "those are in the store";
  EXPECT_TRUE(later.holds(3));
  EXPECT_EQ(later.of_daemon("started", noon)->number, 4U);
}

TEST_F(Log, WhatTheStoreDidNotKeepIsForgottenAndItsNumbersAreGivenAgain) {
  write_and_commit(3);
  write(9);
  write(9);
  open(3, "5eed");  // the store failed and is back, without the batch
  EXPECT_FALSE(committed(9)) << "it belongs to the store as it was";
  EXPECT_EQ(last(), 3U);
  EXPECT_EQ(numbers(0), (Numbers{1, 2, 3})) << "what was told is still there";
  EXPECT_EQ(write(1)->number, 4U);
}

TEST_F(Log, WhatTheStoreKeptUnseenIsReadFromThere) {
  write_and_commit(3);
  write(9);
  open(4, "5eed");  // the batch was kept, but its event was not sent
  EXPECT_EQ(last(), 4U);
  EXPECT_FALSE(holds(2)) << "memory would have a gap";
  EXPECT_TRUE(numbers(0).empty());
}

TEST_F(Log, AnotherStoreIsAnotherLife) {
  write_and_commit(3);
  open(3, "0ther");
  EXPECT_EQ(life(), "0ther");
  EXPECT_TRUE(numbers(0).empty()) << "those were of the store before";
}

TEST_F(Log, APlansReasonsBecomeEventsOfTheirLeases) {
  core::Lease ended = lease_of(8);
  ended.state = core::LeaseState::ended;
  ended.end_reason = core::EndReason::released;
  ended.tag = "night";
  core::Plan plan = plan_about({lease_of(7), ended});
  plan.reasons.push_back({LeaseId{9}, noon, core::ReasonKind::capacity_reserved});
  plan.reasons.push_back({LeaseId{10}, noon, core::ReasonKind::capacity_reserved});
  const core::Lease unchanged = lease_of(9);
  const auto events = of_plan(plan, [&](LeaseId id) { return id.number == 9 ? &unchanged : nullptr; });
  ASSERT_EQ(events.size(), 3U) << "each reason of a lease that is known";
  const json first = data_of(events[0]);
  EXPECT_EQ(events[0]->type, "lease");
  EXPECT_EQ(events[0]->lease, LeaseId{7});
  EXPECT_EQ(first.at("lease"), "lease-7");
  EXPECT_EQ(first.at("state"), "active");
  EXPECT_EQ(first.at("end_reason"), nullptr);
  EXPECT_EQ(first.at("tag"), nullptr);
  EXPECT_EQ(first.at("code"), "granted");
  EXPECT_EQ(events[0]->data.find("secret.py"), std::string::npos) << "everybody may read the stream";
  EXPECT_EQ(data_of(events[1]).at("end_reason"), "released");
  EXPECT_EQ(data_of(events[1]).at("tag"), "night");
  EXPECT_EQ(data_of(events[2]).at("lease"), "lease-9");
  EXPECT_TRUE(of_plan({}, nobody).empty());
}

TEST_F(Log, ADeviceIsToldOfWhenItsStateChanged) {
  core::State state;
  const core::Rules rules;
  core::DeviceReading reading;
  reading.uuid = "GPU-0";
  reading.index = 3;
  reading.total = 24 * GiB;
  const auto look = [&](Time now) { return of_changes(state, rules, {}, now); };
  core::step(state, rules, core::Snapshot{noon, {reading}}, noon);
  const auto first = look(noon);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0]->type, "device");
  EXPECT_EQ(data_of(first[0]), (json{{"type", "device"},
                                     {"at", format_rfc3339(noon)},
                                     {"device", "gpu3"},
                                     {"uuid", "GPU-0"},
                                     {"state", "ok"},
                                     {"problem", nullptr}}));
  EXPECT_TRUE(look(noon + 1s).empty());
  const auto old = look(noon + rules.max_age + 1s);
  ASSERT_EQ(old.size(), 1U);
  EXPECT_EQ(data_of(old[0]).at("state"), "unknown");
  reading.problem = "it errs";
  core::step(state, rules, core::Snapshot{noon + 20s, {reading}}, noon + 20s);
  const auto erring = look(noon + 20s);
  ASSERT_EQ(erring.size(), 1U) << "the same state, another problem";
  EXPECT_EQ(data_of(erring[0]).at("problem"), "it errs");
}

TEST_F(Log, AWarningIsToldOfWhenItBeginsAndWhenItEnds) {
  const core::State state;
  const core::Rules rules;
  const Warning gpu{"gpu", "the GPUs cannot be read", "see doctor", noon};
  const Warning store{"store", "the disk is full", "free some", noon + 1s};
  const auto begun = of_changes(state, rules, {gpu}, noon);
  ASSERT_EQ(begun.size(), 1U);
  EXPECT_EQ(data_of(begun[0]).at("state"), "begun");
  EXPECT_EQ(data_of(begun[0]).at("code"), "gpu");
  EXPECT_TRUE(of_changes(state, rules, {gpu}, noon + 5s).empty());
  const auto changed = of_changes(state, rules, {store}, noon + 6s);
  ASSERT_EQ(changed.size(), 2U);
  EXPECT_EQ(data_of(changed[0]).at("state"), "ended");
  EXPECT_EQ(data_of(changed[0]).at("since"), format_rfc3339(noon));
  EXPECT_EQ(data_of(changed[1]).at("state"), "begun");
  EXPECT_EQ(data_of(changed[1]).at("hint"), "free some");
  EXPECT_EQ(changed[1]->number, changed[0]->number + 1);
}

// The store failed before the event was durable.
TEST_F(Log, AChangeThatWasLostOnItsWayIsToldAgain) {
  const core::State state;
  const core::Rules rules;
  const Warning gpu{"gpu", "the GPUs cannot be read", "see doctor", noon}, disk{"disk", "it fills", "free some", noon};
  intended(1, of_changes(state, rules, {gpu}, noon));
  committed(1);
  intended(2, of_changes(state, rules, {disk}, noon + 1s));
  const std::uint64_t durable = last();
  open(durable, "5eed");
  const auto again = of_changes(state, rules, {disk}, noon + 9s);
  ASSERT_EQ(again.size(), 2U) << "that one ended, and that the other began";
  EXPECT_EQ(data_of(again[0]).at("code"), "gpu");
  EXPECT_EQ(data_of(again[1]).at("code"), "disk");
  EXPECT_EQ(again[0]->number, durable + 1);
  intended(3, again);
  committed(3);
  open(last(), "5eed");
  EXPECT_TRUE(of_changes(state, rules, {disk}, noon + 20s).empty()) << "nothing was lost";
  open(0, "another");
  EXPECT_EQ(of_changes(state, rules, {disk}, noon + 30s).size(), 1U) << "this store never heard of it";
}

}  // namespace
}  // namespace sublet::engine
