// SPDX-License-Identifier: Apache-2.0
// Ends real processes under no lease: the right ones, and never a leased or an unproven one.
#include "actor/unleased_test.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sublet::actor {
namespace {

TEST(Unleased, EndsAProcessThatMapsACard) {
  Judging world;
  Family family;
  family.fork([&] {
    world.cards.map_card();
    family.report(0);
  });
  family.await(1);
  const Reply seen = world.inspect(family);
  EXPECT_EQ(seen.code, Code::ok) << to_string(seen.code);
  EXPECT_EQ(seen.flags, has_mapping);
  EXPECT_NE(std::string(seen.path).find("actor_test"), std::string::npos) << seen.path;
  EXPECT_EQ(seen.sent, 0u);
  EXPECT_TRUE(family.lives(0)) << "a look sends nothing";
  const Reply ended = world.end(family, SIGTERM);
  EXPECT_EQ(ended.code, Code::ok);
  EXPECT_EQ(ended.flags, has_mapping);
  EXPECT_EQ(ended.sent, 1u);
  EXPECT_TRUE(ends(family.pidfd(0)));
}

TEST(Unleased, WakesAStoppedProcessForSigterm) {
  Judging world;
  Family family;
  family.fork([&] {
    world.cards.map_card();
    family.report(0);
  });
  family.await(1);
  ASSERT_TRUE(proc::send_signal(family.pidfd(0).get(), SIGSTOP));
  EXPECT_EQ(world.end(family, SIGTERM).sent, 1u);
  EXPECT_TRUE(ends(family.pidfd(0)));
}

TEST(Unleased, SparesTheLeasedChildOfAnUnleasedParent) {
  enum { parent, sibling, keeper, program, grandchild };
  Judging world;
  Family family;
  family.fork([&] {
    world.cards.map_card();
    family.fork([&] { family.report(sibling); });
    family.fork([&] {
      family.report(keeper);
      family.fork([&] {
        family.report(program);
        family.fork([&] { family.report(grandchild); });
      });
    });
    family.report(parent);
  });
  family.await(5);
  ASSERT_EQ(world.follow(family, program, keeper), Code::ok);
  for (const int leased : {keeper, program, grandchild}) EXPECT_EQ(world.inspect(family, leased).code, Code::leased);
  for (const int signal : {SIGTERM, SIGKILL}) EXPECT_EQ(world.end(family, signal, program).code, Code::leased);
  const Reply reply = world.end(family, SIGKILL, parent);
  EXPECT_EQ(reply.code, Code::ok) << to_string(reply.code);
  EXPECT_EQ(reply.sent, 2u);
  EXPECT_EQ(reply.left, 3u);
  EXPECT_TRUE(ends(family.pidfd(parent)) && ends(family.pidfd(sibling)));
  for (const int leased : {keeper, program, grandchild}) EXPECT_TRUE(family.lives(leased)) << leased;
  EXPECT_EQ(world.ask({.verb = Verb::forget, .lease = 7}).code, Code::ok);
}

TEST(Unleased, SparesADetachedDescendantOfALeasedProgram) {
  Judging world;
  Family family;
  const Kept kept(::geteuid(), [&] {
    if (::fork() != 0) return;
    ::setsid();
    if (::fork() != 0) ::_exit(0);
    world.cards.map_card();
    family.report(0);
    proc::sleep_for_ever();
  });
  family.await(1);
  ASSERT_EQ(world.ask(kept.order(7, world.root), kept.descriptors()).code, Code::ok);
  EXPECT_EQ(world.inspect(family).code, Code::leased);
  EXPECT_EQ(world.end(family, SIGKILL).code, Code::leased);
  EXPECT_TRUE(family.lives(0));
  EXPECT_EQ(world.ask({.verb = Verb::forget, .lease = 7}).code, Code::ok);
}

TEST(Unleased, SparesAProcessThatOnlyASessionLinksToALease) {
  enum { keeper, program, orphan };
  Judging world;
  Family family;
  family.fork([&] {
    family.report(keeper);
    family.fork([&] {
      ::setsid();
      const pid_t between = ::fork();
      if (between == 0) {
        family.fork([&] {
          world.cards.map_card();
          family.report(orphan);
        });
        ::_exit(0);
      }
      ::waitpid(between, nullptr, 0);
      family.report(program);
    });
  });
  family.await(3);
  ASSERT_EQ(world.follow(family, program, keeper), Code::ok);
  EXPECT_EQ(world.inspect(family, orphan).code, Code::leased);
  EXPECT_EQ(world.end(family, SIGKILL, orphan).code, Code::leased);
  EXPECT_TRUE(family.lives(orphan));
  EXPECT_EQ(world.ask({.verb = Verb::forget, .lease = 7}).code, Code::ok);
  EXPECT_EQ(world.inspect(family, orphan).code, Code::ok) << "after the lease it is unleased";
}

TEST(Unleased, SparesWhatTheDaemonNamesWithAllBelowIt) {
  enum { parent, booked, below };
  Judging world;
  Family family;
  family.fork([&] {
    world.cards.map_card();
    family.fork([&] {
      family.report(booked);
      family.fork([&] { family.report(below); });
    });
    family.report(parent);
  });
  family.await(3);
  Order spare = world.order(Verb::end, family.pid(booked), family.pidfd(booked));
  EXPECT_EQ(world.ask(spare, family.pidfd(booked)).code, Code::malformed) << "no signal, and no flag";
  spare.flags = to_spare;
  for (const int signal : {SIGTERM, SIGKILL}) {
    ASSERT_EQ(world.ask(spare, family.pidfd(booked)).code, Code::ok);
    EXPECT_EQ(world.end(family, signal, below).code, Code::leased) << "an order about it is refused too";
    ASSERT_EQ(world.ask(spare, family.pidfd(booked)).code, Code::ok);
    const Reply reply = world.end(family, signal, parent);
    EXPECT_EQ(reply.sent, signal == SIGTERM ? 1u : 0u);
    EXPECT_EQ(reply.left, signal == SIGTERM ? 2u : 0u);
    EXPECT_TRUE(ends(family.pidfd(parent)));
  }
  EXPECT_TRUE(family.lives(booked) && family.lives(below));
}

// --- identity

// Forks a child with this pid. -1 and errno: the pid is taken, or this is not permitted.
pid_t fork_with_pid(pid_t pid) {
  struct {
    std::uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size,
        cgroup;
  } arguments{};
  arguments.exit_signal = SIGCHLD;
  arguments.set_tid = reinterpret_cast<std::uint64_t>(&pid);
  arguments.set_tid_size = 1;
  return static_cast<pid_t>(::syscall(SYS_clone3, &arguments, sizeof arguments));
}

TEST(Unleased, NeverSignalsAnotherProcessWithTheSamePid) {
  NEEDS_ROOT();
  Judging world;
  world.cards.map_card();  // each child inherits the evidence
  int reused = 0;
  const char* more = std::getenv("SUBLET_ROUNDS");  // tests/heavy asks for 10,000
  const int rounds = more != nullptr ? std::atoi(more) : 300;
  for (int round = 0; round < rounds; ++round) {
    pid_t pid = ::fork();
    if (pid == 0) ::_exit(proc::sleep_for_ever());
    const Fd before = pidfd_of(pid);
    const Order order = world.order(Verb::end, pid, before, round % 2 == 0 ? SIGTERM : SIGKILL);
    Order look = order;
    look.verb = Verb::inspect;
    look.lease = 0;
    look.signal = 0;
    ASSERT_EQ(world.ask(look, before).code, Code::ok);
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
    const pid_t again = fork_with_pid(pid);
    if (again == 0) ::_exit(proc::sleep_for_ever());
    if (again < 0 && errno == EEXIST) continue;  // some other process took the pid
    if (again < 0) GTEST_SKIP() << "no pid can be chosen here: " << std::strerror(errno);
    ++reused;
    const Fd bystander = pidfd_of(pid);
    EXPECT_EQ(world.ask(order, before).code, Code::gone);
    // Also if the daemon believes its start time, and attaches either pidfd.
    Order confused = order;
    confused.main_start = world.root.read(pid)->ref.start_ticks;
    EXPECT_EQ(world.ask(confused, before).code, Code::gone);
    const Code code = world.ask(confused, bystander).code;
    const bool spared = code == Code::no_proof && !proc::is_dead(bystander.get());
    EXPECT_TRUE(spared || order.main_inode == 0) << to_string(code);
    ::kill(pid, SIGKILL);
    ASSERT_EQ(::waitpid(pid, nullptr, 0), pid);
  }
  EXPECT_GT(reused, 0);
  std::printf("%d of %d pids were used again\n", reused, rounds);
}

TEST(Unleased, NeverSignalsAnotherProcessWithThePidOfARememberedDescendant) {
  NEEDS_ROOT();
  enum { parent, child };
  Judging world;
  Family family;
  family.fork([&] {
    std::signal(SIGTERM, SIG_IGN);
    std::signal(SIGCHLD, SIG_IGN);  // the child is reaped at once
    world.cards.map_card();
    family.fork([&] { family.report(child); });
    family.report(parent);
  });
  family.await(2);
  EXPECT_EQ(world.end(family, SIGTERM, parent).sent, 2u);
  ASSERT_TRUE(proc::send_signal(family.pidfd(child).get(), SIGKILL));
  ASSERT_TRUE(ends(family.pidfd(child)));
  pid_t again = -1;
  for (int tries = 0; again < 0 && (tries == 0 || errno == EEXIST) && tries < 1'000'000; ++tries) {
    again = fork_with_pid(family.pid(child));  // the pid is free as soon as the child is reaped
  }
  if (again == 0) ::_exit(proc::sleep_for_ever());
  if (again < 0) GTEST_SKIP() << "no pid can be chosen here: " << std::strerror(errno);
  EXPECT_EQ(world.end(family, SIGKILL, parent).sent, 1u);
  EXPECT_TRUE(ends(family.pidfd(parent)));
  const Fd bystander = pidfd_of(again);
  EXPECT_FALSE(proc::is_dead(bystander.get()));
  ::kill(again, SIGKILL);
  ::waitpid(again, nullptr, 0);
}

TEST(Unleased, EndsAProcessWithAHostileName) {
  for (const char* name : {"x) Z 1 1", "a\nb", "(", "\x1b[2J", " 1 1 1) S"}) {
    Judging world;
    Family family;
    family.fork([&] {
      ::prctl(PR_SET_NAME, name);
      world.cards.map_card();
      family.report(0);
    });
    family.await(1);
    const Reply reply = world.end(family, SIGTERM);
    EXPECT_EQ(reply.code, Code::ok) << name << ": " << to_string(reply.code);
    EXPECT_EQ(reply.sent, 1u) << name;
    EXPECT_TRUE(ends(family.pidfd(0))) << name;
  }
}

// --- descendants

TEST(Unleased, KillsDescendantsThatIgnoredSigtermAndWereReparented) {
  enum { parent, child, grandchild };
  Judging world;
  Family family;
  family.fork([&] {
    std::signal(SIGTERM, SIG_IGN);
    world.cards.map_card();
    family.fork([&] {
      family.fork([&] {
        ::setsid();
        family.report(grandchild);
      });
      family.report(child);
    });
    family.report(parent);
  });
  family.await(3);
  EXPECT_EQ(world.end(family, SIGTERM, parent).sent, 3u);
  ASSERT_TRUE(proc::send_signal(family.pidfd(child).get(), SIGKILL));
  ASSERT_TRUE(ends(family.pidfd(child)));
  EXPECT_TRUE(family.lives(parent) && family.lives(grandchild));
  EXPECT_EQ(world.end(family, SIGKILL, parent).sent, 2u);
  EXPECT_TRUE(ends(family.pidfd(parent)) && ends(family.pidfd(grandchild)));
}

TEST(Unleased, KillsDescendantsAfterTheProcessItselfHasEnded) {
  enum { parent, child };
  Judging world;
  Family family;
  family.fork([&] {
    world.cards.map_card();
    family.fork([&] {
      std::signal(SIGTERM, SIG_IGN);
      ::setsid();
      family.report(child);
    });
    family.report(parent);
  });
  family.await(2);
  const Order order = world.order(Verb::end, family.pid(parent), family.pidfd(parent), SIGTERM);
  EXPECT_EQ(world.ask(order, family.pidfd(parent)).sent, 2u);
  ASSERT_TRUE(ends(family.pidfd(parent)));
  EXPECT_EQ(world.ask(order, family.pidfd(parent)).code, Code::gone) << "SIGTERM has done its part";
  Order other = order;
  other.signal = SIGKILL;
  other.lease = 32;
  EXPECT_EQ(world.ask(other, family.pidfd(parent)).code, Code::gone) << "another record";
  EXPECT_TRUE(family.lives(child));
  other.lease = order.lease;
  const Reply reply = world.ask(other, family.pidfd(parent));
  EXPECT_EQ(reply.code, Code::ok);
  EXPECT_EQ(reply.sent, 1u);
  EXPECT_TRUE(ends(family.pidfd(child)));
  EXPECT_EQ(world.ask(other, family.pidfd(parent)).code, Code::gone);
}

TEST(Unleased, KeepsDescendantsApartByProcess) {
  enum { parent, child, second };
  Judging world;
  Family family;
  for (const int number : {parent, second}) {
    family.fork([&] {
      world.cards.map_card();
      if (number == parent) {
        family.fork([&] {
          std::signal(SIGTERM, SIG_IGN);
          family.report(child);
        });
      }
      family.report(number);
    });
  }
  family.await(3);
  EXPECT_EQ(world.end(family, SIGTERM, parent).sent, 2u);
  EXPECT_EQ(world.end(family, SIGKILL, second).sent, 1u) << "the record now names another process";
  EXPECT_TRUE(family.lives(child));
}

TEST(Unleased, SparesARememberedDescendantThatIsBelowALeasedProcessByNow) {
  enum { reaper, parent, child };
  Judging world;
  Family family;
  family.fork([&] {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    family.fork([&] {
      world.cards.map_card();
      family.fork([&] {
        std::signal(SIGTERM, SIG_IGN);
        family.report(child);
      });
      family.report(parent);
    });
    family.report(reaper);
  });
  family.await(3);
  EXPECT_EQ(world.end(family, SIGTERM, parent).sent, 2u);
  ASSERT_TRUE(ends(family.pidfd(parent)));
  Order spare = world.order(Verb::end, family.pid(reaper), family.pidfd(reaper));
  spare.flags = to_spare;
  ASSERT_EQ(world.ask(spare, family.pidfd(reaper)).code, Code::ok);
  const Reply reply = world.end(family, SIGKILL, parent);
  EXPECT_EQ(reply.code, Code::gone);
  EXPECT_EQ(reply.sent, 0u);
  EXPECT_EQ(reply.left, 1u);
  EXPECT_TRUE(family.lives(child));
}

TEST(Unleased, ForgetsTheDescendantsOfAClosedRecord) {
  enum { parent, child };
  Judging world;
  Family family;
  family.fork([&] {
    world.cards.map_card();
    family.fork([&] {
      std::signal(SIGTERM, SIG_IGN);
      family.report(child);
    });
    family.report(parent);
  });
  family.await(2);
  Order order = world.order(Verb::end, family.pid(parent), family.pidfd(parent), SIGTERM);
  EXPECT_EQ(world.ask(order, family.pidfd(parent)).sent, 2u);
  ASSERT_TRUE(ends(family.pidfd(parent)));
  EXPECT_EQ(world.ask({.verb = Verb::close, .lease = order.lease}).code, Code::ok);
  order.signal = SIGKILL;
  EXPECT_EQ(world.ask(order, family.pidfd(parent)).code, Code::gone);
  EXPECT_TRUE(family.lives(child));
}

TEST(Unleased, ReportsAProcessThatIsGone) {
  Judging world;
  Family family;
  family.fork([&] { family.report(0); });
  family.await(1);
  ASSERT_TRUE(proc::send_signal(family.pidfd(0).get(), SIGKILL));
  ASSERT_TRUE(ends(family.pidfd(0)));
  EXPECT_EQ(world.inspect(family).code, Code::gone);
  for (const int signal : {SIGTERM, SIGKILL}) EXPECT_EQ(world.end(family, signal).code, Code::gone);
}

}  // namespace
}  // namespace sublet::actor
