// SPDX-License-Identifier: Apache-2.0
// The verbs of the actor that send signals.
#include "actor/service.h"
#include "proc/pidfd.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace sublet::actor {
namespace {

// Whether the process handles the signal, by /proc/PID/status.
bool handles(const std::string& status, int signal) {
  const auto at = status.find("\nSigCgt:\t");
  if (at == std::string::npos) return false;
  return (std::strtoull(status.c_str() + at + 9, nullptr, 16) >> (signal - 1) & 1) != 0;
}

}  // namespace

void Service::signal(const Followed& followed, Role role, const Order& order, Reply& reply) {
  if (!scan()) {
    reply.code = Code::failed;
    reply.error = EIO;
    return;
  }
  for (const proc::Member& member : lineage_.members) {
    if (member.lease != followed.lease) continue;
    if (!proc::is_program(member.link)) {
      ++reply.left;
      continue;
    }
    const auto pidfd = proc::open_pidfd(root_, member.process);
    if (!pidfd) continue;  // ended meanwhile
    const auto now = root_.read_with(member.process.pid, "status");
    const auto uids = now ? proc::parse_uids(now->text) : std::nullopt;
    if (!uids || now->info.ref != member.process || proc::is_dead(pidfd->get())) continue;
    if (now->info.kernel || protected_.contains(member.process.pid) || !reaches(order, role, followed.uid, *uids)) {
      ++reply.refused;
      continue;
    }
    const Status sent = proc::send_signal(pidfd->get(), order.signal);
    if (sent) {
      ++reply.sent;
      // A stopped process could not react to SIGTERM.
      if (order.signal == SIGTERM) (void)proc::send_signal(pidfd->get(), SIGCONT);
    } else if (sent.error().code != sublet::Code::NotFound) {
      ++reply.refused;
    }
  }
}

// Sends a signal to one process of the program, if its descent or its group proves that it belongs to the program. Only
// a signal that the process handles is sent, because the signal is meant as a message.
void Service::tell(const Followed& followed, Role role, const Order& order, Reply& reply) {
  const ProcessRef process{order.main_pid, order.main_start};
  scanned_ns_ = 0;
  if (!scan()) {
    reply.code = Code::failed;
    reply.error = EIO;
    return;
  }
  const proc::Member* member = lineage_.find(process);
  const auto pidfd = proc::open_pidfd(root_, process);
  const auto now = root_.read_with(process.pid, "status");
  const auto uids = now ? proc::parse_uids(now->text) : std::nullopt;
  if (!pidfd || !uids || now->info.ref != process || proc::is_dead(pidfd->get())) {
    reply.code = Code::gone;
  } else if (member == nullptr || member->lease != followed.lease || !proc::is_program(member->link)) {
    reply.code = Code::no_proof;
  } else if (now->info.kernel || protected_.contains(process.pid)) {
    reply.code = Code::untouchable;
  } else if (!reaches(order, role, followed.uid, *uids)) {
    reply.code = Code::wrong_user;
  } else if (!handles(now->text, order.signal)) {
    reply.code = Code::unhandled;
  } else if (const Status sent = proc::send_signal(pidfd->get(), order.signal); !sent) {
    reply.code = Code::failed;
    reply.error = EPERM;
  } else {
    reply.sent = 1;
  }
}

void Service::wake_keeper(const Followed& followed, Reply& reply) const {
  // A keeper is known only if it was found to be the program's parent.
  if (!followed.keeper || proc::is_dead(followed.keeper_pidfd.get())) {
    reply.code = Code::gone;
    return;
  }
  const auto keeper = root_.read(followed.keeper.pid);
  if (!keeper || keeper->ref != followed.keeper || keeper->state != 'T') return;
  if (proc::send_signal(followed.keeper_pidfd.get(), SIGCONT)) reply.sent = 1;
  else reply.refused = 1;
}

}  // namespace sublet::actor
