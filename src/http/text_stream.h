// SPDX-License-Identifier: Apache-2.0
// Sends a growing text, such as a log, until it ends or its reader leaves.
#pragma once

#include "http/admission.h"
#include "http/message.h"
#include "http/stream.h"

namespace sublet::http {

// The stream ends with the connection, after `write_time` without progress, or when the reader is no longer admitted.
boost::asio::awaitable<void> stream_text(Stream& stream, const Admission& admission, TextStream wanted,
                                         Duration write_time);

}  // namespace sublet::http
