// SPDX-License-Identifier: Apache-2.0
#include "gpu/serve.h"

#include "gpu/probe_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <csignal>

namespace sublet::gpu {
namespace {

constexpr unsigned watch_seconds = 10;

bool wait_for(int socket, short events) {
  pollfd entry{socket, events, 0};
  int ready = 0;
  do {
    ready = ::poll(&entry, 1, -1);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

// The socket may have been made non-blocking by the other side, which shares its end's flags with nobody but
// us.
bool send_all(int socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      text.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN) {
      if (!wait_for(socket, POLLOUT)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

constexpr int none = -1;

// Only read by the signal handler below, which cannot be handed anything.
volatile int watched_socket = none;
volatile int watched_target = none;

bool ended(int fd, short events) {
  pollfd entry{fd, events, 0};
  return ::poll(&entry, 1, 0) > 0 && (entry.revents & (events | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

// A driver call that never returns keeps us from seeing the end of the socket: look from time to time.
void on_alarm(int) {
  const int saved = errno;
  if (ended(watched_socket, 0) && (watched_target == none || ended(watched_target, POLLIN))) ::_exit(1);
  ::alarm(watch_seconds);
  errno = saved;
}

}  // namespace

Watch::Watch(int socket, int target) {
  watched_socket = socket;
  watched_target = target;
  struct sigaction action {};
  action.sa_handler = on_alarm;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGALRM, &action, nullptr);
  ::alarm(watch_seconds);
}

Watch::~Watch() { ::alarm(0); }

int serve_lines(int socket, std::size_t max_command,
                const std::function<std::optional<std::string>(std::string_view)>& answer) {
  LineSplitter commands(max_command);
  std::array<char, 4096> chunk;
  for (;;) {
    const ssize_t got = ::recv(socket, chunk.data(), chunk.size(), 0);
    if (got == 0) return 0;
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN && wait_for(socket, POLLIN)) continue;
      return errno == ECONNRESET ? 0 : 1;
    }
    const Status fed = commands.feed({chunk.data(), static_cast<std::size_t>(got)});
    while (const auto line = commands.next()) {
      const auto reply = answer(*line);
      if (!reply) return 1;
      if (!send_all(socket, *reply)) return errno == EPIPE || errno == ECONNRESET ? 0 : 1;
    }
    if (!fed) return 1;
  }
}

}  // namespace sublet::gpu
