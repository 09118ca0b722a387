// SPDX-License-Identifier: Apache-2.0
// The kernel's own process connector, where this machine lets us listen.
#include "actor/process_connector.h"

#include "actor/test_support.h"

#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/netlink.h>
#include <sys/socket.h>
#include <algorithm>
#include <cstring>
#include <thread>

namespace sublet::actor {
namespace {

using Kind = proc::ProcessEvent::Kind;
constexpr std::int32_t forged_pid = 4'000'000;

#define NEEDS_CONNECTOR(source)           \
  auto source = open_process_connector(); \
  if (!(source)) GTEST_SKIP() << "the process connector is not usable here: " << (source).error().detail

std::vector<proc::ProcessEvent> read_all(EventSource& source) {
  std::vector<proc::ProcessEvent> events;
  EXPECT_EQ(source.read(events), EventSource::Reading::complete);
  return events;
}

TEST(Connector, ReportsProcessesAndNoThreads) {
  NEEDS_CONNECTOR(source);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  std::thread([] {}).join();
  const pid_t last = ::fork();
  if (last == 0) ::_exit(0);
  ::waitpid(last, nullptr, 0);
  const auto events = read_all(**source);
  const auto has = [&](Kind kind, pid_t pid) {
    return std::ranges::any_of(events, [&](const auto& each) {
      return each.kind == kind && each.pid == pid && each.parent == ::getpid() && each.at_ns > 0;
    });
  };
  for (const pid_t pid : {child, last}) EXPECT_TRUE(has(Kind::fork, pid) && has(Kind::exit, pid));
  EXPECT_FALSE(has(Kind::fork, ::getpid())) << "a thread is no process";
}

// Other programs can send to the socket. Its number is the pid of this process.
TEST(Connector, BelievesTheKernelOnly) {
  NEEDS_CONNECTOR(source);
  struct {
    nlmsghdr outer;
    std::uint32_t inner[5];  // a cn_msg without data
    std::uint32_t event[8];
  } message{};
  message.outer.nlmsg_len = sizeof message;
  message.outer.nlmsg_type = NLMSG_DONE;
  message.inner[0] = CN_IDX_PROC;
  message.inner[1] = CN_VAL_PROC;
  message.inner[4] = sizeof message.event;
  message.event[0] = 1;  // a fork
  for (const int word : {6, 7}) message.event[word] = forged_pid;
  for (const int word : {4, 5}) message.event[word] = 1;
  const auto parsed = proc::parse_process_event(std::as_bytes(std::span(&message, 1)));
  ASSERT_TRUE(parsed && parsed->pid == forged_pid) << "the message has the right form";
  const Fd other(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_CONNECTOR));
  sockaddr_nl to{};
  to.nl_family = AF_NETLINK;
  to.nl_pid = static_cast<std::uint32_t>(::getpid());
  const auto sent = ::sendto(other.get(), &message, sizeof message, 0, reinterpret_cast<sockaddr*>(&to), sizeof to);
  if (sent != static_cast<ssize_t>(sizeof message)) GTEST_SKIP() << "no message can be sent: " << std::strerror(errno);
  for (const proc::ProcessEvent& each : read_all(**source)) EXPECT_NE(each.pid, forged_pid);
}

}  // namespace
}  // namespace sublet::actor
