// SPDX-License-Identifier: Apache-2.0
#include "proc/listener.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

namespace sublet::proc {
namespace {

constexpr std::string_view sockets =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1\n"
    "   1: 00000000:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 4712 1\n"
    "   2: 0100007F:1F92 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1002        0 4713 1\n"
    "   3: 0200007F:1F93 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1003        0 4714 1\n"
    "   4: 0100007F:1F94 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1004        0 4715 1\n"
    "   5: 00000000:1F94 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1005        0 4716 1\n";

TEST(Listener, IsFoundByItsPort) {
  EXPECT_EQ(find_listener(sockets, "0100007F", 8080), 1000U);
  EXPECT_EQ(find_listener(sockets, "0100007F", 8081), 1001U) << "on all addresses";
  EXPECT_FALSE(find_listener(sockets, "0100007F", 8082)) << "connected, not listening";
  EXPECT_FALSE(find_listener(sockets, "0100007F", 8083)) << "on another address";
  EXPECT_FALSE(find_listener(sockets, "0100007F", 8084)) << "of two users: nobody knows who would answer";
  EXPECT_FALSE(find_listener("", "0100007F", 8080));
}

TEST(Listener, OfThisMachine) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  socklen_t size = sizeof address;
  ASSERT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::uint16_t port = ntohs(address.sin_port);
  EXPECT_FALSE(listener_uid("127.0.0.1", port)) << "bound is not listening";
  ASSERT_EQ(::listen(socket, 1), 0);
  EXPECT_EQ(listener_uid("127.0.0.1", port), ::geteuid());
  ::close(socket);
}

}  // namespace
}  // namespace sublet::proc
