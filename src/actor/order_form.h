// SPDX-License-Identifier: Apache-2.0
// The form of an order: which fields a verb takes, and how many descriptors. Pure functions, any thread.
#pragma once

#include "actor/protocol.h"

#include <cstddef>

namespace sublet::actor {

bool well_formed(const Order& order);
std::size_t descriptors_of(const Order& order);

}  // namespace sublet::actor
