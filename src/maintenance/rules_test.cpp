// SPDX-License-Identifier: Apache-2.0
#include "maintenance/rules.h"

#include <gtest/gtest.h>

namespace sublet::maintenance {
namespace {

using namespace std::chrono_literals;

const Time now{1'000'000'000'000};

OutOfService drained(std::optional<Duration> left) {
  OutOfService out{.mode = Mode::drain, .device = "GPU-1", .by = "root", .reason = "new fan", .since = now - 1h};
  if (left) out.deadline = now + *left;
  return out;
}

core::Lease lease_of(core::Pausable pausable, core::LeaseState state = core::LeaseState::active) {
  core::Lease lease;
  lease.pausable = pausable;
  lease.state = state;
  return lease;
}

TEST(Drain, PausesFirstAndEndsOnlyAtItsDeadline) {
  using core::Pausable;
  const Tried lately{now - 1s, "a debugger is attached"}, before{now - 2min, "a debugger is attached"};
  const struct {
    const char* what;
    std::optional<Duration> left;  // to the deadline; unset: none
    Pausable pausable;
    std::optional<Tried> tried;
    Act act;
  } rows[]{
      {"no deadline, pausable", {}, Pausable::automatic, {}, Act::pause},
      {"no deadline, refused a moment ago", {}, Pausable::automatic, lately, Act::nothing},
      {"no deadline, refused some time ago", {}, Pausable::automatic, before, Act::pause},
      {"no deadline, pinned", {}, Pausable::no, {}, Act::nothing},
      {"before the deadline, pinned", 1ns, Pausable::no, {}, Act::nothing},
      {"at the deadline, pinned", 0ns, Pausable::no, {}, Act::end},
      {"before the deadline, refused", 1ns, Pausable::automatic, lately, Act::nothing},
      {"after the deadline, refused before it", -1ns, Pausable::automatic, lately, Act::pause},
      {"after the deadline, refused after it a moment ago", -1h, Pausable::automatic, lately, Act::nothing},
      {"after the deadline, refused after it some time ago", -1h, Pausable::automatic, before, Act::end},
      {"after the deadline, never tried", -1h, Pausable::automatic, {}, Act::pause},
  };
  for (const auto& row : rows)
    EXPECT_EQ(next_act(drained(row.left), lease_of(row.pausable), row.tried, now), row.act) << row.what;
}

TEST(Drain, LeavesLeasesAloneThatDoNotRun) {
  using core::LeaseState;
  for (const LeaseState state : {LeaseState::queued, LeaseState::offered, LeaseState::pausing, LeaseState::paused,
                                 LeaseState::resuming, LeaseState::poisoned, LeaseState::ended})
    EXPECT_EQ(next_act(drained(-1h), lease_of(core::Pausable::no, state), {}, now), Act::nothing) << to_string(state);
  core::Lease stopping = lease_of(core::Pausable::no);
  stopping.stop_requested = true;
  EXPECT_EQ(next_act(drained(-1h), stopping, {}, now), Act::nothing);
}

TEST(Cordon, LeavesAllLeasesAlone) {
  OutOfService out = drained(-1h);
  out.mode = Mode::cordon;
  EXPECT_EQ(next_act(out, lease_of(core::Pausable::automatic), {}, now), Act::nothing);
  EXPECT_EQ(next_act(out, lease_of(core::Pausable::no), {}, now), Act::nothing);
}

TEST(OutOfService, IsReadAsItWasStored) {
  for (const auto& out : {drained(1h), drained({}), OutOfService{.device = "GPU-2", .by = "ana"},
                          OutOfService{.device = "GPU-3", .by = "Sublet", .automatic = true}}) {
    const auto read = from_row(to_row(out));
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(*read, out);
  }
  EXPECT_EQ(why_text(drained({})), "drained by root: new fan");
  EXPECT_EQ(why_text({.device = "GPU-2", .by = "ana"}), "cordoned by ana");
}

TEST(OutOfService, ARowThatCannotBeReadIsAnError) {
  for (const char* data : {"", "7", "{}", R"({"mode":1,"by":"a","reason":"","since":1})",
                           R"({"mode":"drain","by":"a","reason":"","since":"x"})",
                           R"({"mode":"drain","by":"a","reason":"","since":1,"deadline":"soon"})"})
    EXPECT_FALSE(from_row({"out_of_service", "GPU-1", data}).has_value()) << data;
}

}  // namespace
}  // namespace sublet::maintenance
