// SPDX-License-Identifier: Apache-2.0
// Pieces of work beside each other, on one thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <functional>

namespace sublet::engine {

// Does pieces 0 to count - 1, begun in that order, at most `most` of them at a time. Returns when all are done; throws
// then what one of them threw.
boost::asio::awaitable<void> run_parallel(boost::asio::io_context& io, std::size_t count, std::size_t most,
                                          std::function<boost::asio::awaitable<void>(std::size_t)> piece);

}  // namespace sublet::engine
