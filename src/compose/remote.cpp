// SPDX-License-Identifier: Apache-2.0
#include "compose/remote.h"

#include "base/clock.h"
#include "base/log.h"
#include "compose/protocol.h"
#include "proc/spawn.h"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <array>
#include <csignal>
#include <deque>
#include <map>

namespace sublet::compose {
namespace {

namespace asio = boost::asio;
using asio::local::stream_protocol;
using nlohmann::json;
constexpr auto quiet = asio::as_tuple(asio::use_awaitable);

constexpr std::chrono::milliseconds first_pause(100), longest_pause(10'000);
constexpr Duration describe_limit = std::chrono::minutes(15);
constexpr std::chrono::seconds look_interval(10);

// Only root or our own user may act as the worker: a false one could tell of containers that do not exist.
std::string check_worker(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return from_errno("SO_PEERCRED", errno).detail;
  if (peer.uid == 0 || peer.uid == ::geteuid()) return {};
  return fmt::format("the listener runs as uid {}, not as root", peer.uid);
}

void end_with_it(const std::exception_ptr& failure) {
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

// One connection to a worker.
struct Remote::Link {
  explicit Link(asio::io_context& io) : socket(io) {}
  stream_protocol::socket socket;
  pid_t child = 0;                // pid of the worker if it is our child; 0: it is not
  std::deque<std::string> queue;  // lines to send
  bool writing = false;
  bool lost = false;  // given up: nothing is read or sent any more
};

void Remote::start() {
  last_engine_.why = away().detail;
  asio::co_spawn(
      io_, [self = shared_from_this()]() -> asio::awaitable<void> { co_await self->run(); }, end_with_it);
  asio::co_spawn(
      io_, [self = shared_from_this()]() -> asio::awaitable<void> { co_await self->look(); }, end_with_it);
}

void Remote::stop() {
  stopped_ = true;
  observation = {};
  engine = {};
  pending_.clear();
  drop("stopped");
  pause_.cancel();
  looks_.cancel();
}

asio::awaitable<void> Remote::run() {
  auto pause = first_pause;
  while (!stopped_) {
    const std::string problem = co_await serve();
    if (stopped_) co_return;
    if (ready_) pause = first_pause;
    if (problem != problem_) log::warn("sublet-stacks does not work: {}", problem);
    drop(problem);
    pause_.expires_after(pause);
    co_await pause_.async_wait(quiet);
    pause = std::min(pause * 2, longest_pause);
  }
}

asio::awaitable<std::string> Remote::serve() {
  std::string problem;
  if (options_.socket.empty()) problem = spawn();
  else problem = co_await connect();
  if (!problem.empty()) co_return problem;
  problem = co_await read();
  co_return problem;
}

std::string Remote::spawn() {
  reap();
  if (::mkdir(options_.runtime.c_str(), 0700) != 0 && errno != EEXIST) {
    return from_errno("cannot make " + options_.runtime, errno).detail;
  }
  std::vector<std::string> words{"serve", "--fd", std::to_string(proc::helper_socket), "--runtime", options_.runtime};
  if (!options_.engine.empty()) words.insert(words.end(), {"--engine", options_.engine});
  if (!options_.compose.empty()) words.insert(words.end(), {"--compose", options_.compose});
  auto started = proc::spawn_helper(
      {.program = options_.program, .arguments = std::move(words), .socket_type = SOCK_STREAM, .bare = false});
  if (!started) return started.error().detail;
  link_ = std::make_shared<Link>(io_);
  link_->child = started->pid;
  link_->socket.assign(stream_protocol(), started->socket.release());
  return {};
}

asio::awaitable<std::string> Remote::connect() {
  link_ = std::make_shared<Link>(io_);
  const auto link = link_;
  constexpr std::size_t longest = 107;  // sun_path
  if (options_.socket.size() > longest) co_return fmt::format("the path {} is too long", options_.socket);
  const auto [error] = co_await link->socket.async_connect(stream_protocol::endpoint(options_.socket), quiet);
  if (error) co_return fmt::format("cannot connect to {}: {}", options_.socket, error.message());
  const std::string wrong = check_worker(link->socket.native_handle());
  if (!wrong.empty()) co_return fmt::format("{}: {}", options_.socket, wrong);
  co_return "";
}

asio::awaitable<std::string> Remote::read() {
  const auto link = link_;
  const std::string ended = options_.socket.empty() ? "it has ended" : "it closed the connection";
  Lines lines;
  std::array<char, 65536> piece;
  while (!link->lost) {
    const auto [error, size] = co_await link->socket.async_read_some(asio::buffer(piece), quiet);
    if (error || link->lost) break;
    if (!lines.feed({piece.data(), size})) co_return "its message is too long";
    while (const auto line = lines.next()) {
      std::string problem = take(*line);
      if (!problem.empty()) co_return problem;
      if (link->lost) break;
    }
  }
  co_return ended;
}

std::string Remote::take(const std::string& line) {
  const auto parsed = parse_line(line);
  if (!parsed) return "its message is invalid";
  const json& message = parsed->root;
  if (message.contains("id")) {
    take_reply(message);
  } else if (message.contains("hello")) {
    if (message["hello"] != protocol_version) {
      return fmt::format("it uses protocol version {}, not {}", message["hello"].dump(), protocol_version);
    }
    greet();
  } else if (message.contains("engine")) {
    const auto now = from_json<Engine>(message["engine"]);
    if (!now) return "its report is invalid";
    last_engine_ = *now;
    if (engine) engine(*now);
  } else if (message.contains("observation")) {
    const auto seen = from_json<Observation>(message["observation"]);
    if (!seen) return "its report is invalid";
    if (observation) observation(*seen);
  } else if (message.contains("log")) {
    const auto number = from_json<std::uint64_t>(message["log"]);
    const auto text = message.find("text");
    if (text == message.end() || !text->is_string()) return "its report is invalid";
    const auto found = number ? pending_.find(*number) : pending_.end();
    if (found == pending_.end() || !found->second.chunk) return {};  // ended in the meantime
    const Worker::Chunk chunk = found->second.chunk;
    chunk(text->get<std::string>());
  }
  return {};
}

void Remote::take_reply(const json& message) {
  const auto id = from_json<std::uint64_t>(message["id"]);
  const auto found = id ? pending_.find(*id) : pending_.end();
  if (found == pending_.end()) return;
  const auto done = std::move(found->second.done);
  pending_.erase(found);
  if (!message.contains("error")) return done(Document{message});
  auto error = from_json<Error>(message["error"]);
  done(error ? std::move(*error) : unavailable("the answer of sublet-stacks is invalid"));
}

void Remote::greet() {
  if (!problem_.empty() && !ready_) log::debug("sublet-stacks is there");
  ready_ = true;
  problem_.clear();
  // The worker runs only what it has read itself, and it may be a new one.
  if (sources_) ask("describe", to_json(*sources_), describe_limit, [](const Result<Document>&) {});
  post("watch", ++last_id_, projects_);
}

std::uint64_t Remote::ask(const char* verb, json with, Duration limit, std::function<void(Result<Document>)> done,
                          Worker::Chunk chunk) {
  const std::uint64_t id = ++last_id_;
  if (!ready_) {
    asio::post(io_, [self = shared_from_this(), done = std::move(done)] {
      if (!self->stopped_) done(self->away());
    });
    return id;
  }
  Pending pending;
  if (limit != Duration::max()) pending.deadline_ns = monotonic_ns() + limit.count();
  pending.done = std::move(done);
  pending.chunk = std::move(chunk);
  if (pending_.empty()) looks_.cancel();
  pending_.emplace(id, std::move(pending));
  post(verb, id, std::move(with));
  return id;
}

void Remote::post(const char* verb, std::uint64_t id, json with) {
  if (!ready_ || link_ == nullptr) return;
  link_->queue.push_back(to_line({{"id", id}, {"do", verb}, {"with", std::move(with)}}));
  if (std::exchange(link_->writing, true)) return;
  asio::co_spawn(
      io_, [self = shared_from_this(), link = link_]() -> asio::awaitable<void> { co_await self->write(link); },
      end_with_it);
}

asio::awaitable<void> Remote::write(std::shared_ptr<Link> link) {
  while (!link->queue.empty() && !link->lost) {
    const std::string line = std::move(link->queue.front());
    link->queue.pop_front();
    const auto [error, size] = co_await asio::async_write(link->socket, asio::buffer(line), quiet);
    if (error && !link->lost) {
      boost::system::error_code ignored;
      link->socket.shutdown(stream_protocol::socket::shutdown_both, ignored);  // the reader sees the end
      break;
    }
  }
  link->writing = false;
}

// A worker that hangs is dropped. The deadlines are long, so they are checked now and then, while there is a call.
asio::awaitable<void> Remote::look() {
  while (!stopped_) {
    if (pending_.empty()) looks_.expires_at(std::chrono::steady_clock::time_point::max());
    else looks_.expires_after(look_interval);
    co_await looks_.async_wait(quiet);
    const std::int64_t now = monotonic_ns();
    const bool late = std::any_of(pending_.begin(), pending_.end(),
                                  [now](const auto& entry) { return entry.second.deadline_ns < now; });
    if (!late || link_ == nullptr || stopped_) continue;
    if (link_->child > 0) ::kill(link_->child, SIGKILL);  // not yet reaped, so the pid is its own
    boost::system::error_code ignored;
    link_->socket.shutdown(stream_protocol::socket::shutdown_both, ignored);
  }
}

// A child ends at the end of its socket, and first ends the programs that it runs.
void Remote::drop(const std::string& problem) {
  const bool was_ready = std::exchange(ready_, false);
  problem_ = problem;
  if (const auto link = std::exchange(link_, nullptr)) {
    link->lost = true;
    boost::system::error_code ignored;
    link->socket.close(ignored);
    if (link->child > 0) children_.push_back(link->child);
  }
  reap();
  if (stopped_) return;
  for (auto& [id, pending] : std::exchange(pending_, {})) {
    asio::post(io_, [self = shared_from_this(), done = std::move(pending.done), error = away()] {
      if (!self->stopped_) done(error);
    });
  }
  Engine gone;
  gone.why = away().detail;
  if (!was_ready && last_engine_.why == gone.why) return;
  last_engine_ = gone;
  if (engine) engine(gone);
}

void Remote::reap() {
  std::erase_if(children_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) == pid; });
}

void Remote::repeat_engine() {
  asio::post(io_, [self = shared_from_this()] {
    if (self->engine) self->engine(self->last_engine_);
  });
}

void Remote::describe(const Sources& sources, Worker::Described done) {
  sources_ = sources;
  ask("describe", to_json(sources), describe_limit, [done = std::move(done)](Result<Document> reply) {
    if (!reply) return done(reply.error());
    auto stacks = from_json<std::vector<Description>>(reply->root.value("stacks", json()));
    if (!stacks) return done(unavailable("the answer of sublet-stacks is invalid"));
    done(std::move(*stacks));
  });
}

void Remote::call(const char* verb, json with, Duration limit, Worker::Done done) {
  ask(verb, std::move(with), limit,
      [done = std::move(done)](const Result<Document>& reply) { done(reply ? Status() : Status(reply.error())); });
}

void Remote::watch(const std::vector<std::string>& projects) {
  projects_ = projects;
  post("watch", ++last_id_, projects_);
}

std::uint64_t Remote::logs(const LogQuery& query, Worker::Chunk chunk, Worker::Done done) {
  return ask(
      "logs", to_json(query), Duration::max(),
      [done = std::move(done)](const Result<Document>& reply) { done(reply ? Status() : Status(reply.error())); },
      std::move(chunk));
}

void Remote::stop_logs(std::uint64_t number) {
  if (pending_.erase(number) > 0) post("stop_logs", ++last_id_, number);
}

}  // namespace sublet::compose
