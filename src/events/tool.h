// SPDX-License-Identifier: Apache-2.0
// One tool that is told of events, with its place in the stored events. Belongs to the loop thread.
#pragma once

#include "engine/engine.h"
#include "events/message.h"
#include "events/target.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sublet::events {

struct Pace {
  // A tool that is further behind loses the oldest events, and Redis readers are told how many.
  std::uint64_t most_behind = 10'000;
  Duration first_retry = std::chrono::seconds(1);  // doubles up to `last_retry`
  Duration last_retry = std::chrono::minutes(1);
  Duration timeout = std::chrono::seconds(10);  // of one call
};

struct Counts {
  std::uint64_t sent = 0;     // events that the tool took
  std::uint64_t dropped = 0;  // lost: too far behind, or refused for good
  std::uint64_t behind = 0;   // events that were not looked at yet
};

// The result of sending some events.
struct Sent {
  std::size_t taken = 0;                  // events that are done with, from the first
  std::size_t refused = 0;                // of those: refused for good
  std::optional<Duration> retry_after{};  // the tool's wish
  std::string problem{};                  // why the next was not taken; "": all were
};

class Tool {
 public:
  Tool(engine::Engine& engine, std::string name, const Pace& pace, boost::asio::any_io_executor executor);
  virtual ~Tool() = default;
  const std::string& name() const { return name_; }
  virtual boost::asio::awaitable<Sent> send(std::vector<Event> events) = 0;

  // Starts behind this event, and sends until stop(). The coroutine keeps the tool alive.
  static boost::asio::awaitable<void> run(std::shared_ptr<Tool> tool, std::string life, std::uint64_t after);
  void stop();
  Counts counts() const;
  // Why the last try failed, and since when; "": it did not.
  const std::string& problem() const { return problem_; }
  // A test was taken: the next try is now.
  void repaired();
  Time problem_since() const { return since_; }

 protected:
  virtual bool wants(const Event& event) const = 0;
  virtual bool is_told_of_gaps() const { return false; }
  const Pace pace_;

 private:
  using Logged = std::vector<engine::EventLog::Event>;
  void drop_oldest();
  std::vector<std::pair<std::uint64_t, Event>> choose(const Logged& all);
  boost::asio::awaitable<bool> step(const Logged& all);
  boost::asio::awaitable<void> pause(Duration wait);
  void note(const Sent& sent);

  engine::Engine& engine_;
  const std::string name_;
  boost::asio::steady_timer timer_;  // until the next try
  bool stopped_ = false;
  std::optional<Duration> wish_;  // of the tool, for the pause
  std::string life_;              // of the store that `after_` belongs to
  std::uint64_t after_ = 0;       // number of the last event that was dealt with
  std::uint64_t missed_ = 0;      // lost since the last event that the tool took
  Counts counts_;
  std::string problem_;
  int failures_ = 0;  // in a row
  Time since_{};
};

const std::string& machine_name();  // "": unknown

std::shared_ptr<Tool> redis_tool(boost::asio::any_io_executor executor, engine::Engine& engine, const Address& address,
                                 const Pace& pace);
std::shared_ptr<Tool> webhook_tool(boost::asio::any_io_executor executor, engine::Engine& engine,
                                   const Webhook& webhook, const Pace& pace);

}  // namespace sublet::events
