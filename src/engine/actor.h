// SPDX-License-Identifier: Apache-2.0
// The daemon's side of sublet-actor, which signals programs and puts them into control groups: one order, one reply.
// Nobody waits for it: a reply comes back by a call on the loop. Belongs to the loop thread.
#pragma once

#include "actor/protocol.h"
#include "base/fd.h"
#include "base/units.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace sublet::engine {

// Whom programs are ended by; tests have another.
class Actor {
 public:
  using Done = std::function<void(const actor::Reply&)>;
  using Fetched = std::function<void(const actor::Reply&, Fd)>;
  virtual ~Actor() = default;

  // From now on there is one, as far as that depends on us. `came`: it is ready, and knows nothing yet.
  virtual void start(std::function<void()> came) = 0;
  virtual void stop() = 0;
  virtual const std::string& problem() const = 0;  // "" while it is there
  virtual std::string hint() const = 0;            // what to do about that
  // On which one listens that a service manager starts; "": it is our child.
  virtual std::string socket() const { return {}; }

  // It has said who it is, and takes orders. What it was told before it was lost, it does not know any more.
  virtual bool ready() const = 0;
  // What it said when it came: actor::signals_others, its uid, the hierarchy. Of the last one while there is none.
  virtual const actor::Reply& introduction() const = 0;
  // Copies the descriptors. `done` is called once, later, with code `lost` if there is or was nobody to obey, and with
  // what came along with the reply, if anything.
  virtual void fetch(actor::Order order, std::span<const int> descriptors, Fetched done) = 0;
  void order(actor::Order order, std::span<const int> descriptors, Done done) {
    fetch(order, descriptors, [done = std::move(done)](const actor::Reply& reply, const Fd&) { done(reply); });
  }
};

struct ActorOptions {
  std::string helper;                           // path of sublet-actor, to be started as our child …
  std::string socket;                           // … or, if not empty, the socket on which one listens
  std::string group_name = "sublet";            // of the child's control groups
  bool system = false;                          // the child serves the system: sublet-admin has a say
  std::vector<std::string> parking{};           // what the child is told of how to start what parks, as its arguments
  Duration timeout = std::chrono::seconds(10);  // no answer in this time: it is given up
};

// Keeps one sublet-actor: started or connected to, again with back-off when it is lost.
class ActorClient final : public Actor {
 public:
  ActorClient(boost::asio::io_context& io, ActorOptions options);
  ~ActorClient() override;

  void start(std::function<void()> came) override;
  void stop() override;
  const std::string& problem() const override { return problem_; }
  std::string hint() const override;
  std::string socket() const override { return options_.socket; }
  bool ready() const override { return ready_; }
  const actor::Reply& introduction() const override { return introduction_; }
  void fetch(actor::Order order, std::span<const int> descriptors, Fetched done) override;

 private:
  struct Link;
  struct Outgoing {
    actor::Order order;
    std::vector<Fd> descriptors;
  };
  struct Pending {
    std::uint64_t id = 0;
    std::int64_t deadline_ns = 0;  // CLOCK_MONOTONIC
    Fetched done;
  };

  boost::asio::awaitable<void> run();
  boost::asio::awaitable<std::string> serve();  // returns why it is lost
  std::string connect();
  std::string spawn();
  void introduce(const actor::Reply& reply);
  bool enqueue(actor::Order order, std::span<const int> descriptors, Fetched done);
  void flush();
  std::string take_replies();
  void drop();
  void reap();

  boost::asio::io_context& io_;
  ActorOptions options_;
  std::function<void()> came_;
  std::unique_ptr<Link> link_;
  std::vector<int> ended_children_;  // not yet waited for
  std::deque<Outgoing> outgoing_;
  std::deque<Pending> pending_;  // in the order in which they are answered
  boost::asio::steady_timer deadline_;
  std::uint64_t last_id_ = 0;
  bool ready_ = false;
  bool stopped_ = false;
  actor::Reply introduction_;
  std::string problem_;
  std::string refusal_;  // why what it said of itself will not do
};

}  // namespace sublet::engine
