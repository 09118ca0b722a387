// SPDX-License-Identifier: Apache-2.0
// Starts detached keepers (sublet-keep). Belongs to the loop thread; results are reported later, on the loop.
#pragma once

#include "base/error.h"
#include "base/ids.h"

#include <boost/asio/io_context.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace sublet::machine {

class Actor;

struct KeeperOrder {
  std::uint32_t uid = 0;  // the user as whom it runs
  std::string user;
  std::string tag;       // of the program, for people who look at the process table
  std::string host;      // URL of the daemon's socket, for the same
  std::string document;  // JSON, see src/keep/document.h
  std::string log_dir;   // directory of the user's logs; made if it is missing
};

class Keepers {
 public:
  using Done = std::function<void(Result<ProcessRef>)>;
  virtual ~Keepers() = default;
  // Whether keepers can be started now. False passes: the actor is away.
  virtual bool ready() const { return true; }
  // Starts a keeper that is nobody's child. `done` is called once, with its process or why it was not started.
  virtual void start(const KeeperOrder& order, Done done) = 0;
};

// Starts keepers with the rights of this process, for a daemon that serves only its own user. `program`: absolute path
// of sublet-keep.
std::unique_ptr<Keepers> local_keepers(boost::asio::io_context& io, std::string program);

// Has the actor start keepers as the programs' users, for the daemon of a whole system. The actor makes the directories
// of logs itself. Keeps a reference to `actor`.
std::unique_ptr<Keepers> actor_keepers(boost::asio::io_context& io, Actor& actor);

// Refuses all orders, with this reason.
std::unique_ptr<Keepers> no_keepers(boost::asio::io_context& io, std::string why);

}  // namespace sublet::machine
