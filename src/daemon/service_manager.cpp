// SPDX-License-Identifier: Apache-2.0
#include "daemon/service_manager.h"

#include "base/number.h"

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
