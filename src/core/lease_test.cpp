// SPDX-License-Identifier: Apache-2.0
#include "core/lease.h"

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

}  // namespace
}  // namespace sublet::core
