// SPDX-License-Identifier: Apache-2.0
// The kernel's own process connector, where this machine lets us listen.
#include "actor/process_connector.h"

#include "actor/test_support.h"

#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/netlink.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <algorithm>
#include <array>
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

// The filter alone, on a socket of the test.
TEST(Connector, FiltersReportsThatAnybodyCanCauseInACrowd) {
  constexpr std::uint32_t process[] = {7, 7, 7, 7}, thread[] = {7, 7, 8, 7}, other_thread[] = {8, 7, 0, 0};
  const struct {
    const char* name;
    std::uint32_t what;
    const std::uint32_t (&words)[4];
    bool passes;
  } rows[] = {
      {"answer", 0, thread, true},
      {"fork", 1, process, true},
      {"fork of a thread", 1, thread, false},
      {"exec", 2, process, true},
      {"exec of a thread", 2, other_thread, false},
      {"exit", 0x80000000, process, true},
      {"exit of a thread", 0x80000000, other_thread, false},
      {"uid", 4, process, false},
      {"gid", 0x40, process, false},
      {"session", 0x80, process, false},
      {"debugger", 0x100, process, false},
      {"name", 0x200, process, false},
      {"core dump", 0x40000000, process, false},
      {"two kinds", 3, process, false},
  };
  int ends[2] = {-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd from(ends[0]), to(ends[1]);
  attach_process_filter(to.get());
  for (const auto& row : rows) {
    std::array<std::uint32_t, 17> message{};  // 16 bytes of netlink, 20 of the connector, 16 of the head, 16 of words
    message[9] = row.what;
    std::ranges::copy(row.words, message.begin() + 13);
    ASSERT_EQ(::send(from.get(), message.data(), sizeof message, 0), static_cast<ssize_t>(sizeof message)) << row.name;
    char buffer[128];
    EXPECT_EQ(::recv(to.get(), buffer, sizeof buffer, MSG_DONTWAIT) > 0, row.passes) << row.name;
  }
}

TEST(Connector, IsNotOverrunByNewNames) {
  NEEDS_CONNECTOR(source);
  for (int i = 0; i < 200'000; ++i) ASSERT_EQ(::prctl(PR_SET_NAME, i % 2 == 0 ? "one" : "other"), 0);
  const auto events = read_all(**source);
  EXPECT_FALSE(std::ranges::any_of(events, [](const auto& each) { return each.pid == ::getpid(); }));
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
