// SPDX-License-Identifier: Apache-2.0
#include "machine/card_lock.h"

#include <fmt/format.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace sublet::machine {
namespace {

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t length = 0;
  explicit AbstractAddress(const std::string& uuid) {
    const std::string name = "sublet/gpu/" + uuid.substr(0, 80);
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());  // the leading zero byte makes the name abstract
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

std::string holder_of(const AbstractAddress& at) {
  const Fd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::connect(probe.get(), at.get(), at.length) != 0 ||
      ::getsockopt(probe.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return "an unknown process";
  }
  return fmt::format("pid {} of uid {}", credentials.pid, credentials.uid);
}

}  // namespace

Status CardLocks::acquire(const std::string& uuid) {
  if (held_.contains(uuid)) return {};
  const AbstractAddress at(uuid);
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return from_errno("socket", errno);
  if (::bind(socket.get(), at.get(), at.length) != 0) {
    if (errno != EADDRINUSE) return from_errno("cannot lock card " + uuid, errno);
    return Error{Code::InUse, fmt::format("another daemon manages this card: {}", holder_of(at)),
                 "stop one of the two daemons"};
  }
  if (::listen(socket.get(), 8) != 0) return from_errno("cannot lock card " + uuid, errno);
  held_.emplace(uuid, std::move(socket));
  return {};
}

}  // namespace sublet::machine
