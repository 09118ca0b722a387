// SPDX-License-Identifier: Apache-2.0
#include "pause/run_parallel.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>
#include <exception>
#include <memory>

namespace sublet::pause {
namespace {

namespace asio = boost::asio;

// Several coroutines. Each takes the next piece of work until none is left.
struct Crew {
  explicit Crew(asio::io_context& io) : wake(io) { wake.expires_at(asio::steady_timer::time_point::max()); }
  asio::steady_timer wake;
  std::size_t next = 0;
  std::size_t at_work = 0;
  std::exception_ptr failure;
};

asio::awaitable<void> work(std::shared_ptr<Crew> crew, std::size_t count,
                           std::function<asio::awaitable<void>(std::size_t)> piece) {
  while (crew->next < count) co_await piece(crew->next++);
}

}  // namespace

asio::awaitable<void> run_parallel(asio::io_context& io, std::size_t count, std::size_t most,
                                   std::function<asio::awaitable<void>(std::size_t)> piece) {
  const auto crew = std::make_shared<Crew>(io);
  for (std::size_t i = 0; i < std::min(count, most); ++i) {
    ++crew->at_work;
    asio::co_spawn(io, work(crew, count, piece), [crew](const std::exception_ptr& failure) {
      if (failure) crew->failure = failure;
      if (--crew->at_work == 0) crew->wake.cancel();
    });
  }
  while (crew->at_work > 0) co_await crew->wake.async_wait(asio::as_tuple(asio::use_awaitable));
  if (crew->failure) std::rethrow_exception(crew->failure);
}

}  // namespace sublet::pause
