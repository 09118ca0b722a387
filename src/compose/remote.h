// SPDX-License-Identifier: Apache-2.0
// The state behind remote_worker(): the connection, the calls that wait, and all that a new worker is told again. It
// lives until its coroutines have ended. Belongs to the loop thread.
#pragma once

#include "compose/document.h"
#include "compose/remote_worker.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sys/types.h>

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <vector>

namespace sublet::compose {

class Remote : public std::enable_shared_from_this<Remote> {
 public:
  Remote(boost::asio::io_context& io, RemoteOptions options)
      : io_(io), options_(std::move(options)), pause_(io), looks_(io) {}
  ~Remote() { reap(); }

  void start();
  void stop();  // no callback is called any more
  void describe(const Sources& sources, Worker::Described done);
  void call(const char* verb, nlohmann::json with, Duration limit, Worker::Done done);
  void watch(const std::vector<std::string>& projects);
  std::uint64_t logs(const LogQuery& query, Worker::Chunk chunk, Worker::Done done);
  void stop_logs(std::uint64_t number);

  std::function<void(const Observation&)> observation;
  std::function<void(const Engine&)> engine;
  void repeat_engine();

 private:
  struct Link;
  struct Pending {
    std::int64_t deadline_ns = INT64_MAX;  // CLOCK_MONOTONIC
    std::function<void(Result<Document>)> done;
    Worker::Chunk chunk;  // of logs
  };

  boost::asio::awaitable<void> run();
  boost::asio::awaitable<std::string> serve();
  boost::asio::awaitable<std::string> read();
  boost::asio::awaitable<std::string> connect();
  boost::asio::awaitable<void> write(std::shared_ptr<Link> link);
  boost::asio::awaitable<void> look();
  std::string spawn();
  std::uint64_t ask(const char* verb, nlohmann::json with, Duration limit, std::function<void(Result<Document>)> done,
                    Worker::Chunk chunk = {});
  void post(const char* verb, std::uint64_t id, nlohmann::json with);
  void greet();
  std::string take(const std::string& line);
  void take_reply(const nlohmann::json& message);
  void drop(const std::string& problem);
  void reap();
  Error away() const { return unavailable("sublet-stacks is away: " + problem_, hint()); }
  std::string hint() const {
    return options_.socket.empty() ? "the daemon starts it again; its log shows the cause"
                                   : "check: systemctl status sublet-stacks.socket sublet-stacks.service";
  }

  boost::asio::io_context& io_;
  RemoteOptions options_;
  std::shared_ptr<Link> link_;
  bool ready_ = false;  // the worker has greeted us
  bool stopped_ = false;
  std::string problem_ = "it has not started yet";
  std::map<std::uint64_t, Pending> pending_;
  std::uint64_t last_id_ = 0;
  std::optional<Sources> sources_;
  std::vector<std::string> projects_;
  Engine last_engine_;
  std::vector<pid_t> children_;  // not yet reaped
  boost::asio::steady_timer pause_, looks_;
};

}  // namespace sublet::compose
