// SPDX-License-Identifier: Apache-2.0
// Books the container of `docker run` and the like to the lease, by a control group that its keeper named.
#pragma once

#include "client/client.h"
#include "client/lease.h"
#include "keep/events.h"
#include "keep/keeper.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sublet::keep {

class ContainerFollow {
 public:
  // The engine as the program calls it: the words of its command before `run`, and its variables.
  struct Engine {
    std::vector<std::string> words;
    std::map<std::string, std::string> variables;
  };

  // Keeps a reference to `events`.
  ContainerFollow(const client::Endpoint& endpoint, Events& events, Listener listener, const client::Lease& lease,
                  std::string token, Engine engine);

  // The name for --cgroup-parent. A service manager takes it as a slice, other engines as a directory.
  const std::string& group() const { return group_; }
  // Looks for the group until it is there.
  void begin() { look(); }
  // The command has ended: a container that its client has left behind is ended too, after the grace of the lease.
  void finish();

 private:
  void look();
  bool book(const std::string& directory);
  void end(const std::string& container);

  client::Endpoint endpoint_;
  Listener listener_;
  std::string lease_;
  Duration grace_;
  std::string token_;
  Engine engine_;
  std::string group_;
  std::vector<std::string> directories_;  // of the group, in each hierarchy; empty: not found yet
  Timer timer_;
  int looks_ = 0;
};

// If the program of `launch` is a container in the foreground, the lease follows it: the container gets the devices of
// the lease and a control group, and `listener` is told its end. Null: it is none. The result must outlive the keeper.
std::unique_ptr<ContainerFollow> follow_container(Launch& launch, Listener& listener, const client::Endpoint& endpoint,
                                                  Events& events, const client::Lease& lease, const std::string& token,
                                                  const nlohmann::json& status);

// The directory of the group `name` in the hierarchy that is mounted at `top`, made by root or by this user; "": none.
// A rootless engine has its groups below the groups of its user.
std::string group_directory(const std::string& top, const std::string& name);
// The ids of the containers in a group, as far as root or this user made them.
std::vector<std::string> containers_in(const std::string& directory);

// Whether a refused booking is tried again: the daemon is away, or the lease is paused now.
bool may_book_later(const client::Failure& failure);

}  // namespace sublet::keep
