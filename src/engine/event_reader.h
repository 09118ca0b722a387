// SPDX-License-Identifier: Apache-2.0
// Reads events from the memory of the log, or from the store if they are older.
#pragma once

#include "engine/engine.h"

#include <boost/asio/awaitable.hpp>

#include <optional>
#include <vector>

namespace sublet::engine {

// Returns the first durable events above `after`, at most `limit`. Nothing while the store cannot be read.
boost::asio::awaitable<std::optional<std::vector<EventLog::Event>>> read_events(Engine& engine, std::uint64_t after,
                                                                                std::size_t limit);

}  // namespace sublet::engine
