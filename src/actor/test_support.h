// SPDX-License-Identifier: Apache-2.0
// Helpers for the tests of this folder: programs with a keeper, of any user, and an end of a socket.
#pragma once

#include "actor/protocol.h"
#include "actor/roles.h"
#include "base/fd.h"
#include "proc/pidfd.h"
#include "proc/test_support.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <string>
#include <vector>

namespace sublet::actor {

#define NEEDS_ROOT() \
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become several users"

inline constexpr uid_t ana = 54321, ben = 54322, admin = 54323;  // uids without an account

inline Fd pidfd_of(pid_t pid) { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

// Waits at most ten seconds for the end of the process. True: it has ended.
inline bool ends(const Fd& pidfd) {
  pollfd entry{pidfd.get(), POLLIN, 0};
  return ::poll(&entry, 1, 10'000) == 1;
}

// A keeper and its program, both of user `uid` (as root; else of our user). The program runs `body`, and then sleeps.
// Both end with the scope.
class Kept {
 public:
  template <typename Body>
  Kept(uid_t uid, Body body) : uid_(::geteuid() == 0 ? uid : ::geteuid()) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const auto keeper = [&] {
      ::prctl(PR_SET_CHILD_SUBREAPER, 1);
      if (::geteuid() == 0 && ::setresuid(uid_, uid_, uid_) != 0) return 1;
      ::prctl(PR_SET_DUMPABLE, 1);  // as an exec leaves a program
      const pid_t program = ::fork();
      if (program == 0) {
        body();
        const pid_t me = ::getpid();
        if (::write(ready[1], &me, sizeof me) != sizeof me) return 1;
        return proc::sleep_for_ever();
      }
      return proc::sleep_for_ever();
    };
    keeper_.emplace(keeper);
    EXPECT_EQ(::read(ready[0], &main_, sizeof main_), static_cast<ssize_t>(sizeof main_));
    ::close(ready[0]);
    ::close(ready[1]);
    main_pidfd = pidfd_of(main_);
    keeper_pidfd = pidfd_of(keeper_->pid());
  }
  explicit Kept(uid_t uid) : Kept(uid, [] {}) {}
  ~Kept() {
    if (!proc::is_dead(main_pidfd.get())) (void)proc::send_signal(main_pidfd.get(), SIGKILL);
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;

  uid_t uid() const { return uid_; }
  pid_t main() const { return main_; }
  pid_t keeper() const { return keeper_->pid(); }
  void end_keeper() { keeper_.reset(); }

  // Returns the order to follow the program as that lease, with its descriptors.
  Order order(std::uint64_t lease, const proc::ProcRoot& root, bool with_keeper = true) const {
    Order order{.verb = Verb::follow, .lease = lease, .uid = uid_};
    order.main_pid = main_;
    order.main_start = root.read(main_)->ref.start_ticks;
    order.main_inode = proc::pidfd_inode(main_pidfd.get()).value_or(0);
    if (with_keeper) {
      order.keeper_pid = keeper();
      order.keeper_start = root.read(keeper())->ref.start_ticks;
    }
    return order;
  }
  std::vector<Fd> descriptors(bool with_keeper = true) const {
    std::vector<Fd> all;
    all.emplace_back(::dup(main_pidfd.get()));
    if (with_keeper) all.emplace_back(::dup(keeper_pidfd.get()));
    return all;
  }

  Fd main_pidfd;
  Fd keeper_pidfd;

 private:
  uid_t uid_;
  std::optional<proc::Child> keeper_;
  pid_t main_ = -1;
};

}  // namespace sublet::actor
