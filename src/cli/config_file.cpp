// SPDX-License-Identifier: Apache-2.0
#include "cli/config_file.h"

#include "cli/output.h"
#include "config/config.h"

#include <unistd.h>

#include <algorithm>

namespace sublet::cli {
namespace {

std::filesystem::path own_file() {
  const auto own = config::user_file();
  return own.empty() ? config::system_file() : own;  // nobody without a home starts one
}

}  // namespace

std::filesystem::path config_file(const client::Endpoint& endpoint, const nlohmann::json& status, bool named) {
  const auto& said = member(member(status, "daemon"), "config");
  if (said.is_string()) return said.get<std::string>();
  if (endpoint.tcp()) return {};
  const auto own = client::user_sockets();
  if (std::find(own.begin(), own.end(), endpoint.path) != own.end()) return own_file();
  const std::filesystem::path socket = endpoint.path;
  if (socket != client::system_socket) return config::file_in(socket.parent_path());
  const bool there = ::access(endpoint.path.c_str(), F_OK) == 0;
  return named || there || ::geteuid() == 0 ? config::system_file() : own_file();
}

}  // namespace sublet::cli
