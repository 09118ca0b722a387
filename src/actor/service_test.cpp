// SPDX-License-Identifier: Apache-2.0
// Orders and refusals of the actor, on real processes of several users (as root). The groups are made where the tests
// run.
#include "actor/service.h"

#include "actor/test_support.h"

#include <fcntl.h>
#include <csignal>

namespace sublet::actor {
namespace {

struct World {
  World() : service(root, options()) {}
  ServiceOptions options() {
    return {.group_name = fmt::format("sublet-test-{}", ::getpid()), .client_pid = 0, .is_admin = [this](uid_t uid) {
              asked.push_back(uid);
              return uid == admin;
            }};
  }
  Reply ask(const Order& order, std::vector<Fd> descriptors = {}) {
    return service.answer(std::as_bytes(std::span(&order, 1)), std::move(descriptors), false);
  }
  Code follow(const Kept& kept, std::uint64_t lease = 7) {
    return ask(kept.order(lease, root), kept.descriptors()).code;
  }
  Reply signal(int number, std::uint32_t asked_by = the_daemon, std::uint64_t lease = 7) {
    return ask({.verb = Verb::signal, .asked_by = asked_by, .lease = lease, .signal = number});
  }

  std::vector<std::uint32_t> asked;  // uids that were asked about
  proc::ProcRoot root = *proc::ProcRoot::open();
  Service service;
};

// --- verb by role: each pair has an answer

struct Asker {
  const char* name;
  std::uint32_t uid;
  Code hello, follow, look, signal, wake_keeper, forget;
};
constexpr Code yes = Code::ok, no = Code::denied;
constexpr Asker askers[] = {
    {"the daemon", the_daemon, yes, yes, yes, yes, yes, yes},
    {"root", 0, yes, yes, yes, yes, yes, yes},
    {"an admin", admin, yes, yes, yes, yes, yes, yes},
    {"the owner", ana, no, yes, no, yes, yes, no},
    {"somebody else", ben, no, no, no, no, no, no},
    {"nobody that the kernel knows", 65534, no, no, no, no, no, no},
};

TEST(Roles, EveryVerbHasAnAnswerForEveryone) {
  NEEDS_ROOT();
  for (const Asker& asker : askers) {
    SCOPED_TRACE(asker.name);
    World world;
    const Kept kept(ana);
    EXPECT_EQ(world.ask({.verb = Verb::hello, .asked_by = asker.uid}).code, asker.hello);
    Order order = kept.order(7, world.root);
    order.asked_by = asker.uid;
    EXPECT_EQ(world.ask(order, kept.descriptors()).code, asker.follow);
    ASSERT_EQ(world.follow(kept), Code::ok);
    EXPECT_EQ(world.ask({.verb = Verb::look, .asked_by = asker.uid}).code, asker.look);
    EXPECT_EQ(world.ask({.verb = Verb::wake_keeper, .asked_by = asker.uid, .lease = 7}).code, asker.wake_keeper);
    const Reply sent = world.signal(SIGKILL, asker.uid);
    EXPECT_EQ(sent.code, asker.signal);
    EXPECT_EQ(sent.sent, asker.signal == yes ? 1u : 0u);
    const bool over = asker.signal == yes ? ends(kept.main_pidfd) : proc::is_dead(kept.main_pidfd.get());
    EXPECT_EQ(over, asker.signal == yes) << "whoever was refused has ended nothing";
    EXPECT_EQ(world.ask({.verb = Verb::forget, .asked_by = asker.uid, .lease = 7}).code, asker.forget);
  }
}

TEST(SwapOrder, IsTheDaemonsToOrderForProcessesOfTheLeasesUser) {
  NEEDS_ROOT();
  World world;
  const Kept kept(ana);
  const auto ask = [&](std::uint32_t uid, std::uint32_t flags, bool attached = true,
                       std::uint32_t asked_by = the_daemon) {
    std::vector<Fd> pidfds;
    if (attached) pidfds.emplace_back(::dup(kept.main_pidfd.get()));
    return world
        .ask({.verb = Verb::swap,
              .asked_by = asked_by,
              .lease = 7,
              .uid = uid,
              .flags = flags,
              .main_pid = kept.main(),
              .main_start = world.root.read(kept.main())->ref.start_ticks},
             std::move(pidfds))
        .code;
  };
  EXPECT_EQ(ask(ana, 0), Code::not_followed) << "nothing proves whose it is";
  EXPECT_EQ(ask(ben, by_user), Code::wrong_user);
  EXPECT_EQ(ask(ana, by_user, false), Code::descriptors);
  EXPECT_EQ(ask(ana, bring_back), Code::malformed);
  EXPECT_EQ(ask(ana, let_swap, false), Code::malformed) << "that is about no process";
  EXPECT_EQ(ask(ana, by_user, true, ben), Code::denied);
  EXPECT_EQ(ask(ana, by_user, true, ana), Code::denied) << "its owner has no say in it";
  for (const std::uint32_t admins : {0U, admin}) {
    EXPECT_EQ(ask(ben, by_user, true, admins), Code::wrong_user) << "it is looked at: an admin may order what is true";
    EXPECT_EQ(ask(ana, let_swap, false, admins), Code::malformed);
  }
  ASSERT_EQ(world.follow(kept), Code::ok);
  // On the test machine there may be no group with a swap limit, or its group may have other processes.
  const Code code = ask(ana, 0);
  EXPECT_TRUE(code == Code::ok || code == Code::failed) << to_string(code);
  EXPECT_EQ(ask(ana, 0, true, ana), Code::denied) << "of her own program neither";
  const Code by_admin = ask(ana, 0, true, admin);
  EXPECT_TRUE(by_admin == Code::ok || by_admin == Code::failed) << to_string(by_admin);
  EXPECT_EQ(world.ask({.verb = Verb::swap, .asked_by = ana, .lease = 7, .flags = let_swap}).code, Code::denied);
  EXPECT_EQ(world.ask({.verb = Verb::swap, .asked_by = admin, .lease = 7, .flags = let_swap}).code, Code::ok);
  EXPECT_EQ(world.ask({.verb = Verb::swap, .lease = 7, .flags = let_swap}).code, Code::ok);
  EXPECT_EQ(world.ask({.verb = Verb::swap, .lease = 99, .flags = let_swap}).code, Code::ok) << "there is nothing to do";
  for (const std::uint32_t asker : {the_daemon, 0U, admin})
    EXPECT_EQ(world.ask({.verb = Verb::all_named, .asked_by = asker}).code, Code::ok) << asker;
  for (const std::uint32_t asker : {ana, ben})
    EXPECT_EQ(world.ask({.verb = Verb::all_named, .asked_by = asker}).code, Code::denied) << asker;
  EXPECT_EQ(world.ask({.verb = Verb::all_named, .lease = 7}).code, Code::malformed);
}

TEST(Roles, TheTableIsThatOfTheService) {
  for (std::uint32_t verb = 1; verb <= last_verb; ++verb) {
    EXPECT_FALSE(may(Role::nobody, static_cast<Verb>(verb)));
    EXPECT_TRUE(may(Role::daemon, static_cast<Verb>(verb)));
    EXPECT_EQ(may(Role::admin, static_cast<Verb>(verb)), verb < static_cast<std::uint32_t>(Verb::inspect));
    EXPECT_NE(to_string(static_cast<Verb>(verb)), "unknown");
  }
  for (std::uint32_t code = 0; code <= last_code; ++code)
    EXPECT_NE(to_string(static_cast<Code>(code)), "an unknown answer");
}

TEST(Roles, TheOwnerIsWhoItWasWhenTheProgramWasChecked) {
  NEEDS_ROOT();
  World world;
  const Kept kept(ana);
  ASSERT_EQ(world.follow(kept), Code::ok);
  Order claim = kept.order(7, world.root);
  claim.asked_by = claim.uid = ben;
  EXPECT_EQ(world.ask(claim, kept.descriptors()).code, Code::wrong_user);
  EXPECT_EQ(world.signal(SIGKILL, ben).code, Code::denied);
}

TEST(Roles, TheAccountDatabaseIsNotAskedForWhatTheOwnerMayDo) {
  NEEDS_ROOT();
  World world;
  const Kept kept(ana);
  Order order = kept.order(7, world.root);
  order.asked_by = ana;
  ASSERT_EQ(world.ask(order, kept.descriptors()).code, Code::ok);
  EXPECT_EQ(world.ask({.verb = Verb::wake_keeper, .asked_by = ana, .lease = 7}).code, Code::ok);
  EXPECT_EQ(world.signal(SIGTERM, ana).sent, 1u);
  EXPECT_TRUE(world.asked.empty());
  EXPECT_EQ(world.signal(SIGTERM, ben).code, Code::denied);
  EXPECT_EQ(world.asked, std::vector<std::uint32_t>{ben});
}

TEST(Roles, ALeaseGivesNoPowerOverProcessesWithMoreRights) {
  NEEDS_ROOT();
  const proc::Uids plain{ana, ana, ana}, sudo{0, 0, 0}, setuid{ana, 0, 0};
  for (const Role role : {Role::owner, Role::daemon}) {
    EXPECT_TRUE(may_signal(role, ana, plain));
    EXPECT_TRUE(may_signal(role, ana, setuid)) << "as the kernel lets her";
    EXPECT_FALSE(may_signal(role, ana, sudo));
    EXPECT_FALSE(may_signal(role, ana, {ben, ben, ben}));
    EXPECT_TRUE(may_signal(role, 0, {ben, ben, ben})) << "root's lease";
  }
  EXPECT_TRUE(may_signal(Role::admin, ana, sudo));
}

// --- malformed orders

TEST(Orders, OfAnyOtherSizeAreRefused) {
  World world;
  std::array<std::byte, 300> bytes{};
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const Reply reply = world.service.answer({bytes.data(), size}, {}, false);
    EXPECT_EQ(reply.code, size == sizeof(Order) ? Code::unknown_verb : Code::malformed) << size;
  }
}

TEST(Orders, UnknownVerbsAreRefused) {
  World world;
  for (const std::uint32_t verb : {0u, last_verb + 1, 77u, 0xffffffffu}) {
    EXPECT_EQ(world.ask({.verb = static_cast<Verb>(verb), .id = 5, .lease = 7}).code, Code::unknown_verb);
  }
  EXPECT_EQ(world.ask({.verb = static_cast<Verb>(99), .id = 5}).id, 5u);
}

TEST(Orders, AFieldThatTheVerbDoesNotTakeIsRefused) {
  World world;
  EXPECT_EQ(world.ask({.verb = Verb::hello, .lease = 7}).code, Code::malformed);
  EXPECT_EQ(world.ask({.verb = Verb::hello, .signal = SIGKILL}).code, Code::malformed);
  EXPECT_EQ(world.ask({.verb = Verb::hello, .percent = 1}).code, Code::malformed);
  EXPECT_EQ(world.ask({.verb = Verb::look, .main_pid = 1}).code, Code::malformed);
  EXPECT_EQ(world.ask({.verb = Verb::signal, .signal = SIGKILL}).code, Code::malformed) << "no lease";
  EXPECT_EQ(world.ask({.verb = Verb::forget, .lease = 7, .uid = 3}).code, Code::malformed);
  EXPECT_EQ(world.ask({.verb = Verb::follow, .lease = 7}).code, Code::malformed) << "no process, and not adopted";
  EXPECT_EQ(world.ask({.verb = Verb::follow, .lease = 7, .flags = 2, .main_pid = 9}).code, Code::malformed);
  EXPECT_EQ(world.ask({.verb = Verb::follow, .lease = 7, .main_pid = -1}).code, Code::malformed);
}

TEST(Orders, OnlyThreeSignalsAreSent) {
  World world;
  const Kept kept(ana);
  ASSERT_EQ(world.follow(kept), Code::ok);
  for (int number = -1; number <= 65; ++number) {
    if (number == SIGKILL || number == SIGTERM || number == SIGCONT) continue;
    EXPECT_EQ(world.signal(number).code, Code::malformed) << number;
  }
  EXPECT_EQ(world.signal(SIGCONT).sent, 1u);
  EXPECT_FALSE(proc::is_dead(kept.main_pidfd.get()));
}

TEST(Orders, DescriptorsMustBeThoseOfTheOrder) {
  World world;
  const Kept kept(ana);
  const Order order = kept.order(7, world.root);
  EXPECT_EQ(world.ask(order, {}).code, Code::descriptors);
  EXPECT_EQ(world.ask(order, kept.descriptors(false)).code, Code::descriptors) << "the keeper's is missing";
  std::vector<Fd> surplus = kept.descriptors();
  surplus.emplace_back(::dup(0));
  EXPECT_EQ(world.ask(order, std::move(surplus)).code, Code::descriptors);
  std::vector<Fd> file;
  file.emplace_back(::open("/dev/null", O_RDONLY));
  file.emplace_back(::dup(kept.keeper_pidfd.get()));
  EXPECT_EQ(world.ask(order, std::move(file)).code, Code::descriptors) << "not of a process";
  std::vector<Fd> any;
  any.emplace_back(::dup(0));
  EXPECT_EQ(world.ask({.verb = Verb::look}, std::move(any)).code, Code::descriptors);
  EXPECT_EQ(world.service.answer(std::as_bytes(std::span(&order, 1)), kept.descriptors(), true).code,
            Code::descriptors);
}

// --- leases that are not followed

TEST(Follow, OnlyTheProcessThatIsNamed) {
  World world;
  const Kept kept(ana), other(ana);
  Order order = kept.order(7, world.root);
  ++order.main_start;
  EXPECT_EQ(world.ask(order, kept.descriptors()).code, Code::gone);
  order = kept.order(7, world.root);
  std::vector<Fd> others = kept.descriptors();
  others[0] = Fd(::dup(other.main_pidfd.get()));
  EXPECT_EQ(world.ask(order, std::move(others)).code, Code::gone);
  std::vector<Fd> ended = kept.descriptors();
  (void)proc::send_signal(kept.main_pidfd.get(), SIGKILL);
  ASSERT_TRUE(ends(kept.main_pidfd));
  EXPECT_EQ(world.ask(order, std::move(ended)).code, Code::gone);
}

TEST(Follow, AKeeperIsTheParent) {
  World world;
  const Kept kept(ana), other(ana);
  Order order = kept.order(7, world.root);
  order.keeper_pid = other.keeper();
  order.keeper_start = world.root.read(other.keeper())->ref.start_ticks;
  std::vector<Fd> fds = kept.descriptors();
  fds[1] = Fd(::dup(other.keeper_pidfd.get()));
  EXPECT_EQ(world.ask(order, std::move(fds)).code, Code::not_its_keeper);
}

TEST(Follow, OnlyTheUsersOwn) {
  NEEDS_ROOT();
  World world;
  const Kept kept(ana);
  Order order = kept.order(7, world.root);
  order.uid = ben;
  EXPECT_EQ(world.ask(order, kept.descriptors()).code, Code::wrong_user);
}

TEST(Follow, WhatWasAdoptedOnlyByItsInode) {
  World world;
  const Kept kept(ana);
  Order order = kept.order(7, world.root);
  order.flags = adopted;
  const bool inodes = order.main_inode != 0;
  EXPECT_EQ(world.ask(order, kept.descriptors()).code, inodes ? Code::ok : Code::no_proof);
  order.lease = 8;
  order.main_inode = 0;
  EXPECT_EQ(world.ask(order, kept.descriptors()).code, Code::no_proof);
  order.main_inode = 4711;
  EXPECT_EQ(world.ask(order, kept.descriptors()).code, Code::no_proof);
  EXPECT_EQ(world.ask({.verb = Verb::follow, .lease = 9, .flags = adopted}).code, Code::no_proof) << "no group either";
  EXPECT_EQ(world.signal(SIGKILL, the_daemon, 8).code, Code::not_followed);
  EXPECT_FALSE(proc::is_dead(kept.main_pidfd.get()));
}

TEST(Follow, SomeAreNeverTouched) {
  const Kept client(ana);
  World world;
  ServiceOptions options = world.options();
  options.client_pid = client.main();
  Service service(world.root, std::move(options));
  std::vector<pid_t> untouchable{1, ::getpid(), ::getppid(), client.main(), client.keeper()};
  if (const auto second = world.root.read(2); second && second->kernel) untouchable.push_back(2);
  for (const pid_t pid : untouchable) {
    const auto process = world.root.read(pid);
    ASSERT_TRUE(process);
    Order order{.verb = Verb::follow, .lease = 7, .uid = 0};
    order.main_pid = pid;
    order.main_start = process->ref.start_ticks;
    std::vector<Fd> fds;
    fds.push_back(pidfd_of(pid));
    order.main_inode = proc::pidfd_inode(fds[0].get()).value_or(0);
    EXPECT_EQ(service.answer(std::as_bytes(std::span(&order, 1)), std::move(fds), false).code, Code::untouchable)
        << pid;
  }
}

// --- the processes that a signal reaches

TEST(Signals, ReachTheWholeTreeAndNobodyElse) {
  World world;
  const Kept bystander(ana);
  const Kept kept(ana, [] {
    if (::fork() == 0) proc::sleep_for_ever();
  });
  ASSERT_EQ(world.follow(kept), Code::ok);
  const Reply reply = world.signal(SIGKILL);
  EXPECT_EQ(reply.code, Code::ok);
  EXPECT_EQ(reply.sent, 2u);
  EXPECT_TRUE(ends(kept.main_pidfd));
  EXPECT_FALSE(proc::is_dead(bystander.main_pidfd.get()));
  EXPECT_FALSE(proc::is_dead(kept.keeper_pidfd.get())) << "a keeper is not of its program";
}

TEST(Signals, SpareWhatIsLinkedByAProcessGroupAlone) {
  World world;
  // A process that left the program's tree before the first look, but is still in its process group.
  int orphan[2];
  ASSERT_EQ(::pipe(orphan), 0);
  Kept kept(ana, [&] {
    ::setpgid(0, 0);
    const pid_t between = ::fork();
    if (between != 0) {
      ::waitpid(between, nullptr, 0);
      return;
    }
    const pid_t relative = ::fork();
    if (relative == 0) proc::sleep_for_ever();
    (void)!::write(orphan[1], &relative, sizeof relative);
    ::_exit(0);
  });
  pid_t relative = 0;
  ASSERT_EQ(::read(orphan[0], &relative, sizeof relative), static_cast<ssize_t>(sizeof relative));
  const Fd relative_pidfd = pidfd_of(relative);
  kept.end_keeper();  // the keeper was a subreaper: without it nothing links the process to the lease
  Order order = kept.order(7, world.root, false);
  ASSERT_EQ(world.ask(order, kept.descriptors(false)).code, Code::ok);
  const Reply reply = world.signal(SIGKILL);
  EXPECT_EQ(reply.sent, 1u);
  EXPECT_EQ(reply.left, 1u);
  EXPECT_FALSE(proc::is_dead(relative_pidfd.get()));
  (void)proc::send_signal(relative_pidfd.get(), SIGKILL);
  ::close(orphan[0]);
  ::close(orphan[1]);
}

TEST(Signals, PassOverWhatHasMoreRightsThanItsUser) {
  NEEDS_ROOT();
  World world;
  // Root's lease would reach both processes. So the lease belongs to ana, and a child of another user joins its
  // program.
  const Kept kept(0, [] {
    if (::fork() == 0) {
      (void)!::setresuid(ben, ben, ben);
      proc::sleep_for_ever();
    }
    (void)!::setresuid(ana, ana, ana);
  });
  Order order = kept.order(7, world.root, false);
  order.uid = ana;
  ASSERT_EQ(world.ask(order, kept.descriptors(false)).code, Code::ok);
  const Reply reply = world.signal(SIGTERM, ana);
  EXPECT_EQ(reply.sent, 1u);
  EXPECT_EQ(reply.refused, 1u);
  EXPECT_EQ(world.asked, std::vector<std::uint32_t>{ana}) << "she might be an admin besides";
  EXPECT_EQ(world.signal(SIGKILL).refused, 1u) << "nor by the daemon's own rules";
  EXPECT_EQ(world.signal(SIGKILL, admin).refused, 0u) << "an admin's word reaches it";
}

TEST(Signals, RememberWhoWasSeenBelow) {
  World world;
  int orphan[2];
  ASSERT_EQ(::pipe(orphan), 0);
  Kept kept(ana, [&] {
    if (::fork() != 0) return;
    ::setsid();
    const pid_t me = ::getpid();
    (void)!::write(orphan[1], &me, sizeof me);
    proc::sleep_for_ever();
  });
  pid_t child = 0;
  ASSERT_EQ(::read(orphan[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  const Fd child_pidfd = pidfd_of(child);
  ASSERT_EQ(world.follow(kept), Code::ok);
  ASSERT_EQ(world.ask({.verb = Verb::look}).code, Code::ok);
  (void)proc::send_signal(kept.main_pidfd.get(), SIGKILL);
  kept.end_keeper();
  ASSERT_TRUE(ends(kept.main_pidfd));
  EXPECT_EQ(world.signal(SIGKILL).sent, 1u);
  EXPECT_TRUE(ends(child_pidfd));
  ::close(orphan[0]);
  ::close(orphan[1]);
}

TEST(Signals, WakeAKeeperThatIsStopped) {
  World world;
  const Kept kept(ana);
  ASSERT_EQ(world.follow(kept), Code::ok);
  EXPECT_EQ(world.ask({.verb = Verb::wake_keeper, .lease = 7}).sent, 0u) << "it runs";
  (void)proc::send_signal(kept.keeper_pidfd.get(), SIGSTOP);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(kept.keeper()), &info, WSTOPPED | WNOWAIT), 0);
  EXPECT_EQ(world.ask({.verb = Verb::wake_keeper, .lease = 7}).sent, 1u);
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(kept.keeper()), &info, WCONTINUED), 0);
}

}  // namespace
}  // namespace sublet::actor
