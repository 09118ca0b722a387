// SPDX-License-Identifier: Apache-2.0
#include "credit/channel.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

namespace sublet::credit {
namespace {

constexpr int waiting_connections = 128;

// The control part of a message: the sender's credentials, and descriptors that nobody asked for.
struct Control {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(16 * sizeof(int))> bytes;
};

std::optional<ucred> take_credentials(msghdr& message) {
  std::optional<ucred> found;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET) continue;
    if (part->cmsg_type == SCM_CREDENTIALS) std::memcpy(&found.emplace(), CMSG_DATA(part), sizeof(ucred));
    if (part->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; at + sizeof(int) <= part->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int file = -1;
      std::memcpy(&file, CMSG_DATA(part) + at, sizeof file);
      ::close(file);
    }
  }
  return found;
}

}  // namespace

Result<Fd> listen(const std::string& path) {
  sockaddr_un place{};
  place.sun_family = AF_UNIX;
  if (path.size() >= sizeof place.sun_path)
    return bad_request(fmt::format("the path {} is too long for a socket: {} of {} bytes", path, path.size(),
                                   sizeof place.sun_path - 1));
  std::ranges::copy(path, static_cast<char*>(place.sun_path));
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return from_errno("socket", errno);
  const int on = 1;
  // Connections inherit it, so that a question that comes before accept() has its credentials too.
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) return from_errno("SO_PASSCRED", errno);
  ::unlink(path.c_str());
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0)
    return from_errno("cannot make the socket " + path, errno);
  if (::chmod(path.c_str(), 0666) != 0 || ::listen(socket.get(), waiting_connections) != 0)
    return from_errno("cannot listen on " + path, errno);
  return socket;
}

Result<Fd> accept(int listener) {
  Fd connection(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection && errno != EAGAIN && errno != ECONNABORTED) return from_errno("accept", errno);
  return connection;
}

Result<Question> receive(const proc::ProcRoot& root, int connection) {
  sublet_credit_question question{};
  Control control;
  iovec part{&question, sizeof question};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  ssize_t size = 0;
  do size = ::recvmsg(connection, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  while (size < 0 && errno == EINTR);
  if (size < 0) return from_errno("recvmsg", errno);
  const auto sender = take_credentials(message);
  if (size != sizeof question || (message.msg_flags & MSG_TRUNC) != 0 || question.size != sizeof question ||
      question.abi != SUBLET_CREDIT_ABI)
    return bad_request(fmt::format("a question of {} bytes and version {}", size, question.abi));
  if (question.kind != SUBLET_CREDIT_BEGIN && question.kind != SUBLET_CREDIT_MORE)
    return bad_request(fmt::format("a question of the unknown kind {}", question.kind));
  auto peer = proc::peer_of(root, connection);
  if (!peer) return peer.error();
  if (peer->anonymous || !peer->process) return denied("the process that asks is not known here");
  if (!sender || sender->pid != peer->pid || sender->uid != peer->uid)
    return denied(fmt::format("pid {} sent a question on a connection of pid {}", sender ? sender->pid : 0, peer->pid));
  return Question{.kind = static_cast<sublet_credit_kind>(question.kind),
                  .device = question.device,
                  .needed = question.needed,
                  .sender = std::move(*peer)};
}

Status answer(int connection, sublet_credit_result result, const Pages* pages, int share_page) {
  sublet_credit_answer said{.size = sizeof said, .abi = SUBLET_CREDIT_ABI, .result = result, .reserved = 0};
  iovec part{&said, sizeof said};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(3 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (pages != nullptr) {
    const std::array files{pages->limit_file(), pages->use_file(), share_page};
    const std::size_t size = (share_page < 0 ? 2 : 3) * sizeof(int);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(header), files.data(), size);
  }
  if (::sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof said) return {};
  return from_errno("sendmsg", errno);
}

}  // namespace sublet::credit
