// SPDX-License-Identifier: Apache-2.0
#include "actor/keeper_service.h"

#include "actor/become.h"
#include "actor/groups.h"
#include "base/fd.h"
#include "proc/detached.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstring>

namespace sublet::actor {
namespace {

constexpr int above_fixed_descriptors = 10;
constexpr int order_timeout_ms = 10'000;
constexpr std::uint32_t order_version = 1;

// One message on the socket, with the document and the writing end of the report attached.
struct KeeperOrder {
  std::uint32_t version = order_version;
  std::uint32_t uid = 0;
};

struct Received {
  KeeperOrder order{};
  Fd document, report;
  std::string why{};  // a sentence about a failure; "": received
};

// Space for two descriptors, aligned for cmsghdr.
union Attached {
  cmsghdr header;
  char space[CMSG_SPACE(2 * sizeof(int))];
};

Received receive(int socket) {
  Received got;
  pollfd entry{socket, POLLIN, 0};
  if (::poll(&entry, 1, order_timeout_ms) != 1) {
    got.why = "no order came";
    return got;
  }
  iovec part{&got.order, sizeof got.order};
  Attached attached{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = attached.space;
  message.msg_controllen = sizeof attached.space;
  const ssize_t size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* header = size >= 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    std::array<int, 2> fds{-1, -1};
    std::memcpy(fds.data(), CMSG_DATA(header), std::min(sizeof fds, header->cmsg_len - CMSG_LEN(0)));
    // become_keeper() wants numbers that it does not give away itself.
    const Fd first(fds[0]), second(fds[1]);
    got.document = Fd(::fcntl(first.get(), F_DUPFD_CLOEXEC, above_fixed_descriptors));
    got.report = Fd(::fcntl(second.get(), F_DUPFD_CLOEXEC, above_fixed_descriptors));
  }
  const bool whole = size == static_cast<ssize_t>(sizeof got.order) && (message.msg_flags & MSG_CTRUNC) == 0;
  if (!whole || !got.document || !got.report || got.order.version != order_version)
    got.why = "the order is malformed: sublet-actor.service must be restarted after an upgrade";
  return got;
}

std::string check_peer(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return "standard input is not the socket of an order: sublet-keeper.socket starts this verb";
  if (peer.uid == 0 || peer.uid == ::geteuid()) return {};
  return fmt::format("uid {} may not start keepers", peer.uid);
}

std::string prepare(const Received& got, const KeeperOptions& options) {
  if (!got.why.empty()) return got.why;
  auto refusal = check_keeper_order(options, got.order.uid, got.document, true);
  if (refusal.code != Code::ok) return refusal.why;
  return make_log_directory(options.logs, got.order.uid, options.group);
}

}  // namespace

std::string hand_keeper_over(const std::string& path, std::uint32_t uid, int document, int report) {
  const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (!socket || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return fmt::format("{}: {}; start it: systemctl start sublet-keeper.socket", path, std::strerror(errno));
  }
  KeeperOrder order{.uid = uid};
  iovec part{&order, sizeof order};
  Attached attached{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = attached.space;
  message.msg_controllen = sizeof attached.space;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(2 * sizeof(int));
  const std::array<int, 2> fds{document, report};
  std::memcpy(CMSG_DATA(header), fds.data(), sizeof fds);
  if (::sendmsg(socket.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof order)) return {};
  return fmt::format("{}: {}", path, std::strerror(errno));
}

std::string become_ordered_keeper(int socket, const KeeperOptions& options) {
  const Fd taken(socket);
  if (std::string why = check_peer(socket); !why.empty()) return why;
  const Received got = receive(socket);
  if (const std::string why = prepare(got, options); !why.empty()) {
    const std::string line = fmt::format("{}{}\n", proc::failure_mark, why);
    if (got.report) (void)!::write(got.report.get(), line.data(), line.size());
    return why;
  }
  if (const auto root = proc::ProcRoot::open()) enter_keeper_group(*root);
  become_keeper(
      {.uid = got.order.uid, .program = options.program, .document = got.document.get(), .report = got.report.get()});
}

}  // namespace sublet::actor
