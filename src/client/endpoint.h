// SPDX-License-Identifier: Apache-2.0
// Which daemon to talk to.
#pragma once

#include "base/error.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::client {

// Of the daemon that serves the whole machine.
inline constexpr std::string_view system_socket = "/run/sublet/sublet.sock";

// What starts it: by systemd, where that runs, which has this directory then; else by hand.
std::string start_command(const std::string& systemd = "/run/systemd/system");

// A daemon's Unix socket, or its port on this machine.
struct Endpoint {
  std::string path = {};   // absolute; "" for TCP
  std::string host = {};   // TCP: "127.0.0.1" or "::1"
  std::uint16_t port = 0;  // TCP
  std::string token = {};  // TCP: secret; never in url()
  bool tcp() const { return port != 0; }
  std::string authority() const;  // what a request calls the daemon: "127.0.0.1:4711"
  std::string url() const;
};

// Reads "unix:///run/x.sock", a path, or "http://127.0.0.1:4711" (this machine only: a token must not cross a network
// in clear). A relative path is taken from the working directory, because what is handed on to child programs must keep
// its meaning.
Result<Endpoint> parse_endpoint(std::string_view text);

// Where a user's own daemon keeps its store. Reads the environment.
std::string user_state_dir();
// Where a user's own daemon listens: the first of these; the others are where it listens when it was started from a
// poorer environment. Never empty. Daemon and clients both ask here, so that they cannot miss each other.
std::vector<std::string> user_sockets();

// `flag` (the value of --host) if it is not empty, else SUBLET_HOST, else the first of user_sockets() that exists, else
// the system's. Reads the environment; for TCP also the file that SUBLET_TOKEN_FILE names.
Result<Endpoint> resolve_endpoint(std::string_view flag = {});
bool names_daemon(std::string_view flag = {});  // one of the first two does

}  // namespace sublet::client
