// SPDX-License-Identifier: Apache-2.0
// Small parts that the files of the capability share.
#pragma once

#include "credit/channel.h"
#include "lease/lease.h"
#include "limit/questions.h"

namespace sublet::limit {

// A caller that has left gets no answer.
inline void answer(const Asked& asked, sublet_credit_result result) {
  (void)credit::answer(asked.connection.get(), result);
}

inline bool is_limited(const core::Lease* lease) {
  return lease != nullptr && lease->reserves() && !lease->devices.empty();
}

}  // namespace sublet::limit
