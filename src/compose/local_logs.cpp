// SPDX-License-Identifier: Apache-2.0
// Logs of containers, as the engine keeps them.
#include "base/text.h"
#include "compose/description.h"
#include "compose/local_worker.h"
#include "compose/log_frames.h"

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <algorithm>

namespace sublet::compose {
namespace {

namespace asio = boost::asio;
constexpr int most_tail = 100'000;

}  // namespace

std::uint64_t LocalWorker::logs(const LogQuery& query, Chunk chunk, Done done) {
  const std::uint64_t number = ++last_reading_;
  const auto reading = std::make_shared<Reading>();
  readings_[number] = reading;
  asio::co_spawn(
      io_,
      [self = shared_from_this(), query, chunk = std::move(chunk), done = std::move(done), reading,
       number]() mutable -> asio::awaitable<void> {
        Status status = co_await self->read_logs(std::move(query), std::move(chunk), reading);
        self->readings_.erase(number);
        if (!reading->stopped) done(std::move(status));
      },
      [](const std::exception_ptr& failure) {
        if (failure) std::rethrow_exception(failure);
      });
  return number;
}

void LocalWorker::stop_logs(std::uint64_t number) {
  const auto found = readings_.find(number);
  if (found == readings_.end()) return;
  const auto reading = found->second;
  readings_.erase(found);
  reading->stopped = true;
  for (const auto& stop : reading->stops) {
    if (stop) stop();
  }
}

asio::awaitable<Status> LocalWorker::read_logs(LogQuery query, Chunk chunk, std::shared_ptr<Reading> reading) {
  if (!is_project_name(query.project)) {
    co_return bad_request(fmt::format("'{}' cannot name a Compose project", printable(query.project)));
  }
  query.tail = std::clamp(query.tail, 0, most_tail);
  auto seen = co_await watch_->look(query.project);
  if (!seen) co_return seen.error();
  std::erase_if(seen->containers,
                [&](const Container& one) { return !query.service.empty() && one.service != query.service; });
  if (seen->containers.empty()) {
    co_return not_found(query.service.empty()
                            ? fmt::format("the project '{}' has no containers", query.project)
                            : fmt::format("the service '{}' has no containers", printable(query.service)));
  }
  reading->stops.resize(seen->containers.size());
  // All at the same time, since each may last; the first error is told.
  auto left = std::make_shared<std::size_t>(seen->containers.size());
  auto result = std::make_shared<Status>();
  asio::steady_timer ended(io_, std::chrono::steady_clock::time_point::max());
  for (std::size_t i = 0; i < seen->containers.size(); ++i) {
    auto one = [self = shared_from_this(), container = seen->containers[i], query, chunk, reading, left, result, i,
                &ended]() -> asio::awaitable<void> {
      Status status = co_await self->read_log(container, query, chunk, reading, &reading->stops[i]);
      if (!status && *result) *result = std::move(status);
      if (--*left == 0) ended.cancel();
    };
    asio::co_spawn(io_, std::move(one), [](const std::exception_ptr& failure) {
      if (failure) std::rethrow_exception(failure);
    });
  }
  constexpr auto quiet = asio::as_tuple(asio::use_awaitable);
  while (*left > 0) co_await ended.async_wait(quiet);
  co_return *result;
}

asio::awaitable<Status> LocalWorker::read_log(Container container, LogQuery query, Chunk chunk,
                                              std::shared_ptr<Reading> reading, std::function<void()>* stop) {
  const std::string path = "/containers/" + encode_query(container.id);
  const auto document = co_await watch_->client().get(path + "/json");
  if (!document) co_return document.error();
  LogFrames frames(container.service, has_terminal(document->root));
  net::Reader reader;
  reader.piece = [&](std::string_view piece) -> asio::awaitable<bool> {
    std::string text = frames.feed(piece);
    if (reading->stopped) co_return false;
    if (!text.empty()) chunk(std::move(text));
    if (pace_) co_await pace_();
    co_return !reading->stopped;
  };
  const std::string target =
      fmt::format("{}/logs?stdout=1&stderr=1&tail={}&follow={}", path, query.tail, query.follow ? 1 : 0);
  Status status = co_await watch_->client().stream(target, std::move(reader), stop);
  std::string rest = frames.end();
  if (!rest.empty() && !reading->stopped) chunk(std::move(rest));
  co_return status;
}

}  // namespace sublet::compose
