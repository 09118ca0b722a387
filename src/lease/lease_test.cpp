// SPDX-License-Identifier: Apache-2.0
#include "lease/lease.h"

#include <gtest/gtest.h>

namespace sublet::core {
namespace {

TEST(LeaseText, EveryStateAndReasonComesBackFromItsText) {
  for (const auto state : {LeaseState::queued, LeaseState::offered, LeaseState::active, LeaseState::pausing,
                           LeaseState::paused, LeaseState::resuming, LeaseState::poisoned, LeaseState::ended})
    EXPECT_EQ(parse_lease_state(to_string(state)), state);
  for (int i = 0; i <= static_cast<int>(EndReason::lost); ++i) {
    const auto reason = static_cast<EndReason>(i);
    EXPECT_EQ(parse_end_reason(to_string(reason)), reason);
  }
  for (const auto tier : {Tier::spot, Tier::batch, Tier::standard, Tier::interactive, Tier::critical})
    EXPECT_EQ(parse_tier(to_string(tier)), tier);
  for (const auto how :
       {Pausable::automatic, Pausable::cooperative, Pausable::interposer, Pausable::driver, Pausable::no})
    EXPECT_EQ(parse_pausable(to_string(how)), how);
  for (const auto kind : {OwnerKind::connection, OwnerKind::process, OwnerKind::token})
    EXPECT_EQ(parse_owner_kind(to_string(kind)), kind);
}

TEST(LeaseText, WhatIsNoneOfThemIsRefused) {
  EXPECT_FALSE(parse_lease_state("Queued"));
  EXPECT_FALSE(parse_lease_state(""));
  EXPECT_FALSE(parse_end_reason("gone"));
  EXPECT_FALSE(parse_tier("unknown"));
  EXPECT_FALSE(parse_pausable("automatic"));
  EXPECT_FALSE(parse_owner_kind("pid"));
}

TEST(LeaseText, NamesAreThoseOfTheApi) {
  EXPECT_EQ(to_string(EndReason::owner_gone), "owner_gone");
  EXPECT_EQ(to_string(Pausable::automatic), "auto");
  EXPECT_EQ(to_string(LeaseState::poisoned), "poisoned");
}

TEST(Lease, KeepsTheMeanOfTheSizesThatItHad) {
  Lease lease;
  lease.granted_at = Time{1000};
  lease.vram = 4 * GiB;
  lease.parked_for = Duration(100);
  lease.count_size(Time{1200});
  EXPECT_EQ(lease.sized, (Sized{4 * GiB, Time{1200}, Duration(100)}));
  lease.vram = GiB;
  lease.count_size(Time{1500});
  EXPECT_EQ(lease.sized, (Sized{Bytes{(100 * 4 * GiB.count + 300 * GiB.count) / 400}, Time{1500}, Duration(100)}));
  lease.vram = 2 * GiB;
  lease.count_size(Time{1500});
  EXPECT_EQ(lease.sized->mean, Bytes{(100 * 4 * GiB.count + 300 * GiB.count) / 400}) << "had for no time at all";
}

}  // namespace
}  // namespace sublet::core
