// SPDX-License-Identifier: Apache-2.0
// Sends events as they become durable, until the reader goes or falls behind what is kept.
#pragma once

#include "http/message.h"
#include "http/stream.h"

namespace sublet::http {

// Each reader is a place in the engine's log, never a buffer: what it has not taken is read again, from memory or from
// the store, when it takes more. Ends with the connection, or when the reader takes nothing for `write_time`:
// then the last that it will find is a gap.
boost::asio::awaitable<void> stream_events(Stream& stream, engine::Engine& engine, FollowEvents wanted,
                                           Duration write_time);

}  // namespace sublet::http
