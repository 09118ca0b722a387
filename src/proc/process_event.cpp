// SPDX-License-Identifier: Apache-2.0
#include "proc/process_event.h"

#include <linux/cn_proc.h>
#include <linux/connector.h>
#include <linux/netlink.h>
#include <algorithm>
#include <cstring>

namespace sublet::proc {
namespace {

// The kernel's struct has a longer union in later versions. Only these parts are read.
struct Head {
  std::uint32_t what = 0;
  std::uint32_t cpu = 0;
  std::uint64_t at_ns = 0;
};
struct Forked {
  std::int32_t parent_pid, parent_tgid, pid, tgid;
};
struct Executed {
  std::int32_t pid, tgid;
};
// Kernels before 4.18 do not tell the parent.
struct Exited {
  std::int32_t pid, tgid;
  std::uint32_t code, signal;
  std::int32_t parent_pid, parent_tgid;
};
constexpr std::size_t shortest_exit = offsetof(Exited, parent_pid);
constexpr std::uint32_t none = 0, forked = 1, executed = 2, exited = 0x80000000;

template <typename Part>
bool read(std::span<const std::byte> data, Part& part, std::size_t least = sizeof(Part)) {
  if (data.size() < least) return false;
  std::memcpy(&part, data.data(), std::min(data.size(), sizeof part));
  return true;
}

std::optional<ProcessEvent> of_process(ProcessEvent event, std::int32_t thread) {
  if (thread != event.pid || event.pid < 1 || event.parent < 0) return std::nullopt;
  return event;
}

}  // namespace

std::optional<ProcessEvent> parse_process_event(std::span<const std::byte> datagram) {
  nlmsghdr outer{};
  if (!read(datagram, outer) || outer.nlmsg_type != NLMSG_DONE || outer.nlmsg_len > datagram.size()) return {};
  if (outer.nlmsg_len < NLMSG_HDRLEN + sizeof(cn_msg)) return {};
  datagram = datagram.subspan(NLMSG_HDRLEN, outer.nlmsg_len - NLMSG_HDRLEN);
  cn_msg inner{};
  std::memcpy(&inner, datagram.data(), sizeof inner);
  if (inner.id.idx != CN_IDX_PROC || inner.id.val != CN_VAL_PROC) return {};
  datagram = datagram.subspan(sizeof inner);
  if (inner.len > datagram.size()) return {};
  datagram = datagram.first(inner.len);
  Head head;
  if (!read(datagram, head)) return {};
  datagram = datagram.subspan(sizeof head);
  ProcessEvent event{.at_ns = static_cast<std::int64_t>(head.at_ns)};
  if (head.what == none) {
    if (!read(datagram, event.error)) return {};
    return event;
  }
  if (head.what == forked) {
    Forked part{};
    if (!read(datagram, part)) return {};
    event.kind = ProcessEvent::Kind::fork, event.pid = part.tgid, event.parent = part.parent_tgid;
    return of_process(event, part.pid);
  }
  if (head.what == executed) {
    Executed part{};
    if (!read(datagram, part)) return {};
    event.kind = ProcessEvent::Kind::exec, event.pid = part.tgid;
    return of_process(event, part.pid);
  }
  if (head.what != exited) return {};
  Exited part{};
  if (!read(datagram, part, shortest_exit)) return {};
  event.kind = ProcessEvent::Kind::exit, event.pid = part.tgid, event.parent = part.parent_tgid;
  return of_process(event, part.pid);
}

}  // namespace sublet::proc
