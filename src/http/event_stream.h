// SPDX-License-Identifier: Apache-2.0
// Sends events as they become durable, until the reader goes, falls behind what is kept, or would not be
// let in any more.
#pragma once

#include "http/admission.h"
#include "http/message.h"
#include "http/stream.h"

namespace sublet::http {

// Each reader is a place in the engine's log, never a buffer: what it has not taken is read again, from memory or from
// the store, when it takes more. Ends with the connection, or when the reader takes nothing for `write_time`,
// or is let in no more: then the last that it will find is a gap.
boost::asio::awaitable<void> stream_events(Stream& stream, engine::Engine& engine, const Admission& admission,
                                           FollowEvents wanted, Duration write_time);

}  // namespace sublet::http
