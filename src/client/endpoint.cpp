// SPDX-License-Identifier: Apache-2.0
#include "client/endpoint.h"

#include "base/text.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace sublet::client {
namespace {

constexpr std::string_view system_socket = "/run/sublet/sublet.sock";
constexpr auto hint = "the daemon is named by its socket: unix:///run/sublet/sublet.sock";

bool is_socket(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
}

}  // namespace

Result<Endpoint> parse_endpoint(std::string_view text) {
  std::string_view path = text;
  if (path.starts_with("unix://")) {
    path.remove_prefix(7);
  } else if (path.find("://") != std::string_view::npos) {
    return bad_request(
        fmt::format("the host '{}' is no Unix socket; other transports are not in this version", printable(text)),
        hint);
  }
  if (path.empty()) return bad_request(fmt::format("the host '{}' names no socket", printable(text)), hint);
  if (path[0] == '/') return Endpoint{std::string(path)};
  char* here = ::getcwd(nullptr, 0);
  if (here == nullptr) return from_errno("the working directory", errno);
  std::string absolute = fmt::format("{}/{}", here, path);
  std::free(here);
  return Endpoint{std::move(absolute)};
}

Result<Endpoint> resolve_endpoint(std::string_view flag) {
  if (!flag.empty()) return parse_endpoint(flag);
  if (const char* host = std::getenv("SUBLET_HOST"); host != nullptr && *host != '\0') return parse_endpoint(host);
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime != nullptr && *runtime == '/') {
    Endpoint own{fmt::format("{}/sublet/sublet.sock", runtime)};
    if (is_socket(own.path)) return own;
  }
  return Endpoint{std::string(system_socket)};
}

}  // namespace sublet::client
