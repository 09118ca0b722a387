// SPDX-License-Identifier: Apache-2.0
// Serves one daemon on a connected socket (compose/protocol.h). Belongs to the loop thread of `sublet-stacks`.
#pragma once

#include "compose/local_worker.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/local/stream_protocol.hpp>

namespace sublet::compose {

// Serves until the daemon closes the connection or says something invalid. Then the programs that still run are ended.
// An error: the worker cannot begin, or the daemon's message was invalid.
boost::asio::awaitable<Status> serve(boost::asio::local::stream_protocol::socket socket, LocalOptions options);

}  // namespace sublet::compose
