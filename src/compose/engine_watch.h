// SPDX-License-Identifier: Apache-2.0
// Follows the containers of some Compose projects: by the engine's events, and by a look at a project after an event
// and after each return of the engine. Engines may tell no events, so each project is looked at now and then, too.
// Belongs to the loop thread.
#pragma once

#include "compose/engine_client.h"
#include "compose/worker.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace sublet::compose {

class EngineWatch : public std::enable_shared_from_this<EngineWatch> {
 public:
  struct Listeners {
    std::function<void(const Observation&)> observation;
    // Reachability, version, runtimes. The Compose program is not known here.
    std::function<void(const Engine&)> engine;
  };
  EngineWatch(boost::asio::io_context& io, std::string socket, Duration look_every);

  void start(Listeners listeners);
  void stop();  // no listener is called any more
  void watch(const std::vector<std::string>& projects);
  const Engine& engine() const { return engine_; }
  bool was_asked() const { return was_asked_; }  // whether engine() tells something

  // Looks at a project now. `started` and `all` containers, those of single commands left out.
  boost::asio::awaitable<Result<Observation>> look(std::string project);
  EngineClient& client() { return client_; }

 private:
  boost::asio::awaitable<void> run();
  boost::asio::awaitable<std::string> follow();  // returns why the events ended
  boost::asio::awaitable<void> refresh();
  void hear(std::string_view line);
  void came(std::string version, bool gpu_runtime);
  void tell(Engine engine);

  boost::asio::io_context& io_;
  const Duration look_every_;
  EngineClient client_;
  Listeners listeners_;
  Engine engine_;
  bool was_asked_ = false;
  std::map<std::string, Observation> known_;  // watched projects, as they were told; no id: not told yet
  std::set<std::string> told_;                // projects that have been told
  std::set<std::string> changed_;             // to be looked at
  boost::asio::steady_timer pause_, wake_;
  std::function<void()> stop_stream_;
  bool stopped_ = false;
};

}  // namespace sublet::compose
