// SPDX-License-Identifier: Apache-2.0
// Sends a message to a program by SIGUSR1 or a similar signal: to one process that handles it, and never to a process
// that would end by it.
#include "actor/service.h"
#include "actor/test_support.h"

#include <fmt/format.h>

#include <csignal>

namespace sublet::actor {
namespace {

volatile std::sig_atomic_t told = 0;
void on_word(int) { told = 1; }

void listen_for(int number) {
  struct sigaction action {};
  action.sa_handler = on_word;
  ::sigaction(number, &action, nullptr);
}

struct Teller {
  Reply ask(const Order& order, std::vector<Fd> descriptors = {}) {
    return service.answer(std::as_bytes(std::span(&order, 1)), std::move(descriptors), false);
  }
  Code follow(const Kept& kept) { return ask(kept.order(7, root), kept.descriptors()).code; }
  Order order(pid_t pid, int number = SIGUSR1) const {
    return {.verb = Verb::tell,
            .lease = 7,
            .main_pid = pid,
            .main_start = root.read(pid)->ref.start_ticks,
            .signal = number};
  }
  Reply tell(pid_t pid, int number = SIGUSR1) { return ask(order(pid, number)); }

  proc::ProcRoot root = *proc::ProcRoot::open();
  Service service{root,
                  {.group_name = fmt::format("sublet-test-{}", ::getpid()),
                   .client_pid = 0,
                   .is_admin = [](std::uint32_t uid) { return uid == admin; }}};
};

TEST(Tell, ReachesTheProcessThatIsNamedAndNoOther) {
  Teller world;
  int child_of[2];
  ASSERT_EQ(::pipe(child_of), 0);
  const Kept kept(ana, [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      listen_for(SIGUSR1);
      const pid_t me = ::getpid();
      (void)!::write(child_of[1], &me, sizeof me);
      while (told == 0) ::usleep(1000);
      ::_exit(42);
    }
  });
  pid_t child = 0;
  ASSERT_EQ(::read(child_of[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  ASSERT_EQ(world.follow(kept), Code::ok);
  const Fd pidfd = pidfd_of(child);
  const Reply reply = world.tell(child);
  EXPECT_EQ(reply.code, Code::ok);
  EXPECT_EQ(reply.sent, 1u);
  EXPECT_TRUE(ends(pidfd)) << "it heard";
  EXPECT_FALSE(proc::is_dead(kept.main_pidfd.get()));
  ::close(child_of[0]);
  ::close(child_of[1]);
}

TEST(Tell, NeverEndsWhoDoesNotListen) {
  Teller world;
  const Kept kept(ana);
  ASSERT_EQ(world.follow(kept), Code::ok);
  EXPECT_EQ(world.tell(kept.main()).code, Code::unhandled);
  const Kept other(ana, [] { listen_for(SIGUSR2); });
  EXPECT_EQ(world.ask(other.order(7, world.root), other.descriptors()).code, Code::ok);
  EXPECT_EQ(world.tell(other.main(), SIGUSR1).code, Code::unhandled);
  EXPECT_EQ(world.tell(other.main(), SIGUSR2).code, Code::ok);
  EXPECT_FALSE(proc::is_dead(other.main_pidfd.get()));
  EXPECT_FALSE(proc::is_dead(kept.main_pidfd.get()));
}

TEST(Tell, OnlyWords) {
  Teller world;
  const Kept kept(ana);
  ASSERT_EQ(world.follow(kept), Code::ok);
  for (int number = -1; number <= 65; ++number) {
    const bool word =
        number == SIGUSR1 || number == SIGUSR2 || number == SIGHUP || (number >= SIGRTMIN && number <= SIGRTMAX);
    EXPECT_EQ(world.tell(kept.main(), number).code, word ? Code::unhandled : Code::malformed) << number;
  }
  EXPECT_FALSE(proc::is_dead(kept.main_pidfd.get()));
}

TEST(Tell, OnlyWhatIsProvenToBeOfTheProgram) {
  Teller world;
  const Kept kept(ana, [] { listen_for(SIGUSR1); }), stranger(ana, [] { listen_for(SIGUSR1); });
  EXPECT_EQ(world.tell(kept.main()).code, Code::not_followed);
  ASSERT_EQ(world.follow(kept), Code::ok);
  EXPECT_EQ(world.tell(stranger.main()).code, Code::no_proof);
  Order order = world.order(kept.main());
  ++order.main_start;
  EXPECT_EQ(world.ask(order).code, Code::gone) << "a pid that came back";
  order = world.order(kept.main());
  (void)proc::send_signal(kept.main_pidfd.get(), SIGKILL);
  ASSERT_TRUE(ends(kept.main_pidfd));
  EXPECT_EQ(world.ask(order).code, Code::gone);
}

TEST(Tell, TakesNoOtherField) {
  Teller world;
  const Kept kept(ana, [] { listen_for(SIGUSR1); });
  ASSERT_EQ(world.follow(kept), Code::ok);
  const auto refused = [&](auto change) {
    Order order = world.order(kept.main());
    change(order);
    return world.ask(order).code == Code::malformed;
  };
  EXPECT_TRUE(refused([](Order& o) { o.lease = 0; }));
  EXPECT_TRUE(refused([](Order& o) { o.uid = 1; }));
  EXPECT_TRUE(refused([](Order& o) { o.flags = adopted; }));
  EXPECT_TRUE(refused([](Order& o) { o.main_pid = 0; }));
  EXPECT_TRUE(refused([](Order& o) { o.keeper_pid = 1; }));
  EXPECT_TRUE(refused([](Order& o) { o.main_inode = 1; }));
  EXPECT_EQ(world.ask(world.order(kept.main()), kept.descriptors(false)).code, Code::descriptors);
}

TEST(Tell, IsForTheDaemonAndAdmins) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become several users";
  Teller world;
  const Kept kept(ana, [] { listen_for(SIGUSR1); });
  ASSERT_EQ(world.follow(kept), Code::ok);
  for (const auto& [asker, code] : std::initializer_list<std::pair<std::uint32_t, Code>>{{the_daemon, Code::ok},
                                                                                         {0, Code::ok},
                                                                                         {admin, Code::ok},
                                                                                         {ana, Code::denied},
                                                                                         {ben, Code::denied},
                                                                                         {65534, Code::denied}}) {
    Order order = world.order(kept.main());
    order.asked_by = asker;
    EXPECT_EQ(world.ask(order).code, code) << asker;
  }
}

TEST(Tell, NotWhatHasMoreRightsThanItsUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become several users";
  Teller world;
  int child_of[2];
  ASSERT_EQ(::pipe(child_of), 0);
  const Kept kept(0, [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      listen_for(SIGUSR1);
      (void)!::setresuid(ben, ben, ben);
      const pid_t me = ::getpid();
      (void)!::write(child_of[1], &me, sizeof me);
      proc::sleep_for_ever();
    }
    (void)!::setresuid(ana, ana, ana);
  });
  pid_t child = 0;
  ASSERT_EQ(::read(child_of[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  Order follow = kept.order(7, world.root, false);
  follow.uid = ana;
  ASSERT_EQ(world.ask(follow, kept.descriptors(false)).code, Code::ok);
  EXPECT_EQ(world.tell(child).code, Code::wrong_user);
  Order by_an_admin = world.order(child);
  by_an_admin.asked_by = admin;
  EXPECT_EQ(world.ask(by_an_admin).code, Code::ok);
  (void)proc::send_signal(pidfd_of(child).get(), SIGKILL);
  ::close(child_of[0]);
  ::close(child_of[1]);
}

}  // namespace
}  // namespace sublet::actor
