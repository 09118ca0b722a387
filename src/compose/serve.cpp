// SPDX-License-Identifier: Apache-2.0
#include "compose/serve.h"

#include "compose/protocol.h"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <deque>
#include <map>
#include <memory>

namespace sublet::compose {
namespace {

namespace asio = boost::asio;
using asio::local::stream_protocol;
using nlohmann::json;
constexpr auto quiet = asio::as_tuple(asio::use_awaitable);

// Logs wait while so much is not sent.
constexpr std::size_t most_waiting = std::size_t{1} << 20;

class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(stream_protocol::socket socket, std::shared_ptr<LocalWorker> worker)
      : socket_(std::move(socket)),
        worker_(std::move(worker)),
        sent_(socket_.get_executor(), std::chrono::steady_clock::time_point::max()) {}

  asio::awaitable<Status> run();

 private:
  void send(const json& message);
  asio::awaitable<void> write();
  asio::awaitable<void> pace();
  Status take(const std::string& line);
  Status call(const std::string& verb, const json& with, const std::string& line);
  void read_logs(std::uint64_t id, const LogQuery& query);
  Worker::Done answer(std::uint64_t id);

  stream_protocol::socket socket_;
  std::shared_ptr<LocalWorker> worker_;
  std::deque<std::string> queue_;
  std::size_t waiting_ = 0;  // bytes in the queue
  bool writing_ = false, closed_ = false;
  asio::steady_timer sent_;                      // cancelled whenever something was sent
  std::map<std::uint64_t, std::uint64_t> logs_;  // by request: the worker's number
  std::uint64_t id_ = 0;                         // of the request that is being taken
};

void Session::send(const json& message) {
  if (closed_) return;
  queue_.push_back(to_line(message));
  waiting_ += queue_.back().size();
  if (writing_) return;
  writing_ = true;
  asio::co_spawn(
      socket_.get_executor(), [self = shared_from_this()]() -> asio::awaitable<void> { co_await self->write(); },
      [](const std::exception_ptr& failure) {
        if (failure) std::rethrow_exception(failure);
      });
}

asio::awaitable<void> Session::write() {
  while (!queue_.empty() && !closed_) {
    const std::string line = std::move(queue_.front());
    queue_.pop_front();
    const auto [error, size] = co_await asio::async_write(socket_, asio::buffer(line), quiet);
    waiting_ -= line.size();
    sent_.cancel();
    if (error) closed_ = true;  // the reader sees the end, too
  }
  writing_ = false;
}

asio::awaitable<void> Session::pace() {
  while (waiting_ > most_waiting && !closed_) co_await sent_.async_wait(quiet);
}

asio::awaitable<Status> Session::run() {
  worker_->on_engine([this](const Engine& engine) { send({{"engine", to_json(engine)}}); });
  worker_->on_observation([this](const Observation& seen) { send({{"observation", to_json(seen)}}); });
  worker_->pace_logs([self = weak_from_this()]() -> asio::awaitable<void> {
    if (const auto session = self.lock()) co_await session->pace();
  });
  send({{"hello", protocol_version}, {"program", "sublet-stacks " SUBLET_VERSION}});
  Status status;
  Lines lines;
  std::array<char, 65536> piece;
  while (status && !closed_) {
    const auto [error, size] = co_await socket_.async_read_some(asio::buffer(piece), quiet);
    if (error) break;
    if (!lines.feed({piece.data(), size})) status = bad_request("a message of the daemon is too long");
    while (status) {
      const auto line = lines.next();
      if (!line) break;
      status = take(*line);
    }
  }
  closed_ = true;
  sent_.cancel();
  boost::system::error_code ignored;
  socket_.close(ignored);
  worker_->stop();
  co_return status;
}

Worker::Done Session::answer(std::uint64_t id) {
  return [self = shared_from_this(), id](const Status& status) {
    self->logs_.erase(id);
    if (status) self->send({{"id", id}});
    else self->send({{"id", id}, {"error", to_json(status.error())}});
  };
}

Status Session::take(const std::string& line) {
  const auto message = parse_line(line);
  if (!message) return message.error();
  const json& whole = message->root;
  const auto verb = whole.find("do");
  const auto with = whole.find("with");
  const auto id = whole.find("id");
  const bool complete =
      verb != whole.end() && verb->is_string() && with != whole.end() && id != whole.end() && id->is_number_unsigned();
  if (!complete) return bad_request("a request of the daemon lacks \"id\", \"do\" or \"with\"");
  id_ = id->get<std::uint64_t>();
  return call(verb->get<std::string>(), *with, line);
}

Status Session::call(const std::string& verb, const json& with, const std::string& line) {
  if (verb == "describe") {
    if (const auto sources = from_json<Sources>(with)) {
      worker_->describe(*sources, [self = shared_from_this(), id = id_](Result<std::vector<Description>> stacks) {
        if (!stacks) return self->send({{"id", id}, {"error", to_json(stacks.error())}});
        json list = json::array();
        for (const Description& stack : *stacks) list.push_back(to_json(stack));
        self->send({{"id", id}, {"stacks", std::move(list)}});
      });
      return {};
    }
  } else if (verb == "up") {
    if (const auto start = from_json<Start>(with)) return worker_->up(*start, answer(id_)), Status();
  } else if (verb == "pull") {
    if (const auto start = from_json<Start>(with)) return worker_->pull(*start, answer(id_)), Status();
  } else if (verb == "down") {
    if (const auto stop = from_json<Stop>(with)) return worker_->down(*stop, answer(id_)), Status();
  } else if (verb == "watch") {
    if (const auto projects = from_json<std::vector<std::string>>(with)) return worker_->watch(*projects), Status();
  } else if (verb == "logs") {
    if (const auto query = from_json<LogQuery>(with)) return read_logs(id_, *query), Status();
  } else if (verb == "stop_logs") {
    if (const auto request = from_json<std::uint64_t>(with)) {
      const auto found = logs_.find(*request);
      if (found != logs_.end()) worker_->stop_logs(found->second);
      logs_.erase(*request);
      return {};
    }
  }
  return bad_request(fmt::format("the request '{}' of the daemon is invalid", line.substr(0, 100)));
}

void Session::read_logs(std::uint64_t id, const LogQuery& query) {
  logs_[id] = worker_->logs(
      query,
      [self = shared_from_this(), id](std::string text) {
        self->send({{"log", id}, {"text", std::move(text)}});
      },
      answer(id));
}

}  // namespace

asio::awaitable<Status> serve(stream_protocol::socket socket, LocalOptions options) {
  auto& io = static_cast<asio::io_context&>(socket.get_executor().context());
  options.interposer = library_beside();
  options.daemon = peer_of(socket.native_handle());
  auto worker = LocalWorker::make(io, options);
  if (!worker) co_return worker.error();
  const auto session = std::make_shared<Session>(std::move(socket), std::move(*worker));
  co_return co_await session->run();
}

}  // namespace sublet::compose
