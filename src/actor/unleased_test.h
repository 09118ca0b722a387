// SPDX-License-Identifier: Apache-2.0
// Helpers for the tests of `inspect` and `end`: families of real processes that use a simulated card.
#pragma once

#include "actor/service.h"
#include "actor/test_support.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <csignal>
#include <map>

namespace sublet::actor {

// A directory of simulated cards with a file that processes open or map.
class Cards {
 public:
  Cards() { dir_.write("cards/table", std::string(4096, '\0')); }
  std::string path() const { return dir_.path("cards"); }
  Fd open_card() const { return Fd(::open((path() + "/table").c_str(), O_RDWR)); }
  void map_card() const {
    const Fd file = open_card();
    if (::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file.get(), 0) == MAP_FAILED) ::_exit(9);
  }

 private:
  proc::TempDir dir_;
};

// Processes that report themselves by a number. All of them end with the scope.
class Family {
 public:
  Family() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_end_ = Fd(ends[0]);
    write_end_ = Fd(ends[1]);
  }
  ~Family() {
    for (const auto& [number, member] : members_)
      if (!proc::is_dead(member.pidfd.get())) (void)proc::send_signal(member.pidfd.get(), SIGKILL);
  }
  Family(const Family&) = delete;
  Family& operator=(const Family&) = delete;

  // Called in a member.
  void report(int number) const {
    const std::int32_t words[] = {number, ::getpid()};
    if (::write(write_end_.get(), words, sizeof words) != sizeof words) ::_exit(8);
  }
  // Forks a member that runs `body` and then sleeps.
  template <typename Body>
  void fork(Body body) const {
    if (::fork() != 0) return;
    body();
    proc::sleep_for_ever();
  }
  // Waits for the reports of so many members.
  void await(std::size_t count) {
    while (members_.size() < count) {
      std::int32_t words[2] = {};
      ASSERT_EQ(::read(read_end_.get(), words, sizeof words), static_cast<ssize_t>(sizeof words));
      members_.emplace(words[0], Member{words[1], pidfd_of(words[1])});
    }
  }

  pid_t pid(int number) const { return members_.at(number).pid; }
  const Fd& pidfd(int number) const { return members_.at(number).pidfd; }
  bool lives(int number) const { return !proc::is_dead(pidfd(number).get()); }

 private:
  struct Member {
    pid_t pid = 0;
    Fd pidfd;
  };
  Fd read_end_, write_end_;
  std::map<int, Member> members_;
};

// An actor with simulated cards.
struct Judging {
  explicit Judging(std::string directory = {})
      : service(root, {.group_name = fmt::format("sublet-test-{}", ::getpid()),
                       .client_pid = 0,
                       .is_admin = [](std::uint32_t uid) { return uid == admin; },
                       .helpers = nullptr,
                       .keepers = {},
                       .unleased = {.cards = cards.path(), .directory = std::move(directory)}}) {}

  Order order(Verb verb, pid_t pid, const Fd& pidfd, int signal = 0) const {
    const auto info = root.read(pid);
    return {.verb = verb,
            .lease = verb == Verb::inspect ? 0U : 31U,
            .main_pid = pid,
            .main_start = info ? info->ref.start_ticks : 1,
            .main_inode = proc::pidfd_inode(pidfd.get()).value_or(0),
            .signal = signal};
  }
  Reply ask(const Order& order, const Fd& pidfd) {
    std::vector<Fd> attached;
    attached.emplace_back(::dup(pidfd.get()));
    return ask(order, std::move(attached));
  }
  Reply ask(const Order& order, std::vector<Fd> attached = {}) {
    return service.answer(std::as_bytes(std::span(&order, 1)), std::move(attached), false);
  }
  // Follows two members as a program and its keeper, as lease 7.
  Code follow(const Family& family, int program, int keeper) {
    Order follow = order(Verb::follow, family.pid(program), family.pidfd(program));
    follow.lease = 7;
    follow.uid = ::geteuid();
    follow.keeper_pid = family.pid(keeper);
    follow.keeper_start = root.read(follow.keeper_pid)->ref.start_ticks;
    std::vector<Fd> attached;
    attached.emplace_back(::dup(family.pidfd(program).get()));
    attached.emplace_back(::dup(family.pidfd(keeper).get()));
    return ask(follow, std::move(attached)).code;
  }
  Reply inspect(const Family& family, int number = 0) {
    return ask(order(Verb::inspect, family.pid(number), family.pidfd(number)), family.pidfd(number));
  }
  Reply end(const Family& family, int signal, int number = 0) {
    return ask(order(Verb::end, family.pid(number), family.pidfd(number), signal), family.pidfd(number));
  }

  Cards cards;
  proc::ProcRoot root = *proc::ProcRoot::open();
  Service service;
};

}  // namespace sublet::actor
