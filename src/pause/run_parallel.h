// SPDX-License-Identifier: Apache-2.0
// Runs pieces of work in parallel on one thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <functional>

namespace sublet::pause {

// Runs the pieces 0 to count - 1, started in that order, at most `most` at a time. Returns when all are done. Then
// throws an exception of a piece, if there was one.
boost::asio::awaitable<void> run_parallel(boost::asio::io_context& io, std::size_t count, std::size_t most,
                                          std::function<boost::asio::awaitable<void>(std::size_t)> piece);

}  // namespace sublet::pause
