// SPDX-License-Identifier: Apache-2.0
#include "actor/order_form.h"

#include <csignal>

namespace sublet::actor {
namespace {

// Signals that a program may handle freely. Signals that always stop, end or debug a program are excluded.
bool is_word(int signal) {
  return signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGHUP || (signal >= SIGRTMIN && signal <= SIGRTMAX);
}

}  // namespace

// Fields that a verb does not take must be 0. A later version may use them, and this version must not ignore them.
bool well_formed(const Order& order) {
  const bool program = order.uid != 0 || order.flags != 0 || order.main_pid != 0 || order.keeper_pid != 0 ||
                       order.main_start != 0 || order.keeper_start != 0 || order.main_inode != 0;
  const bool about_lease = order.verb != Verb::hello && order.verb != Verb::look && order.verb != Verb::all_named &&
                           order.verb != Verb::keep && order.verb != Verb::inspect && order.verb != Verb::source &&
                           order.verb != Verb::parents;
  if ((order.lease != 0) != about_lease) return false;
  if (order.verb == Verb::slow) return !program && order.signal == 0 && order.percent <= 100;
  if (order.percent != 0) return false;
  const bool rest =
      order.uid != 0 || order.flags != 0 || order.keeper_pid != 0 || order.keeper_start != 0 || order.main_inode != 0;
  if (order.verb == Verb::inspect || order.verb == Verb::end) {
    const bool spares = order.verb == Verb::end && order.flags == to_spare;
    const bool signal =
        order.verb == Verb::inspect || spares ? order.signal == 0 : order.signal == SIGTERM || order.signal == SIGKILL;
    return signal && order.uid == 0 && (order.flags == 0 || spares) && order.keeper_pid == 0 &&
           order.keeper_start == 0 && order.main_pid > 0;
  }
  const bool about_keeper =
      order.keeper_pid != 0 || order.keeper_start != 0 || order.main_inode != 0 || order.signal != 0;
  if (order.verb == Verb::checkpoint) {
    return !about_keeper && (order.flags & ~(by_user | bring_back)) == 0 && order.main_pid > 0 && order.main_start != 0;
  }
  if (order.verb == Verb::swap) {
    if (order.flags == let_swap) return order.uid == 0 && order.main_pid == 0 && order.main_start == 0 && !about_keeper;
    return !about_keeper && (order.flags & ~by_user) == 0 && order.main_pid > 0 && order.main_start != 0;
  }
  if (order.verb == Verb::keep) {
    return !about_keeper && order.flags == 0 && order.main_pid == 0 && order.main_start == 0;
  }
  if (order.verb == Verb::source) {
    const bool one = order.flags == the_connector || order.flags == the_accounting;
    return one && !about_keeper && order.uid == 0 && order.main_pid == 0 && order.main_start == 0;
  }
  if (order.verb == Verb::parents) return !rest && order.signal == 0 && order.main_pid > 0 && order.main_start != 0;
  if (order.verb == Verb::tell) return !rest && order.main_pid > 0 && is_word(order.signal);
  if (order.verb != Verb::follow && program) return false;
  if (order.verb != Verb::signal) {
    if (order.signal != 0) return false;
  } else if (order.signal != SIGTERM && order.signal != SIGKILL && order.signal != SIGCONT) {
    return false;
  }
  if (order.verb != Verb::follow) return true;
  const bool is_adopted = (order.flags & adopted) != 0;
  if ((order.flags & ~adopted) != 0 || order.main_pid < 0 || order.keeper_pid < 0) return false;
  return order.main_pid != 0 || (is_adopted && order.keeper_pid == 0);
}

std::size_t descriptors_of(const Order& order) {
  if (order.verb == Verb::checkpoint || order.verb == Verb::keep) return 1;
  if (order.verb == Verb::inspect || order.verb == Verb::end) return 1;
  if (order.verb == Verb::source) return order.flags == the_accounting ? 1 : 0;
  if (order.verb == Verb::swap) return order.flags == let_swap ? 0 : 1;
  if (order.verb != Verb::follow) return 0;
  return (order.main_pid != 0 ? 1u : 0u) + (order.keeper_pid != 0 ? 1u : 0u);
}

}  // namespace sublet::actor
