// SPDX-License-Identifier: Apache-2.0
// The daemon's side of sublet-actor, which signals programs and puts them into control groups. Each order gets one
// reply, by a call on the loop; nothing blocks. Belongs to the loop thread.
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

namespace sublet::machine {

// The interface to the actor. Tests have their own implementation.
class Actor {
 public:
  using Done = std::function<void(const actor::Reply&)>;
  using Fetched = std::function<void(const actor::Reply&, Fd)>;
  virtual ~Actor() = default;

  // Starts the actor or connects to it. `came`: called whenever an actor is ready; a new actor knows nothing yet.
  virtual void start(std::function<void()> came) = 0;
  virtual void stop() = 0;
  virtual const std::string& problem() const = 0;  // "" while the actor is there
  virtual std::string hint() const = 0;            // advice about `problem`
  // The socket of an actor that a service manager starts; "": the actor is our child.
  virtual std::string socket() const { return {}; }

  // Whether the actor has introduced itself and takes orders. An actor that was lost has forgotten all orders.
  virtual bool ready() const = 0;
  // The actor's reply to `hello`: actor::signals_others, its uid, the hierarchy. While there is no actor: the last
  // reply.
  virtual const actor::Reply& introduction() const = 0;
  // Sends an order with copies of the descriptors. `done` is called once, later, with the reply and its descriptor, if
  // any. Code `lost`: there is no actor, or it was lost.
  virtual void fetch(actor::Order order, std::span<const int> descriptors, Fetched done) = 0;
  void order(actor::Order order, std::span<const int> descriptors, Done done) {
    fetch(order, descriptors, [done = std::move(done)](const actor::Reply& reply, const Fd&) { done(reply); });
  }
};

// Takes the socket of a started helper (`sublet-gpu checkpoint`), or the error. Denied: the process has rights that no
// helper could have. InUse: an earlier helper of the process has not ended, or too many helpers run. Called once, at
// once or later.
using HelperStarted = std::function<void(Result<Fd>)>;

struct ActorOptions {
  std::string helper;                 // path of sublet-actor, which is started as our child
  std::string socket;                 // socket of a listening actor; if not empty, no child is started
  std::string group_name = "sublet";  // NAME of the child's control groups
  // The child serves the system, so members of sublet-admin may give orders.
  bool system = false;
  std::vector<std::string> parking{};           // the child's arguments about starting sublet-gpu and sublet-keep
  Duration timeout = std::chrono::seconds(10);  // without an answer in this time, the actor is dropped
};

// Keeps a sublet-actor: starts it or connects to it, and again with back-off after it was lost.
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
    std::int64_t deadline_ns = 0;  // CLOCK_MONOTONIC in ns
    Fetched done;
  };

  boost::asio::awaitable<void> run();
  boost::asio::awaitable<std::string> serve();  // returns why the actor was lost
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
  std::vector<int> ended_children_;  // not yet reaped
  std::deque<Outgoing> outgoing_;
  std::deque<Pending> pending_;  // in the order of the replies
  boost::asio::steady_timer deadline_;
  std::uint64_t last_id_ = 0;
  bool ready_ = false;
  bool stopped_ = false;
  actor::Reply introduction_;
  std::string problem_;
  std::string refusal_;  // why the actor's introduction is not acceptable
};

}  // namespace sublet::machine
