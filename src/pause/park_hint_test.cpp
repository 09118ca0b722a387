// SPDX-License-Identifier: Apache-2.0
#include "pause/park_hint.h"

#include "gpu/checkpoint_line.h"

#include <gtest/gtest.h>

namespace sublet::pause {
namespace {

using gpu::CheckpointRefusal;

TEST(ParkHint, WhateverAPauseIsRefusedForHasOne) {
  for (const auto refusal : {CheckpointRefusal::no_right, CheckpointRefusal::not_dumpable, CheckpointRefusal::traced,
                             CheckpointRefusal::stopped, CheckpointRefusal::unsupported_driver,
                             CheckpointRefusal::no_driver, CheckpointRefusal::no_cuda, CheckpointRefusal::wrong_state,
                             CheckpointRefusal::timeout, CheckpointRefusal::driver})
    EXPECT_NE(park_hint(to_string(refusal)), "") << to_string(refusal);
  EXPECT_EQ(park_hint("gone"), "") << "it has ended: there is nothing to be done";
}

}  // namespace
}  // namespace sublet::pause
