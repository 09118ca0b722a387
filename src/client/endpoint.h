// SPDX-License-Identifier: Apache-2.0
// Finds the daemon to talk to.
#pragma once

#include "base/error.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::client {

// The socket of the daemon that serves the whole machine.
inline constexpr std::string_view system_socket = "/run/sublet/sublet.sock";

// Returns the command that starts the system's daemon: with systemd if its directory exists, else by hand.
std::string start_command(const std::string& systemd = "/run/systemd/system");

// A daemon's Unix socket, or its port on this machine.
struct Endpoint {
  std::string path = {};   // absolute; "" for TCP
  std::string host = {};   // TCP: "127.0.0.1" or "::1"
  std::uint16_t port = 0;  // TCP
  std::string token = {};  // TCP: secret; never in url()
  bool tcp() const { return port != 0; }
  std::string authority() const;  // the Host header: "127.0.0.1:4711"
  std::string url() const;
};

// Parses "unix:///run/x.sock", a path, or "http://127.0.0.1:4711". Only loopback addresses are allowed, because a token
// must not cross a network in plain text. A relative path becomes absolute, because child programs may have another
// working directory.
Result<Endpoint> parse_endpoint(std::string_view text);

// Returns the state directory of a user's own daemon. Reads the environment.
std::string user_state_dir();
// Returns the socket paths of a user's own daemon; never empty. The daemon listens at the first path. It uses a later
// path if its environment lacked variables. Daemon and clients both call this, so that they find each other.
std::vector<std::string> user_sockets();

// Returns the endpoint of `flag` (the value of --host) if it is not empty, else of SUBLET_HOST, else the first of
// user_sockets() that exists, else the system's socket. Reads the environment and, for TCP, the file that
// SUBLET_TOKEN_FILE names.
Result<Endpoint> resolve_endpoint(std::string_view flag = {});
bool names_daemon(std::string_view flag = {});  // whether `flag` or SUBLET_HOST names a daemon

}  // namespace sublet::client
