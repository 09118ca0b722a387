// SPDX-License-Identifier: Apache-2.0
#include "actor/process_connector.h"

#include "base/clock.h"
#include "base/fd.h"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstring>

namespace sublet::actor {
namespace {

using proc::ProcessEvent;

// The actor reads about once a second, and each report takes about 1 KiB. The kernel uses only what is needed.
constexpr int receive_buffer = 32 << 20;
constexpr int patience_ms = 500;  // for the kernel's answer to the start
constexpr std::size_t most_at_once = 200'000;

// Offsets in the datagram.
constexpr std::uint32_t what_at = NLMSG_HDRLEN + sizeof(cn_msg), first_at = what_at + 16;

Status send_operation(int socket, std::uint32_t operation) {
  constexpr std::size_t size = NLMSG_HDRLEN + sizeof(cn_msg) + sizeof operation;
  nlmsghdr outer{};
  outer.nlmsg_len = size;
  outer.nlmsg_type = NLMSG_DONE;
  cn_msg inner{};
  inner.id.idx = CN_IDX_PROC;
  inner.id.val = CN_VAL_PROC;
  inner.len = sizeof operation;
  std::array<char, size> message{};
  std::memcpy(message.data(), &outer, sizeof outer);
  std::memcpy(message.data() + NLMSG_HDRLEN, &inner, sizeof inner);
  std::memcpy(message.data() + NLMSG_HDRLEN + sizeof inner, &operation, sizeof operation);
  if (::send(socket, message.data(), size, 0) == static_cast<ssize_t>(size)) return {};
  return from_errno("cannot start the process connector", errno);
}

class Connector final : public EventSource {
 public:
  explicit Connector(Fd socket) : socket_(std::move(socket)) {}
  ~Connector() override { (void)send_operation(socket_.get(), PROC_CN_MCAST_IGNORE); }

  Reading read(std::vector<ProcessEvent>& events) override {
    Reading result = Reading::complete;
    for (std::size_t i = 0; i < most_at_once; ++i) {
      sockaddr_nl from{};
      socklen_t size = sizeof from;
      const ssize_t got = ::recvfrom(socket_.get(), buffer_.data(), buffer_.size(), MSG_DONTWAIT,
                                     reinterpret_cast<sockaddr*>(&from), &size);
      if (got < 0 && errno == EAGAIN) return result;
      if (got < 0 && errno == ENOBUFS) result = Reading::overrun;  // the rest of the buffer is still there
      else if (got < 0 && errno != EINTR) return Reading::failed;
      // Anybody may send to this socket. The kernel has the number 0.
      if (got < 0 || size < sizeof from || from.nl_pid != 0) continue;
      if (auto event = proc::parse_process_event(std::span(buffer_).first(static_cast<std::size_t>(got))))
        events.push_back(*event);
    }
    return result;  // the next reading goes on
  }

  // Waits for the kernel's answer.
  Status begin() {
    if (auto sent = send_operation(socket_.get(), PROC_CN_MCAST_LISTEN); !sent) return sent.error();
    std::vector<ProcessEvent> events;
    for (const std::int64_t began = monotonic_ns(); monotonic_ns() - began < patience_ms * 1'000'000LL;) {
      pollfd entry{socket_.get(), POLLIN, 0};
      ::poll(&entry, 1, patience_ms / 10);
      if (read(events) == Reading::failed) break;
      for (const ProcessEvent& event : events) {
        if (event.kind != ProcessEvent::Kind::acknowledged) return {};  // events come
        if (event.error == 0) return {};
        return from_errno("the kernel refused the process connector", event.error);
      }
    }
    return unavailable("the kernel did not answer on the process connector");
  }

 private:
  Fd socket_;
  std::array<std::byte, 4096> buffer_{};
};

}  // namespace

// In all reports that are taken, except those about threads, the thread is the process. A fork has these numbers in its
// third and fourth word, an exec and an exit in the first and second. Without the filter, the parser drops the rest
// later.
void attach_process_filter(int socket) {
  std::array<sock_filter, 15> code{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, what_at),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl(0), 11, 0),          // the answer to the start is taken
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl(1), 2, 0),           // a fork
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl(2), 5, 0),           // an exec
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, htonl(0x80000000), 4, 9),  // an exit, or dropped
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, first_at + 12),
      BPF_STMT(BPF_MISC | BPF_TAX, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, first_at + 8),
      BPF_JUMP(BPF_JMP | BPF_JA, 3, 0, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, first_at + 4),
      BPF_STMT(BPF_MISC | BPF_TAX, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, first_at),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, 0xffffffff),
      BPF_STMT(BPF_RET | BPF_K, 0),
  }};
  sock_fprog program{static_cast<unsigned short>(code.size()), code.data()};
  (void)::setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

Result<std::unique_ptr<EventSource>> open_process_connector() {
  Fd socket(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_CONNECTOR));
  if (!socket) return from_errno("cannot open the process connector", errno);
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = CN_IDX_PROC;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return from_errno("cannot listen to the process connector: before Linux 6.6 it needs CAP_NET_ADMIN", errno);
  }
  // Without the capability the kernel gives less, and more reports are lost.
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUFFORCE, &receive_buffer, sizeof receive_buffer) != 0)
    (void)::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  attach_process_filter(socket.get());
  auto source = std::make_unique<Connector>(std::move(socket));
  if (auto begun = source->begin(); !begun) return begun.error();
  return std::unique_ptr<EventSource>(std::move(source));
}

}  // namespace sublet::actor
