// SPDX-License-Identifier: Apache-2.0
#include "gpu/serve.h"

#include "gpu/probe_client.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <csignal>
#include <cstring>
#include <memory>

namespace sublet::gpu {
namespace {

constexpr long call_close_range = 436;
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

void close_others(int keep) {
  const auto close_range = [](unsigned first, unsigned last) {
    return first > last || ::syscall(call_close_range, first, last, 0) == 0;
  };
  if (keep < 3
          ? close_range(3, UINT_MAX)
          : close_range(3, static_cast<unsigned>(keep) - 1) && close_range(static_cast<unsigned>(keep) + 1, UINT_MAX)) {
    return;
  }
  // Kernels before 5.9, and sandboxes that do not know the call.
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir("/proc/self/fd"), &::closedir);
  if (!dir) return;
  while (const dirent* entry = ::readdir(dir.get())) {
    int fd = -1;
    std::from_chars(entry->d_name, entry->d_name + std::strlen(entry->d_name), fd);
    if (fd > 2 && fd != keep && fd != ::dirfd(dir.get())) ::close(fd);
  }
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

void shed_descriptors(int keep) {
  close_others(keep);
  if (keep >= 0) ::fcntl(keep, F_SETFD, FD_CLOEXEC);
  for (int fd = 0; fd <= 2; ++fd) {
    // open() takes the lowest free number, which is this one.
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)!::open("/dev/null", O_RDWR);
  }
}

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
