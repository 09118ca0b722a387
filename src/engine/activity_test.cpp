// SPDX-License-Identifier: Apache-2.0
#include "engine/activity.h"

#include "core/step.h"

#include <gtest/gtest.h>

#include <vector>

namespace sublet::engine {
namespace {

using namespace std::chrono_literals;
using State = LeaseActivity::State;
using Percent = std::optional<int>;

constexpr LeaseId ours{1}, theirs{2};

struct Use {
  LeaseId lease;
  Percent percent;
};

core::DeviceReading reading(Percent device, const std::vector<Use>& uses) {
  core::DeviceReading made{.uuid = "GPU-0", .name = "Card", .index = 0, .pci_bus_id = "", .total = 24 * GiB};
  made.busy_percent = device;
  int pid = 10;
  for (const Use& use : uses)
    made.processes.push_back({.process = {++pid, 1}, .used = MiB, .lease = use.lease, .busy_percent = use.percent});
  made.used = static_cast<std::int64_t>(uses.size()) * MiB;
  return made;
}

TEST(ActivityOn, JudgesTheProcessesOfALease) {
  struct Row {
    const char* what;
    Percent device;
    std::vector<Use> uses;
    State state;
  };
  const std::vector<Row> rows{
      {"no process at all", 0, {}, State::idle},
      {"only processes of others", 90, {{theirs, 90}}, State::idle},
      {"its process works", 90, {{ours, 1}}, State::busy},
      {"its process does nothing", 90, {{ours, 0}, {theirs, 90}}, State::idle},
      {"one of two works", 40, {{ours, 0}, {ours, 40}}, State::busy},
      {"no figures at all", {}, {{ours, {}}}, State::unknown},
      {"no figure of the process, and an idle device", 0, {{ours, {}}, {theirs, {}}}, State::idle},
      {"no figure of the process, which is alone on a busy device", 30, {{ours, {}}}, State::busy},
      {"no figure of the process, and the others do nothing", 30, {{ours, {}}, {theirs, 0}}, State::busy},
      {"no figure of the process, and another works", 30, {{ours, {}}, {theirs, 30}}, State::unknown},
      {"no figures of two processes on a busy device", 30, {{ours, {}}, {theirs, {}}}, State::unknown},
      {"one works, and one is unknown", 30, {{ours, 5}, {ours, {}}}, State::busy},
      {"one does nothing, and one is unknown", {}, {{ours, 0}, {ours, {}}}, State::unknown},
  };
  for (const Row& row : rows) EXPECT_EQ(activity_on(reading(row.device, row.uses), ours), row.state) << row.what;
}

// A state with one granted lease, which is changed by facts only.
class ActivitiesTest : public testing::Test {
 protected:
  ActivitiesTest() {
    read(reading(0, {}));
    core::Lease lease;
    lease.uid = 1000;
    lease.user = lease.tenant = "ana";
    lease.consumer = "train";
    lease.vram = GiB;
    lease.owner.kind = core::OwnerKind::token;
    lease.ttl = 10h;
    const auto made = core::step(state_, rules_, core::Submit{.lease = lease, .held = true}, now_).outcome;
    EXPECT_TRUE(made);
    id_ = *made;
    (void)core::step(state_, rules_, core::Claim{id_}, now_);
    EXPECT_EQ(core::find(state_, id_)->state, core::LeaseState::active);
  }

  void read(const core::DeviceReading& device) {
    now_ = now_ + 1s;
    (void)core::step(state_, rules_, core::Snapshot{.began = now_, .devices = {device}}, now_);
    activities_.observe(state_, rules_, now_);
  }
  void read(Percent percent) { read(reading(percent, {{id_, percent}})); }
  LeaseActivity activity() const { return activities_.of(id_, state_, rules_, now_); }

  core::Rules rules_;
  core::State state_;
  Activities activities_;
  Time now_{1'000'000'000'000'000'000};
  LeaseId id_;
};

TEST_F(ActivitiesTest, ALeaseIsIdleSinceItsLastWork) {
  EXPECT_EQ(activity(), LeaseActivity{}) << "no reading yet";
  read(0);
  const Time granted = now_;
  EXPECT_EQ(activity(), (LeaseActivity{State::idle, granted})) << "the grant counts";
  read(0);
  EXPECT_EQ(activity(), (LeaseActivity{State::idle, granted}));
  read(5);
  EXPECT_EQ(activity(), (LeaseActivity{State::busy, now_}));
  const Time worked = now_;
  read(0);
  EXPECT_EQ(activity(), (LeaseActivity{State::idle, worked}));
}

TEST_F(ActivitiesTest, IdleTimeGoesOnWhereAPauseBegan) {
  const std::pair<core::PauseCauseKind, Duration> cases[] = {
      {core::PauseCauseKind::tier, 1h}, {core::PauseCauseKind::slice, 1h}, {core::PauseCauseKind::idle, 0s}};
  for (const auto& [cause, moved] : cases) {
    read(5);
    const Time worked = now_;
    read(0);
    for (const Time until = now_ + 1h; now_ < until;) read(0);  // nobody saw it work meanwhile
    activities_.resumed({id_, 1h, cause});
    read(0);
    EXPECT_EQ(activity(), (LeaseActivity{State::idle, worked + moved})) << to_string(cause);
  }
}

TEST_F(ActivitiesTest, UnknownCountsAsActivity) {
  read(0);
  read(std::nullopt);
  EXPECT_EQ(activity(), (LeaseActivity{State::unknown, now_}));
  auto broken = reading(0, {{id_, 0}});
  broken.problem = "nvmlDeviceGetMemoryInfo: unknown error (999)";
  read(broken);
  EXPECT_EQ(activity(), (LeaseActivity{State::unknown, now_})) << "the reading is not usable";
}

TEST_F(ActivitiesTest, BytesWithoutAListedProcessAreUnknown) {
  read(0);
  auto unlisted = reading(0, {});
  unlisted.used = MiB;
  read(unlisted);
  EXPECT_EQ(core::charge_on(state_, id_, "GPU-0").used > Bytes{}, activity().state == State::unknown);
}

TEST_F(ActivitiesTest, WithoutAFreshReadingItIsUnknown) {
  read(0);
  const Time granted = now_;
  now_ = now_ + rules_.max_age;
  EXPECT_EQ(activity(), (LeaseActivity{State::idle, granted}));
  now_ = now_ + 1s;
  EXPECT_EQ(activity().state, State::unknown);
  read(0);
  EXPECT_EQ(activity(), (LeaseActivity{State::idle, now_})) << "nobody knows what it did";
}

TEST_F(ActivitiesTest, ATouchIsActivity) {
  read(0);
  now_ = now_ + 10s;
  activities_.touch(id_, now_);
  const Time touched = now_;
  read(0);
  EXPECT_EQ(activity(), (LeaseActivity{State::idle, touched}));
}

TEST_F(ActivitiesTest, AGapOfTheClockIsNoIdleness) {
  read(0);
  const Time granted = now_;
  activities_.forgive(1h);
  EXPECT_EQ(activity(), (LeaseActivity{State::idle, granted + 1h}));
}

TEST_F(ActivitiesTest, EndedLeasesAreForgotten) {
  read(0);
  (void)core::step(state_, rules_, core::Release{.lease = id_, .force = true}, now_);
  read(reading(0, {}));
  EXPECT_EQ(activity(), LeaseActivity{});
}

}  // namespace
}  // namespace sublet::engine
