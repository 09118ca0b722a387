// SPDX-License-Identifier: Apache-2.0
#include "proc/listener.h"

#include <charconv>
#include <fstream>
#include <sstream>

namespace sublet::proc {
namespace {

constexpr std::string_view listening = "0A";

std::string read_table(const char* path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

std::optional<std::uint32_t> find_listener(std::string_view table, std::string_view address, std::uint16_t port) {
  std::istringstream lines{std::string(table)};
  std::string line;
  std::optional<std::uint32_t> found;
  std::getline(lines, line);  // the header line
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string number, local, remote, state, queues, timer, retransmits;
    std::uint32_t uid = 0;
    if (!(words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> uid)) continue;
    const auto colon = local.rfind(':');
    if (state != listening || colon == std::string::npos) continue;
    std::uint16_t local_port = 0;
    std::from_chars(local.data() + colon + 1, local.data() + local.size(), local_port, 16);
    const std::string_view where = std::string_view(local).substr(0, colon);
    const bool anywhere = where.find_first_not_of('0') == std::string_view::npos;
    if (local_port != port || (!anywhere && where != address)) continue;
    if (found && *found != uid) return std::nullopt;
    found = uid;
  }
  return found;
}

std::optional<std::uint32_t> listener_uid(const std::string& host, std::uint16_t port) {
  const bool v6 = host == "::1";
  const auto own = v6 ? find_listener(read_table("/proc/net/tcp6"), "00000000000000000000000001000000", port)
                      : find_listener(read_table("/proc/net/tcp"), "0100007F", port);
  if (own || v6) return own;
  // An IPv6 socket that also accepts IPv4 connections.
  return find_listener(read_table("/proc/net/tcp6"), "0000000000000000FFFF00000100007F", port);
}

}  // namespace sublet::proc
