// SPDX-License-Identifier: Apache-2.0
// Sends events as they become durable, until the reader leaves, falls behind the stored events, or is no longer
// admitted.
#pragma once

#include "http/admission.h"
#include "http/message.h"
#include "http/readings.h"
#include "http/stream.h"

namespace sublet::http {

// A reader is a position in the engine's log, without a buffer: events are read again from memory or the store when the
// reader takes more. The stream ends with the connection, after `write_time` without progress, or when the reader is no
// longer admitted; the last event is then a gap.
boost::asio::awaitable<void> stream_events(Stream& stream, engine::Engine& engine, Readings& readings,
                                           const Admission& admission, FollowEvents wanted, Duration write_time);

}  // namespace sublet::http
