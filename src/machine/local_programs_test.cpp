// SPDX-License-Identifier: Apache-2.0
// The orders of LocalPrograms to an actor, with a real process and an actor that only records.
#include "machine/local_programs_test.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <algorithm>
#include <csignal>
#include <fstream>

namespace sublet::machine {
namespace {

using World = FollowedProgram;

TEST(Programs, TellTheActorOfAProgramWithItsKeeper) {
  World world;
  world.programs.follow(world.lease, false);
  ASSERT_EQ(world.actor.verbs(), std::vector{actor::Verb::follow});
  EXPECT_EQ(world.actor.orders[0].main_pid, world.child.pid());
  EXPECT_EQ(world.actor.orders[0].keeper_pid, ::getpid());
  EXPECT_EQ(world.actor.attached[0], 2u);
}

TEST(Programs, AKeeperThatEndsOnTheWayOfTheOrderDoesNotKeepItsProgramAlive) {
  World world;
  proc::Child keeper{proc::sleep_for_ever};
  world.lease.owner.keeper = proc::ProcRoot::open()->read(keeper.pid())->ref;
  world.programs.follow(world.lease, false);
  ASSERT_EQ(::kill(keeper.pid(), SIGKILL), 0);
  keeper.wait_for_end();
  world.actor.answer(actor::Code::gone);
  ASSERT_EQ(world.actor.verbs(), (std::vector{actor::Verb::follow, actor::Verb::follow}));
  EXPECT_EQ(world.actor.orders[1].keeper_pid, 0);
  EXPECT_EQ(world.actor.orders[1].main_pid, world.child.pid());
  world.actor.answer(actor::Code::ok);
  EXPECT_TRUE(world.programs.signal(world.lease.id, SIGKILL, actor::the_daemon));
}

TEST(Programs, OrderNothingForWhatSubletDidNotStart) {
  World world;
  world.lease.owner.keeper = {};
  world.programs.follow(world.lease, false);
  EXPECT_TRUE(world.actor.verbs().empty());
}

TEST(Programs, SignalOnlyOnceTheActorFollows) {
  World world;
  world.programs.follow(world.lease, false);
  EXPECT_TRUE(world.programs.signal(world.lease.id, SIGTERM, 4242));
  EXPECT_EQ(world.actor.verbs().size(), 1u) << "it would not know whom";
  world.actor.answer(actor::Code::ok);
  ASSERT_EQ(world.actor.verbs(), (std::vector{actor::Verb::follow, actor::Verb::signal}));
  EXPECT_EQ(world.actor.orders.back().signal, SIGTERM);
  EXPECT_EQ(world.actor.orders.back().asked_by, 4242u);
}

TEST(Programs, AnOrderThatIsLostIsGivenToTheNextActor) {
  World world;
  world.programs.follow(world.lease, false);
  world.actor.answer(actor::Code::ok);
  EXPECT_TRUE(world.programs.signal(world.lease.id, SIGTERM, actor::the_daemon));
  world.actor.answer(actor::Code::lost);
  world.actor.orders.clear();
  world.programs.introduce_all();
  world.actor.answer(actor::Code::ok);
  EXPECT_EQ(world.actor.verbs(), (std::vector{actor::Verb::follow, actor::Verb::signal}));
  EXPECT_TRUE(world.unkillable.empty());
}

TEST(Programs, SayWhatTheActorDidNotDo) {
  World world;
  world.programs.follow(world.lease, false);
  world.actor.answer(actor::Code::ok);
  world.programs.signal(world.lease.id, SIGTERM, actor::the_daemon);
  world.actor.answer(actor::Code::ok, 3);
  ASSERT_EQ(world.unkillable.size(), 1u);
  EXPECT_NE(world.unkillable[0].find("3 of its processes"), std::string::npos) << world.unkillable[0];
  world.programs.signal(world.lease.id, SIGTERM, 4242);
  world.actor.answer(actor::Code::denied);
  ASSERT_EQ(world.unkillable.size(), 2u);
}

TEST(Programs, AnActorThatRefusesAProgramIsNotAskedToEndIt) {
  World world;
  world.programs.follow(world.lease, false);
  world.actor.answer(actor::Code::wrong_user);
  EXPECT_FALSE(world.programs.signal(world.lease.id, SIGTERM, actor::the_daemon));
  EXPECT_NE(world.programs.why_not_signalled(world.lease.id), "");
  EXPECT_TRUE(world.programs.can_signal(world.lease.id)) << "its keeper lives";
}

TEST(Programs, AStoppedMainProcessIsSeenAtAScan) {
  World world;
  world.programs.follow(world.lease, false);
  world.programs.scan();
  EXPECT_TRUE(world.programs.stopped_programs().empty());
  ASSERT_EQ(::kill(world.child.pid(), SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(world.child.pid(), &status, WUNTRACED), world.child.pid());
  world.programs.scan();
  ASSERT_EQ(world.programs.stopped_programs().size(), 1U);
  EXPECT_EQ(world.programs.stopped_programs()[0].lease, world.lease.id);
  EXPECT_FALSE(world.programs.stopped_programs()[0].by_debugger);
  ASSERT_EQ(::kill(world.child.pid(), SIGCONT), 0);
  ASSERT_EQ(::waitpid(world.child.pid(), &status, WCONTINUED), world.child.pid());
  world.programs.scan();
  EXPECT_TRUE(world.programs.stopped_programs().empty());
}

// A program that the actor does not know gets no signal. This is reported later, like every result.
TEST(Programs, WhatBecameOfASignalSaysWhoseDoingItIs) {
  World world;
  std::vector<SignalResult> said;
  const auto tell = [&] {
    world.programs.tell(world.lease.id, world.lease.owner.process, SIGUSR1,
                        [&said](const SignalResult& told) { said.push_back(told); });
  };
  tell();
  EXPECT_TRUE(said.empty()) << "who asks may not be ready for it";
  world.io.poll();
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].problem, "the actor did not register its program");
  EXPECT_FALSE(said[0].by_program || said[0].may_have_been);

  world.programs.follow(world.lease, false);
  world.actor.answer(actor::Code::ok);
  const auto answered = [&](actor::Code code, int error = 0) {
    tell();
    world.actor.answer(code, 0, {}, error);
    return said.back();
  };
  EXPECT_EQ(answered(actor::Code::ok).problem, "");
  EXPECT_TRUE(answered(actor::Code::unhandled).by_program);
  EXPECT_FALSE(answered(actor::Code::lost).by_program || said.back().may_have_been);
  EXPECT_TRUE(answered(actor::Code::lost, ECONNRESET).may_have_been) << "it was sent";
  EXPECT_FALSE(said.back().problem.empty());
}

// --- helpers that park

std::optional<Result<Fd>> ask_for_helper(World& world, ProcessRef process, bool to_bring_back, actor::Code code,
                                         const std::string& why = {}) {
  auto came = std::make_shared<std::optional<Result<Fd>>>();
  world.programs.start_helper(world.lease.id, process, to_bring_back,
                              [came](Result<Fd> result) { *came = std::move(result); });
  world.actor.answer(code, 0, why);
  return std::move(*came);
}

TEST(Helpers, AreProvenByTheActorWhereItFollows) {
  World world;
  const ProcessRef main = world.lease.owner.process;
  world.programs.follow(world.lease, false);
  world.actor.answer(actor::Code::ok);
  world.actor.attachment = Fd(::dup(0));
  auto came = ask_for_helper(world, main, false, actor::Code::ok);
  ASSERT_TRUE(came && *came);
  EXPECT_TRUE(**came) << "its socket";
  const actor::Order& order = world.actor.orders.back();
  EXPECT_EQ(order.verb, actor::Verb::checkpoint);
  EXPECT_EQ(ProcessRef(order.main_pid, order.main_start), main);
  EXPECT_EQ(order.uid, world.lease.uid);
  EXPECT_EQ(order.flags, 0u);
  EXPECT_EQ(world.actor.attached.back(), 1u);
  world.actor.attachment = Fd(::dup(0));
  EXPECT_TRUE(*ask_for_helper(world, main, true, actor::Code::ok));
  EXPECT_EQ(world.actor.orders.back().flags, actor::by_user | actor::bring_back) << "that needs no proof";
}

TEST(Helpers, OfWhatSubletDidNotStartRestOnItsUser) {
  World world;
  world.lease.owner.keeper = {};
  world.programs.follow(world.lease, false);
  world.actor.attachment = Fd(::dup(0));
  EXPECT_TRUE(*ask_for_helper(world, world.lease.owner.process, false, actor::Code::ok));
  EXPECT_EQ(world.actor.orders.back().flags, actor::by_user);
}

TEST(Helpers, ThatAreRefusedSayWhy) {
  World world;
  const ProcessRef main = world.lease.owner.process;
  world.programs.follow(world.lease, false);
  world.actor.answer(actor::Code::ok);
  using Refused = actor::Code;
  for (const auto& [refused, code] :
       std::initializer_list<std::pair<Refused, Code>>{{Refused::wrong_user, Code::Denied},
                                                       {Refused::other_rights, Code::Denied},
                                                       {Refused::untraceable, Code::Denied},
                                                       {Refused::untouchable, Code::Denied},
                                                       {Refused::gone, Code::NotFound},
                                                       {Refused::busy, Code::InUse},
                                                       {Refused::too_many, Code::InUse},
                                                       {Refused::no_proof, Code::Unavailable},
                                                       {Refused::failed, Code::Unavailable},
                                                       {Refused::lost, Code::Unavailable}}) {
    const auto came = ask_for_helper(world, main, false, refused, "no sublet-gpu");
    ASSERT_TRUE(came && !*came);
    EXPECT_EQ(came->error().code, code) << to_string(refused);
    EXPECT_NE(came->error().detail.find(std::to_string(main.pid)), std::string::npos);
    EXPECT_NE(came->error().detail.find(to_string(refused)), std::string::npos);
    EXPECT_NE(came->error().detail.find("no sublet-gpu"), std::string::npos);
  }
  const auto without = ask_for_helper(world, main, false, actor::Code::ok);
  EXPECT_EQ(without->error().code, Code::Unavailable) << "its socket was lost on the way";
  const ProcessRef gone{main.pid, main.start_ticks + 1};
  EXPECT_EQ(ask_for_helper(world, gone, false, actor::Code::ok)->error().code, Code::NotFound);
  world.programs.forget(world.lease.id);
  EXPECT_EQ(ask_for_helper(world, main, false, actor::Code::ok)->error().code, Code::Unavailable);
}

TEST(Programs, TheLeaseAroundAProcessIsItsOwnOrThatOfItsParents) {
  World world;
  const std::int32_t main = world.child.pid();
  EXPECT_FALSE(world.programs.lease_around(main, true));
  world.programs.follow(world.lease, false);
  world.programs.scan();
  EXPECT_EQ(world.programs.lease_around(main, false), world.lease.id) << "a program that `sublet run` started";
  EXPECT_FALSE(world.programs.lease_around(::getpid(), true)) << "the keeper is outside";
  world.lease.owner.keeper = {};
  world.programs.follow(world.lease, false);
  EXPECT_EQ(world.programs.lease_around(main, true), world.lease.id);
  EXPECT_FALSE(world.programs.lease_around(main, false)) << "it has asked for that lease itself";
}

// Control groups below one of the test. Their processes end before them.
class TestGroups {
 public:
  TestGroups() {
    const auto found = proc::find_hierarchies(*proc::ProcRoot::open());
    if (!found || found->mounts.empty()) return;
    const std::string top = found->mounts.front().path + "/sublet-test-around-" + std::to_string(::getpid());
    if (::mkdir(top.c_str(), 0755) == 0) made_.push_back(top);
  }
  ~TestGroups() {
    for (; !made_.empty(); made_.pop_back()) EXPECT_EQ(::rmdir(made_.back().c_str()), 0);
  }
  bool can_be_made() const { return !made_.empty(); }
  std::string make(const std::string& name) {
    made_.push_back(made_.front() + "/" + name);
    EXPECT_EQ(::mkdir(made_.back().c_str(), 0755), 0);
    return made_.back();
  }
  static void move(const proc::Child& child, const std::string& group) {
    std::ofstream(group + "/cgroup.procs") << child.pid();
  }

 private:
  std::vector<std::string> made_;
};

TEST(Programs, AProcessOfAnotherUserHasNoRightsByAGroup) {
  World world;
  TestGroups groups;
  if (!groups.can_be_made()) GTEST_SKIP() << "may not make a control group";
  proc::Child other{proc::sleep_for_ever};
  const std::string group = groups.make("booked");
  TestGroups::move(other, group);
  world.lease.booked = {{{}, group}};
  for (const std::uint32_t uid : {::geteuid(), 12345U}) {
    world.lease.uid = uid;
    world.programs.book(world.lease);
    world.programs.scan();
    EXPECT_EQ(world.programs.lease_around(other.pid(), true), uid == ::geteuid() ? world.lease.id : LeaseId{}) << uid;
    EXPECT_EQ(world.programs.lease_of_group(other.pid()), world.lease.id) << uid;
  }
}

TEST(Programs, TheLeaseOfAGroupIsFoundWithoutAScanAndHasNoOtherProcesses) {
  World world;
  TestGroups groups;
  if (!groups.can_be_made()) GTEST_SKIP() << "may not make a control group";
  proc::Child inside{proc::sleep_for_ever}, beside{proc::sleep_for_ever};
  const std::string group = groups.make("pod1"), inner = groups.make("pod1/container"), other = groups.make("pod10");
  core::Lease& lease = world.lease;
  lease.uid = 12345;
  lease.owner = {.kind = core::OwnerKind::group, .cgroup = group};
  world.programs.book(lease);
  TestGroups::move(inside, inner);
  TestGroups::move(beside, other);
  EXPECT_EQ(world.programs.lease_of_group(inside.pid()), lease.id);
  EXPECT_FALSE(world.programs.lease_of_group(beside.pid())) << "its group has a longer name";
  EXPECT_FALSE(world.programs.lease_of_group(::getpid()));
  const std::uint64_t inode = world.programs.check_cgroup(group)->inode;
  for (const std::uint64_t known : {inode, inode + 1}) {
    lease.owner.inode = known;
    world.programs.book(lease);
    EXPECT_EQ(world.programs.lease_of_group(inside.pid()), known == inode ? lease.id : LeaseId{}) << "another group";
  }
  lease.owner.inode = inode;
  core::Lease next = lease;
  next.id = LeaseId{8};
  world.programs.book(next);
  world.programs.book(lease);
  EXPECT_EQ(world.programs.lease_of_group(inside.pid()), next.id) << "the earlier lease has ended";
  next.owner.cgroup = other;
  next.booked = {{{}, inner}};
  world.programs.book(next);
  EXPECT_EQ(world.programs.lease_of_group(inside.pid()), next.id) << "the inner group";
  TestGroups::move(inside, group);
  EXPECT_EQ(world.programs.lease_of_group(inside.pid()), lease.id);
  world.programs.forget(next.id);
}

// The booked process is the parent of the keeper, so that it does not descend from the program.
TEST(Programs, BookedProcessesAreNotParkedBesideAProgramAndAreProvenByTheirUser) {
  World world;
  world.programs.follow(world.lease, false);
  world.actor.answer(actor::Code::ok);
  const ProcessRef main = world.lease.owner.process;
  const ProcessRef booked = proc::ProcRoot::open()->read(::getppid())->ref;
  world.lease.booked = {{booked, {}}};
  world.programs.book(world.lease);
  world.programs.scan();
  const auto tree = world.programs.tree(world.lease.id);
  EXPECT_EQ(std::ranges::count(tree, main), 1);
  EXPECT_EQ(std::ranges::count(tree, booked), 0);
  world.programs.start_helper(world.lease.id, booked, false, [](const Result<Fd>&) {});
  EXPECT_EQ(world.actor.orders.back().flags, actor::by_user) << "the actor does not know it";
  world.programs.start_helper(world.lease.id, main, false, [](const Result<Fd>&) {});
  EXPECT_EQ(world.actor.orders.back().flags, 0u);
  world.programs.keep_from_swap(world.lease.id, booked, true, [](const std::string&) {});
  EXPECT_EQ(world.actor.orders.back().flags, actor::by_user);
}

TEST(Programs, WhatIsUnprovenIsNotEvenNamed) {
  World world;
  world.lease.owner.inode = 4711;  // inode of another process
  world.programs.follow(world.lease, true);
  EXPECT_TRUE(world.actor.verbs().empty());
  EXPECT_FALSE(world.programs.signal(world.lease.id, SIGKILL, actor::the_daemon));
}

// The next actor is told the parked leases and releases all other groups, so no warning is needed.
TEST(Programs, WhatIsKeptFromSwapIsLetByWhoeverIsThere) {
  World world;
  world.programs.follow(world.lease, false);
  world.actor.answer(actor::Code::ok);
  std::vector<std::string> said;
  const auto say = [&](const std::string& why_not) { said.push_back(why_not); };
  world.programs.keep_from_swap(world.lease.id, {}, false, say);
  const std::size_t before = world.actor.orders.size();
  world.programs.keep_from_swap(world.lease.id, world.lease.owner.process, true, say);
  ASSERT_EQ(world.actor.orders.size(), before + 1) << "of whom nobody was kept, nobody is let be";
  world.actor.answer(actor::Code::ok);
  world.programs.keep_from_swap(world.lease.id, {}, false, say);
  EXPECT_EQ(world.actor.orders.back().flags, actor::let_swap);
  world.actor.answer(actor::Code::lost);
  EXPECT_EQ(said, std::vector<std::string>{""});
  world.programs.all_are_kept();
  EXPECT_EQ(world.actor.orders.back().verb, actor::Verb::all_named);
  world.programs.keep_from_swap(world.lease.id, world.lease.owner.process, true, say);
  world.programs.keep_from_swap(world.lease.id, {}, false, say);
  world.actor.answer(actor::Code::failed, 0, "the kernel refused");
  EXPECT_EQ(said.back(), "the kernel refused");
}

}  // namespace
}  // namespace sublet::machine
