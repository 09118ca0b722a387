// SPDX-License-Identifier: Apache-2.0
#include "engine/event_reader.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace sublet::engine {

namespace asio = boost::asio;

asio::awaitable<std::optional<std::vector<EventLog::Event>>> read_events(Engine& engine, std::uint64_t after,
                                                                         std::size_t limit) {
  if (engine.commits().log().holds(after)) co_return engine.commits().log().above(after, limit);
  struct Pending {
    explicit Pending(const asio::any_io_executor& executor)
        : wake(executor, std::chrono::steady_clock::time_point::max()) {}
    asio::steady_timer wake;
    std::optional<Result<std::vector<store::LoggedEvent>>> found;
  };
  auto pending = std::make_shared<Pending>(co_await asio::this_coro::executor);
  engine.commits().read([pending, after, limit](store::Reader& reader) {
    auto found = reader.events(after, limit);
    return [pending, found = std::move(found)]() mutable {
      pending->found = std::move(found);
      pending->wake.cancel();
    };
  });
  while (!pending->found) co_await pending->wake.async_wait(asio::as_tuple(asio::use_awaitable));
  if (!*pending->found) co_return std::nullopt;
  std::vector<EventLog::Event> events;
  for (store::LoggedEvent& event : **pending->found)
    events.push_back(std::make_shared<const store::LoggedEvent>(std::move(event)));
  co_return events;
}

}  // namespace sublet::engine
