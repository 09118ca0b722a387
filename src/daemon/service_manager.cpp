// SPDX-License-Identifier: Apache-2.0
#include "daemon/service_manager.h"

#include "base/number.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cstddef>
#include <cstdlib>
#include <string>

namespace sublet::daemon {
namespace {

std::optional<std::int64_t> number_in(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return std::nullopt;
  return parse_number<std::int64_t>(text);
}

}  // namespace

void tell_service_manager(std::string_view message) {
  const char* name = std::getenv("NOTIFY_SOCKET");
  if (name == nullptr || *name == '\0') return;
  const std::string path = name;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() > sizeof address.sun_path) return;
  path.copy(address.sun_path, sizeof address.sun_path);
  if (path[0] == '@') address.sun_path[0] = '\0';  // an address of the abstract name space
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  ::sendto(fd, message.data(), message.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address), length);
  ::close(fd);
}

Result<int> passed_socket() {
  constexpr int first_passed = 3;
  const auto count = number_in("LISTEN_FDS"), whose = number_in("LISTEN_PID");
  for (const char* name : {"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"}) ::unsetenv(name);
  if (!count || *count == 0 || whose != ::getpid()) return -1;
  int type = 0, accepts = 0;
  socklen_t size = sizeof type;
  const bool listens = *count == 1 && ::getsockopt(first_passed, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
                       type == SOCK_STREAM &&
                       ::getsockopt(first_passed, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) == 0 && accepts != 0;
  if (!listens)
    return bad_request(fmt::format("the service manager passed {} descriptors, and not one listening socket", *count),
                       "compare subletd.socket with the packaged unit");
  const int flags = ::fcntl(first_passed, F_GETFL);
  ::fcntl(first_passed, F_SETFL, flags | O_NONBLOCK);
  ::fcntl(first_passed, F_SETFD, FD_CLOEXEC);
  return first_passed;
}

Watchdog::Watchdog(boost::asio::io_context& io) : timer_(io) {
  const auto interval = number_in("WATCHDOG_USEC");
  const auto whose = number_in("WATCHDOG_PID");  // the variable may have been meant for our parent
  if (!interval || *interval < 2 || whose.value_or(::getpid()) != ::getpid()) return;
  interval_ = std::chrono::microseconds(*interval / 2);
  beat();
}

void Watchdog::beat() {
  tell_service_manager("WATCHDOG=1\n");
  timer_.expires_after(*interval_);
  timer_.async_wait([this](const boost::system::error_code& cancelled) {
    if (!cancelled) beat();
  });
}

}  // namespace sublet::daemon
