// SPDX-License-Identifier: Apache-2.0
#include "client/endpoint.h"

#include "base/fd.h"
#include "base/text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace sublet::client {
namespace {

constexpr auto hint = "name the daemon by its socket, unix:///run/sublet/sublet.sock, or by http://127.0.0.1:PORT";

bool is_socket(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
}

Result<Endpoint> parse_tcp(std::string_view text, std::string_view rest) {
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const auto colon = rest.rfind(':');
  std::string_view host = rest.substr(0, colon);
  const std::string_view digits = colon == std::string_view::npos ? "" : rest.substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port == 0) {
    return bad_request(fmt::format("the host '{}' has no port", printable(text)), hint);
  }
  if (host == "localhost") host = "127.0.0.1";
  if (host == "[::1]") host = "::1";
  if (host != "127.0.0.1" && host != "::1") {
    return bad_request(fmt::format("the host '{}' is not this machine", printable(text)),
                       "the daemon does not serve a network; use a tunnel to reach another machine (ssh -L)");
  }
  return Endpoint{.host = std::string(host), .port = port};
}

Error no_token(const char* path, int number) {
  Error error = from_errno(fmt::format("cannot read SUBLET_TOKEN_FILE '{}'", printable(path)), number);
  error.hint = "write a token with: sublet token create --file FILE; without the variable, no token is sent";
  return error;
}

Result<std::string> token_from(const char* path) {
  if (path == nullptr || *path == '\0') return std::string();
  const Fd file(::open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file) return no_token(path, errno);
  char buffer[257];
  const ssize_t size = ::read(file.get(), buffer, sizeof buffer);
  if (size < 0) return no_token(path, errno);
  std::string token(buffer, static_cast<std::size_t>(size));
  while (!token.empty() && std::isspace(static_cast<unsigned char>(token.back())) != 0) token.pop_back();
  // The text of a header must not be able to end the header.
  const bool plain = std::all_of(token.begin(), token.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (!plain || token.empty() || token.size() > 128) {
    return bad_request(fmt::format("the file '{}' contains no token", printable(path)),
                       "write a token with: sublet token create --file FILE");
  }
  return token;
}

Result<Endpoint> parse_named(std::string_view text) {
  auto endpoint = parse_endpoint(text);
  if (!endpoint || !endpoint->tcp()) return endpoint;
  auto token = token_from(std::getenv("SUBLET_TOKEN_FILE"));
  if (!token) return token.error();
  endpoint->token = std::move(*token);
  return endpoint;
}

// The XDG base directory specification says to ignore a relative value.
std::string absolute_directory(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value == '/' ? value : std::string();
}

}  // namespace

std::string Endpoint::authority() const {
  if (!tcp()) return "sublet";
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

std::string Endpoint::url() const { return tcp() ? "http://" + authority() : "unix://" + path; }

std::string start_command(const std::string& systemd) {
  return ::access(systemd.c_str(), F_OK) == 0 ? "systemctl start subletd" : "subletd (as root, for the whole machine)";
}

std::string user_state_dir() {
  const std::string state = absolute_directory("XDG_STATE_HOME");
  return (state.empty() ? absolute_directory("HOME") + "/.local/state" : state) + "/sublet";
}

std::vector<std::string> user_sockets() {
  std::vector<std::string> sockets;
  if (const std::string runtime = absolute_directory("XDG_RUNTIME_DIR"); !runtime.empty()) {
    sockets.push_back(runtime + "/sublet/sublet.sock");
  }
  sockets.push_back(user_state_dir() + "/sublet.sock");
  return sockets;
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  std::string_view path = text;
  if (path.starts_with("unix://")) {
    path.remove_prefix(7);
  } else if (path.starts_with("http://")) {
    return parse_tcp(text, path.substr(7));
  } else if (path.find("://") != std::string_view::npos) {
    return bad_request(
        fmt::format("the host '{}' is neither a Unix socket nor a port of this machine", printable(text)), hint);
  }
  if (path.empty()) return bad_request(fmt::format("the host '{}' names no socket", printable(text)), hint);
  if (path[0] == '/') return Endpoint{.path = std::string(path)};
  char* here = ::getcwd(nullptr, 0);
  if (here == nullptr) return from_errno("the working directory", errno);
  std::string absolute = fmt::format("{}/{}", here, path);
  std::free(here);
  return Endpoint{.path = std::move(absolute)};
}

bool names_daemon(std::string_view flag) {
  const char* host = std::getenv("SUBLET_HOST");
  return !flag.empty() || (host != nullptr && *host != '\0');
}

Result<Endpoint> resolve_endpoint(std::string_view flag) {
  if (!flag.empty()) return parse_named(flag);
  if (const char* host = std::getenv("SUBLET_HOST"); host != nullptr && *host != '\0') return parse_named(host);
  for (std::string& own : user_sockets()) {
    if (is_socket(own)) return Endpoint{.path = std::move(own)};
  }
  return Endpoint{.path = std::string(system_socket)};
}

}  // namespace sublet::client
