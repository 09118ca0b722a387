// SPDX-License-Identifier: Apache-2.0
#include "gpu/serve.h"

#include "gpu/probe_client.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>

namespace sublet::gpu {
namespace {

bool wait_for(int socket, short events) {
  pollfd entry{socket, events, 0};
  int ready = 0;
  do {
    ready = ::poll(&entry, 1, -1);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

// The other side may have made the socket non-blocking, because it shares the flags of its end only with us.
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

bool happened(const pollfd& entry) { return (entry.revents & (entry.events | POLLHUP | POLLERR | POLLNVAL)) != 0; }

// A driver call that hangs keeps its thread from seeing the end of the socket.
void look(int stop, int socket, int target) {
  std::array<pollfd, 3> entries{{{stop, POLLIN, 0}, {socket, 0, 0}, {target, POLLIN, 0}}};
  auto& [stopping, peer, process] = entries;
  const bool needs_both = target >= 0;
  bool peer_gone = false, process_gone = false;
  while (::poll(entries.data(), entries.size(), -1) >= 0 || errno == EINTR) {
    if (happened(stopping)) return;
    // An end is permanent, so its descriptor is not polled again.
    if (happened(peer)) peer_gone = true, peer.fd = -1;
    if (happened(process)) process_gone = true, process.fd = -1;
    if (peer_gone && (process_gone || !needs_both)) ::_exit(1);
  }
}

}  // namespace

// Without a thread the driver call is made unwatched. The daemon can work without this helper.
Watch::Watch(int socket, int target) : stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (!stop_) return;
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the thread inherits the mask
  try {
    thread_ = std::thread(look, stop_.get(), socket, target);
  } catch (const std::system_error&) {
    stop_.reset();
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watch::~Watch() {
  if (!thread_.joinable()) return;
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

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
