// SPDX-License-Identifier: Apache-2.0
#include "actor/serve.h"

#include "base/clock.h"
#include "proc/pidfd.h"

#include <fmt/format.h>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace sublet::actor {
namespace {

// More than any order has. The kernel drops the rest, and the order is refused.
constexpr std::size_t most_descriptors = 8;

struct Received {
  ssize_t size = 0;
  std::vector<Fd> descriptors;
  bool truncated = false;
};

constexpr int chore_interval_ms = 1000;

// Work while nobody asks: helpers end and must be reaped, and reports of the kernel must be read.
struct Chores {
  Helpers* helpers = nullptr;
  LinkSources* links = nullptr;

  bool any() const { return (helpers != nullptr && helpers->any()) || (links != nullptr && links->any()); }
  void run() const {
    if (helpers != nullptr && helpers->any()) helpers->sweep();
    if (links != nullptr) links->drain();
  }
};

bool wait_for(int socket, short events, const Chores& chores = {}) {
  pollfd entry{socket, events, 0};
  for (;;) {
    const int ready = ::poll(&entry, 1, chores.any() ? chore_interval_ms : -1);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    chores.run();
  }
}

Received receive(int socket, std::span<std::byte> into) {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * most_descriptors)> control{};
  iovec part{into.data(), into.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  Received received;
  do {
    received.size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (received.size < 0 && (errno == EINTR || (errno == EAGAIN && wait_for(socket, POLLIN))));
  if (received.size < 0) return received;
  for (cmsghdr* part_of = CMSG_FIRSTHDR(&message); part_of != nullptr; part_of = CMSG_NXTHDR(&message, part_of)) {
    if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part_of->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part_of) + i * sizeof(int), sizeof fd);
      received.descriptors.emplace_back(fd);
    }
  }
  received.truncated = (message.msg_flags & MSG_CTRUNC) != 0;
  return received;
}

bool reply_to(int socket, const Reply& reply, const Fd& attachment) {
  iovec part{const_cast<Reply*>(&reply), sizeof reply};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (attachment) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = attachment.get();
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  for (;;) {
    if (::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof reply)) return true;
    if (errno == EINTR || (errno == EAGAIN && wait_for(socket, POLLOUT))) continue;
    return false;
  }
}

}  // namespace

int serve(int socket, Service& service, Helpers* helpers, LinkSources* links) {
  const Chores chores{helpers, links};
  // One byte more than an order, so that a longer message is noticed.
  std::array<std::byte, sizeof(Order) + 1> buffer;
  for (std::int64_t done = monotonic_ns();;) {
    if (!wait_for(socket, POLLIN, chores)) return 1;
    // A daemon that sends orders without a pause leaves no idle time for this.
    if (monotonic_ns() - done > chore_interval_ms * 1'000'000LL) {
      chores.run();
      done = monotonic_ns();
    }
    Received received = receive(socket, buffer);
    if (received.size == 0) return 0;  // an empty message would look the same, but nobody sends one
    if (received.size < 0) return errno == ECONNRESET ? 0 : 1;
    const std::span<const std::byte> message(buffer.data(), static_cast<std::size_t>(received.size));
    const Reply reply = service.answer(message, std::move(received.descriptors), received.truncated);
    if (!reply_to(socket, reply, service.take_attachment())) return 0;
  }
}

int listen_for(int listener, std::uint32_t user, const proc::ProcRoot& root, const ServiceOptions& options) {
  for (;;) {
    if (!wait_for(listener, POLLIN, {options.helpers, options.links})) return 1;
    const Fd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN && wait_for(listener, POLLIN)) continue;
      fmt::print(stderr, "sublet-actor: cannot accept a connection: {}\n", std::strerror(errno));
      return 1;
    }
    const auto peer = proc::peer_of(root, socket.get());
    if (!peer || (peer->uid != 0 && peer->uid != user)) {
      fmt::print(stderr, "sublet-actor: refused a connection of uid {}: only root and uid {} may connect\n",
                 peer ? peer->uid : 65534, user);
      continue;
    }
    ServiceOptions for_peer = options;
    for_peer.client_pid = peer->pid;
    for_peer.keepers.group = peer->gid;
    for_peer.keepers.for_root = peer->uid == 0;
    Service service(root, std::move(for_peer));
    (void)serve(socket.get(), service, options.helpers, options.links);
  }
}

}  // namespace sublet::actor
