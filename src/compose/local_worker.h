// SPDX-License-Identifier: Apache-2.0
// The worker itself: looks for stacks, calls Compose, asks the engine. Belongs to the loop thread of `sublet-stacks`.
#pragma once

#include "compose/compose_program.h"
#include "compose/engine_watch.h"
#include "compose/interposer.h"
#include "compose/trust.h"
#include "compose/worker.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace sublet::compose {

struct LocalOptions {
  std::string engine = "unix:///var/run/docker.sock";
  std::string program;                            // stacks.compose
  std::string runtime;                            // directory for our files, which exists and is ours alone
  Trust trust;                                    // whose Compose files are run
  std::string interposer;                         // path of the library for containers
  Peer daemon{};                                  // the process that we obey
  Duration look_every = std::chrono::minutes(1);  // at the containers of each project, whatever the engine tells
};

class LocalWorker final : public Worker, public std::enable_shared_from_this<LocalWorker> {
 public:
  // BadRequest: the engine's address is not one.
  static Result<std::shared_ptr<LocalWorker>> make(boost::asio::io_context& io, const LocalOptions& options);

  ~LocalWorker() override;

  // Ends the programs that run, and all readings. No callback is called any more. The object lives on until its
  // calls have returned.
  void stop();

  void describe(const Sources& sources, Described done) override;
  void up(const Start& start, Done done) override;
  void pull(const Start& start, Done done) override;
  void down(const Stop& stop, Done done) override;
  void watch(const std::vector<std::string>& projects) override;
  void on_observation(std::function<void(const Observation&)> listener) override;
  void on_engine(std::function<void(const Engine&)> listener) override;
  std::uint64_t logs(const LogQuery& query, Chunk chunk, Done done) override;
  void stop_logs(std::uint64_t number) override;

  // Logs are read no faster than this function lets them: it is awaited after each chunk.
  void pace_logs(std::function<boost::asio::awaitable<void>()> pace) { pace_ = std::move(pace); }

 private:
  // A resolved stack, and the state of the files that it was made from.
  struct Known {
    std::string signature;
    Description stack;
  };
  struct Reading {
    std::vector<std::function<void()>> stops;  // end the reading of each container
    bool stopped = false;
  };

  LocalWorker(boost::asio::io_context& io, const LocalOptions& options, std::string socket);
  void start();
  template <typename Work>
  void spawn(Work work);  // the work keeps this object
  boost::asio::awaitable<std::vector<Description>> find_stacks(Sources sources);
  boost::asio::awaitable<void> resolve(std::vector<Description>& stacks, std::size_t& next, std::string env_file);
  boost::asio::awaitable<void> resolve_one(Description& stack, std::string env_file);
  boost::asio::awaitable<Status> start_stack(Start start);
  Result<std::string> overlay_of(const Start& start) const;
  boost::asio::awaitable<Status> pull_images(Start start);
  boost::asio::awaitable<Status> stop_stack(Stop stop);
  boost::asio::awaitable<Status> read_logs(LogQuery query, Chunk chunk, std::shared_ptr<Reading> reading);
  boost::asio::awaitable<Status> read_log(Container container, LogQuery query, Chunk chunk,
                                          std::shared_ptr<Reading> reading, std::function<void()>* stop);
  void remember(const std::string& resolved, const std::string& env_file);
  bool is_known(const std::string& resolved) const { return env_files_.contains(resolved); }
  void tell_engine();

  boost::asio::io_context& io_;
  LocalOptions options_;
  ComposeProgram program_;
  std::map<std::string, std::vector<Done>> pulls_;  // callers that wait for the pull of a project
  std::shared_ptr<EngineWatch> watch_;
  std::map<std::string, Known> known_;            // by Compose file
  std::map<std::string, std::string> env_files_;  // by resolved text: all texts that may be started
  std::deque<std::string> texts_;                 // the keys, the oldest first
  int describing_ = 0;                            // calls of describe() that are not done
  boost::asio::steady_timer described_;           // cancelled whenever one is done
  bool program_sought_ = false;                   // a Compose program was looked for
  std::string program_problem_;                   // why no Compose program works
  std::function<void(const Observation&)> observation_;
  std::function<void(const Engine&)> engine_;
  std::optional<Engine> told_;
  std::map<std::uint64_t, std::shared_ptr<Reading>> readings_;
  std::uint64_t last_reading_ = 0;
  std::function<boost::asio::awaitable<void>()> pace_;
  bool stopped_ = false;
};

}  // namespace sublet::compose
