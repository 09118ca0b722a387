// SPDX-License-Identifier: Apache-2.0
// Helpers that park a process: their rights, refusals, and their end. The helper here is a script. It writes its own
// /proc/PID/status to its socket and waits for its end.
#include "actor/helpers.h"

#include "actor/service.h"
#include "actor/test_support.h"
#include "base/clock.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <csignal>
#include <functional>

namespace sublet::actor {
namespace {

constexpr const char* honest = "#!/bin/sh\ncat /proc/$$/status >&3\nexec cat <&3 >/dev/null\n";
constexpr const char* deaf = "#!/bin/sh\necho here >&3\nexec sleep 600\n";

struct Helped {
  explicit Helped(const char* script = honest, const std::function<void(HelperOptions&)>& change = {})
      : helpers(root, with_script(script, change)) {}
  HelperOptions with_script(const char* script, const std::function<void(HelperOptions&)>& change) const {
    HelperOptions options;
    if (change) change(options);
    ::chmod(dir.path().c_str(), 0755);
    dir.write("helper", script);
    ::chmod(dir.path("helper").c_str(), 0755);
    options.program = dir.path("helper");
    return options;
  }
  Reply ask(const Order& order, std::vector<Fd> descriptors = {}) {
    const Reply reply = service.answer(std::as_bytes(std::span(&order, 1)), std::move(descriptors), false);
    socket = service.take_attachment();
    EXPECT_EQ(static_cast<bool>(socket), order.verb == Verb::checkpoint && reply.code == Code::ok);
    return reply;
  }
  Order order(pid_t pid, std::uint32_t uid, std::uint32_t flags = by_user) const {
    return {.verb = Verb::checkpoint,
            .lease = 7,
            .uid = uid,
            .flags = flags,
            .main_pid = pid,
            .main_start = root.read(pid)->ref.start_ticks};
  }
  static std::vector<Fd> pidfd(pid_t pid) {
    std::vector<Fd> all;
    all.push_back(pidfd_of(pid));
    return all;
  }
  Reply park(pid_t pid, std::uint32_t uid, std::uint32_t flags = by_user) {
    return ask(order(pid, uid, flags), pidfd(pid));
  }
  Code follow(const Kept& kept) { return ask(kept.order(7, root), kept.descriptors()).code; }
  void until_none() {
    const std::int64_t end = monotonic_ns() + 30'000'000'000;
    while (helpers.any() && monotonic_ns() < end) helpers.sweep();
    EXPECT_FALSE(helpers.any());
  }
  // Returns all that the helper writes until it pauses.
  std::string said() const {
    std::string text;
    char buffer[4096];
    while (text.find("nonvoluntary_ctxt_switches") == std::string::npos && text.find("here\n") == std::string::npos) {
      const ssize_t got = ::read(socket.get(), buffer, sizeof buffer);
      if (got <= 0) break;
      text.append(buffer, static_cast<std::size_t>(got));
    }
    return text;
  }

  proc::TempDir dir;
  proc::ProcRoot root = *proc::ProcRoot::open();
  Helpers helpers;
  Service service{root,
                  {.group_name = fmt::format("sublet-test-{}", ::getpid()),
                   .client_pid = 0,
                   .is_admin = [](std::uint32_t uid) { return uid == admin; },
                   .helpers = &helpers}};
  Fd socket;
};

std::string line_of(const std::string& status, const std::string& name) {
  const auto at = status.find("\n" + name + ":\t");
  if (at == std::string::npos) return "no " + name;
  const auto from = at + name.size() + 3;
  return status.substr(from, status.find('\n', from) - from);
}

// --- the rights of a helper

TEST(Helper, HasTheRightsOfItsProcessAndNoOthers) {
  NEEDS_ROOT();
  Helped world;
  const Kept kept(0, [] {
    const gid_t groups[] = {54401, 54402};
    EXPECT_EQ(::setgroups(2, groups), 0);
    EXPECT_EQ(::setresgid(54400, 54400, 54400), 0);
    EXPECT_EQ(::setresuid(ana, ana, ana), 0);
    EXPECT_EQ(::prctl(PR_SET_DUMPABLE, 1), 0);  // the change of user cleared it; an exec would set it again
  });
  const Reply reply = world.park(kept.main(), ana);
  ASSERT_EQ(reply.code, Code::ok) << reply.path;
  const std::string status = world.said();
  EXPECT_EQ(line_of(status, "Pid"), std::to_string(reply.pid));
  const auto rights = proc::parse_rights(status);
  ASSERT_TRUE(rights);
  EXPECT_EQ(rights->uids, (std::array<std::uint32_t, 4>{ana, ana, ana, ana}));
  EXPECT_EQ(rights->gids, (std::array<std::uint32_t, 4>{54400, 54400, 54400, 54400}));
  EXPECT_EQ(rights->groups, (std::vector<std::uint32_t>{54401, 54402}));
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"})
    EXPECT_EQ(line_of(status, set), std::string(16, '0')) << set;
  EXPECT_EQ(line_of(status, "NoNewPrivs"), "1");
  EXPECT_EQ(line_of(status, "SigIgn"), std::string(16, '0'));
  EXPECT_EQ(line_of(status, "Umask"), "0077");
  EXPECT_EQ(::getsid(reply.pid), reply.pid);
  world.socket.reset();
  EXPECT_TRUE(ends(pidfd_of(reply.pid))) << "at the end of its socket";
}

TEST(Helper, OfRootMayTraceAndNothingElse) {
  NEEDS_ROOT();
  Helped world;
  const Kept kept(0);
  ASSERT_EQ(world.park(kept.main(), 0).code, Code::ok);
  const std::string status = world.said();
  EXPECT_EQ(line_of(status, "CapPrm"), "0000000000080000");
  EXPECT_EQ(line_of(status, "CapBnd"), "0000000000080000");
}

TEST(Helper, HasTheEnvironmentThatItIsGivenAndNoOther) {
  Helped world("#!/bin/sh\ncat /proc/$$/environ >&3\necho here >&3\nexec cat <&3 >/dev/null\n",
               [](HelperOptions& options) { options.environment = {"SIMGPU_DIR=/nowhere"}; });
  ::setenv("SECRET_OF_THE_ACTOR", "1", 1);
  const Kept kept(ana);
  ASSERT_EQ(world.park(kept.main(), kept.uid()).code, Code::ok);
  ::unsetenv("SECRET_OF_THE_ACTOR");
  EXPECT_EQ(world.said(), std::string("SIMGPU_DIR=/nowhere\0here\n", 25));
}

// --- the users that may ask

TEST(Checkpoint, IsForWhoeverMayDecideOfTheLease) {
  NEEDS_ROOT();
  for (const auto& [asker, code] : std::initializer_list<std::pair<std::uint32_t, Code>>{{the_daemon, Code::ok},
                                                                                         {0, Code::ok},
                                                                                         {admin, Code::ok},
                                                                                         {ana, Code::ok},
                                                                                         {ben, Code::denied},
                                                                                         {65534, Code::denied}}) {
    Helped world;
    const Kept kept(ana);
    for (const bool followed : {false, true}) {
      if (followed) {
        ASSERT_EQ(world.follow(kept), Code::ok);
      }
      Order order = world.order(kept.main(), ana, followed ? 0 : by_user);
      order.asked_by = asker;
      EXPECT_EQ(world.ask(order, Helped::pidfd(kept.main())).code, code) << asker;
      world.socket.reset();
      world.until_none();
    }
  }
}

TEST(Checkpoint, IsNotForTheRightsOfAnother) {
  NEEDS_ROOT();
  Helped world;
  const Kept hers(ana), roots(0);
  EXPECT_EQ(world.park(hers.main(), ben).code, Code::wrong_user);
  EXPECT_EQ(world.park(roots.main(), ana).code, Code::wrong_user) << "sudo, say";
  Order by_an_admin = world.order(roots.main(), ana);
  by_an_admin.asked_by = admin;
  EXPECT_EQ(world.ask(by_an_admin, Helped::pidfd(roots.main())).code, Code::wrong_user) << "on nobody's word";
  ASSERT_EQ(world.follow(hers), Code::ok);
  EXPECT_EQ(world.park(hers.main(), ben).code, Code::wrong_user) << "the lease's user is who it was";
  EXPECT_EQ(world.park(hers.main(), 0).code, Code::wrong_user);
  EXPECT_FALSE(world.helpers.any());
}

TEST(Checkpoint, OfRootsLeaseIsWithTheRightsOfTheProcessAllTheSame) {
  NEEDS_ROOT();
  Helped world;
  const Kept hers(ana);
  ASSERT_EQ(world.park(hers.main(), 0).code, Code::ok);
  EXPECT_EQ(proc::parse_rights(world.said())->uids[0], ana);
}

TEST(Checkpoint, OfARightThatItsProgramGaveItIsRefused) {
  NEEDS_ROOT();
  Helped world;
  const Kept setuid(0, [] {
    EXPECT_EQ(::setresuid(ana, ana, ben), 0);
    EXPECT_EQ(::prctl(PR_SET_DUMPABLE, 1), 0);
  });
  EXPECT_EQ(world.park(setuid.main(), ana).code, Code::other_rights);
  const Kept setgid(0, [] {
    EXPECT_EQ(::setresgid(54400, 54401, 54400), 0);
    EXPECT_EQ(::setresuid(ana, ana, ana), 0);
    EXPECT_EQ(::prctl(PR_SET_DUMPABLE, 1), 0);
  });
  EXPECT_EQ(world.park(setgid.main(), ana).code, Code::other_rights);
}

TEST(Checkpoint, OfAProcessInAContainerIsRefused) {
  NEEDS_ROOT();
  const pid_t probe = ::fork();
  if (probe == 0) ::_exit(::unshare(CLONE_NEWUSER) == 0 ? 0 : 1);
  int status = 0;
  ASSERT_EQ(::waitpid(probe, &status, 0), probe);
  if (status != 0) GTEST_SKIP() << "this kernel lets nobody make a user namespace";
  Helped world;
  const Kept contained(ana, [] {
    EXPECT_EQ(::unshare(CLONE_NEWUSER), 0);
    EXPECT_EQ(::prctl(PR_SET_DUMPABLE, 1), 0);
  });
  EXPECT_EQ(world.park(contained.main(), ana).code, Code::other_rights);
}

TEST(Checkpoint, OfWhatDoesNotLetItselfBeTracedIsRefused) {
  NEEDS_ROOT();
  Helped world;
  const Kept hidden(ana, [] { EXPECT_EQ(::prctl(PR_SET_DUMPABLE, 0), 0); });
  EXPECT_EQ(world.park(hidden.main(), ana).code, Code::untraceable);
  EXPECT_FALSE(world.helpers.any());
}

// The kernel reports root as the owner of both.
TEST(Helper, IsRefusedForOneThatIsEndingAsForOneThatIsGone) {
  NEEDS_ROOT();
  Helped world;
  const proc::Ending ending([] {
    EXPECT_EQ(::setresuid(ana, ana, ana), 0);
    EXPECT_EQ(::prctl(PR_SET_DUMPABLE, 1), 0);
  });
  EXPECT_EQ(world.park(ending.pid(), ana).code, Code::gone);
}

// --- the named process

TEST(Checkpoint, IsOfTheProcessThatIsNamedAndAttached) {
  Helped world;
  const Kept kept(ana), other(ana);
  const std::uint32_t uid = kept.uid();
  EXPECT_EQ(world.ask(world.order(kept.main(), uid), {}).code, Code::descriptors);
  EXPECT_EQ(world.ask(world.order(kept.main(), uid), kept.descriptors()).code, Code::descriptors) << "one too many";
  EXPECT_EQ(world.ask(world.order(kept.main(), uid), Helped::pidfd(other.main())).code, Code::gone);
  std::vector<Fd> no_process;
  no_process.emplace_back(::dup(0));
  EXPECT_EQ(world.ask(world.order(kept.main(), uid), std::move(no_process)).code, Code::descriptors);
  Order later = world.order(kept.main(), uid);
  ++later.main_start;
  EXPECT_EQ(world.ask(later, Helped::pidfd(kept.main())).code, Code::gone) << "a pid that came back";
  const Order before = world.order(kept.main(), uid);
  std::vector<Fd> held = Helped::pidfd(kept.main());
  (void)proc::send_signal(kept.main_pidfd.get(), SIGKILL);
  ASSERT_TRUE(ends(kept.main_pidfd));
  EXPECT_EQ(world.ask(before, std::move(held)).code, Code::gone);
}

TEST(Checkpoint, NeedsProofUnlessTheUserIsEnough) {
  Helped world;
  const Kept kept(ana), stranger(ana);
  EXPECT_EQ(world.park(kept.main(), kept.uid(), 0).code, Code::not_followed);
  ASSERT_EQ(world.follow(kept), Code::ok);
  EXPECT_EQ(world.park(stranger.main(), kept.uid(), 0).code, Code::no_proof);
  EXPECT_EQ(world.park(stranger.main(), kept.uid()).code, Code::ok) << "its user named it";
  EXPECT_EQ(world.park(kept.main(), kept.uid(), 0).code, Code::ok);
}

TEST(Checkpoint, TakesNoOtherField) {
  Helped world;
  const Kept kept(ana);
  const Order good = world.order(kept.main(), kept.uid());
  const auto refused = [&](auto change) {
    Order order = good;
    change(order);
    return world.ask(order, Helped::pidfd(kept.main())).code == Code::malformed;
  };
  EXPECT_TRUE(refused([](Order& o) { o.lease = 0; }));
  EXPECT_TRUE(refused([](Order& o) { o.flags = adopted; }));
  EXPECT_TRUE(refused([](Order& o) { o.main_pid = 0; }));
  EXPECT_TRUE(refused([](Order& o) { o.main_pid = -1; }));
  EXPECT_TRUE(refused([](Order& o) { o.main_start = 0; }));
  EXPECT_TRUE(refused([](Order& o) { o.keeper_pid = 1; }));
  EXPECT_TRUE(refused([](Order& o) { o.keeper_start = 1; }));
  EXPECT_TRUE(refused([](Order& o) { o.main_inode = 1; }));
  EXPECT_TRUE(refused([](Order& o) { o.signal = SIGKILL; }));
  EXPECT_TRUE(refused([](Order& o) { o.percent = 1; }));
}

TEST(Checkpoint, SomeAreNeverTouched) {
  NEEDS_ROOT();
  Helped world;
  for (const pid_t pid : {pid_t{1}, ::getpid(), ::getppid()})
    EXPECT_EQ(world.park(pid, 0).code, Code::untouchable) << pid;
}

TEST(Checkpoint, WithoutAProgramToStartIsRefused) {
  Helped world;
  Service without(world.root, {.group_name = "sublet-test", .client_pid = 0, .is_admin = {}});
  const Kept kept(ana);
  const Order order = world.order(kept.main(), kept.uid());
  const Reply reply = without.answer(std::as_bytes(std::span(&order, 1)), Helped::pidfd(kept.main()), false);
  EXPECT_EQ(reply.code, Code::failed);
  EXPECT_NE(std::string(reply.path), "");
}

// --- the number of helpers, and their end

TEST(Helper, IsOnlyOneForAProcess) {
  Helped world;
  const Kept kept(ana), other(ana);
  ASSERT_EQ(world.park(kept.main(), kept.uid()).code, Code::ok);
  Fd first = std::move(world.socket);
  EXPECT_EQ(world.park(kept.main(), kept.uid()).code, Code::busy);
  ASSERT_EQ(world.park(other.main(), kept.uid()).code, Code::ok);
  first.reset();
  Code code = Code::busy;
  const std::int64_t end = monotonic_ns() + 30'000'000'000;
  while (code == Code::busy && monotonic_ns() < end) code = world.park(kept.main(), kept.uid()).code;
  EXPECT_EQ(code, Code::ok) << "as soon as the first has ended";
}

TEST(Helper, AreSoManyOfAUserAndOfAll) {
  NEEDS_ROOT();
  Helped world(honest, [](HelperOptions& options) { options.most = 3, options.most_of_user = 2; });
  const Kept a(ana), b(ana), c(ana), d(ben), e(ben);
  std::vector<Fd> sockets;
  const auto park = [&](const Kept& kept) {
    const Code code = world.park(kept.main(), kept.uid()).code;
    if (code == Code::ok) sockets.push_back(std::move(world.socket));
    return code;
  };
  EXPECT_EQ(park(a), Code::ok);
  EXPECT_EQ(park(b), Code::ok);
  EXPECT_EQ(park(c), Code::too_many) << "of ana";
  EXPECT_EQ(world.park(c.main(), c.uid(), by_user | bring_back).code, Code::ok) << "who was paused comes back";
  sockets.push_back(std::move(world.socket));
  EXPECT_EQ(park(d), Code::ok) << "ben has room: what ana has beyond hers is not taken from others";
  EXPECT_EQ(park(e), Code::too_many) << "of all";
  sockets.clear();
  world.until_none();
  EXPECT_EQ(park(c), Code::ok);
}

TEST(Helper, ThatNeverComesBackIsEndedAfterItsProcess) {
  Helped world(deaf, [](HelperOptions& options) { options.patience = {}; });
  const Kept kept(ana);
  const Reply reply = world.park(kept.main(), kept.uid());
  ASSERT_EQ(reply.code, Code::ok);
  EXPECT_EQ(world.said(), "here\n");
  world.socket.reset();  // the helper does not notice it
  world.helpers.sweep();
  EXPECT_TRUE(world.helpers.any()) << "what it is in the middle of may still be carried out";
  (void)proc::send_signal(kept.main_pidfd.get(), SIGKILL);
  ASSERT_TRUE(ends(kept.main_pidfd));
  world.until_none();
  EXPECT_FALSE(world.root.read(reply.pid)) << "and waited for";
}

// Between the change of user and the exec, the user may stop the child, so nobody may wait for it. In this test the
// exec itself hangs: its program file has a lease of the kernel, and opening it waits for that.
TEST(Helper, WhomItsUserCouldStopIsNotWaitedFor) {
  Helped world;
  const Kept kept(ana);
  const auto before = std::signal(SIGIO, SIG_IGN);  // the kernel sends it to the holder of the file lease
  Fd lease(::open(world.dir.path("helper").c_str(), O_RDWR | O_CLOEXEC));
  if (::fcntl(lease.get(), F_SETLEASE, F_WRLCK) != 0) GTEST_SKIP() << "this file system has no leases";
  const Reply reply = world.park(kept.main(), kept.uid());
  EXPECT_EQ(reply.code, Code::ok) << reply.path;
  lease.reset();
  std::signal(SIGIO, before);
  EXPECT_EQ(line_of(world.said(), "Pid"), std::to_string(reply.pid)) << "then it starts";
}

TEST(Helper, ThatCannotBeStartedIsSaidWithTheReason) {
  Helped world;
  std::filesystem::remove(world.dir.path("helper"));
  const Kept kept(ana);
  const Reply reply = world.park(kept.main(), kept.uid());
  EXPECT_EQ(reply.code, Code::failed);
  EXPECT_EQ(reply.error, ENOENT);
  EXPECT_EQ(std::string(reply.path), "sublet-gpu cannot be started");
  world.until_none();
}

// --- helpers that outlive the actor

TEST(Helper, OfAnEarlierActorIsKnown) {
  const proc::TempDir records;
  const auto recorded = [&](HelperOptions& options) {
    options.records = records.path("helpers");
    options.most_of_user = 1;
    options.patience = {};
  };
  Helped first(deaf, recorded);
  const Kept kept(ana), other(ana);
  const Reply reply = first.park(kept.main(), kept.uid());
  ASSERT_EQ(reply.code, Code::ok);
  EXPECT_EQ(first.said(), "here\n");
  first.socket.reset();

  Helped second(honest, recorded);
  EXPECT_TRUE(second.helpers.any());
  EXPECT_EQ(second.park(kept.main(), kept.uid(), by_user | bring_back).code, Code::busy) << "never a second one";
  EXPECT_EQ(second.park(other.main(), kept.uid()).code, Code::too_many) << "it counts";
  (void)proc::send_signal(kept.main_pidfd.get(), SIGKILL);
  ASSERT_TRUE(ends(kept.main_pidfd));
  second.until_none();  // it was of no use any more
  EXPECT_TRUE(ends(pidfd_of(reply.pid)));
  EXPECT_EQ(second.park(other.main(), kept.uid()).code, Code::ok);
  second.socket.reset();
  second.until_none();
  EXPECT_TRUE(Records(records.path("helpers")).read().empty());
  first.until_none();  // the parent of the helper
}

TEST(Helper, OfAnEarlierActorThatHasEndedIsForgotten) {
  const proc::TempDir records;
  const Kept kept(ana);
  const Records kept_there(records.path("helpers"));
  const ProcessRef main = proc::ProcRoot::open()->read(kept.main())->ref;
  kept_there.write({.helper = {main.pid, main.start_ticks + 1}, .process = main, .uid = kept.uid()});
  records.write("helpers/17", "not a record");
  records.write("helpers/18", "");
  const Helped world(honest, [&](HelperOptions& options) { options.records = records.path("helpers"); });
  EXPECT_FALSE(world.helpers.any()) << "the pid is another's by now";
  EXPECT_TRUE(std::filesystem::is_empty(records.path("helpers")));
}

TEST(Records, KeepWhatIsWrittenUntilItIsRemoved) {
  const proc::TempDir dir;
  const Records records(dir.path("new"));
  const Records::Record first{{100, 1000}, {200, 2000}, 54321}, second{{101, 1001}, {201, 2001}, 0};
  records.write(first);
  records.write(second);
  EXPECT_EQ(Records(dir.path("new")).read().size(), 2u);
  records.remove(100);
  EXPECT_EQ(Records(dir.path("new")).read(), std::vector{second});
  records.write({{101, 9999}, {201, 2001}, 0});  // a reused pid
  EXPECT_EQ(records.read().size(), 1u);
}

TEST(Records, AreNotKeptWhereOthersMayWrite) {
  const proc::TempDir dir;
  const std::string open = dir.path("open");
  std::filesystem::create_directory(open);
  ::chmod(open.c_str(), 0777);
  const Records records(open);
  records.write({{100, 1000}, {200, 2000}, 0});
  EXPECT_TRUE(std::filesystem::is_empty(open));
  const Records nowhere("");
  nowhere.write({{100, 1000}, {200, 2000}, 0});
  EXPECT_TRUE(nowhere.read().empty());
}

TEST(Helper, OfAnotherUserNeedsRoot) {
  NEEDS_ROOT();
  const Kept kept(ana);
  proc::Child plain([&] {
    if (::setresgid(ben, ben, ben) != 0 || ::setresuid(ben, ben, ben) != 0) return 9;
    HelperOptions options;
    options.program = "/bin/true";
    const auto root = proc::ProcRoot::open();
    Helpers helpers(*root, options);
    const auto found = root->read_with(kept.main(), "status");
    const auto started = helpers.start(found->info.ref, pidfd_of(kept.main()), *proc::parse_rights(found->text), false);
    return started.code == Code::failed && started.error == EPERM ? 0 : 1;
  });
  plain.wait_for_end();
  EXPECT_EQ(WEXITSTATUS(plain.reap()), 0);
}

}  // namespace
}  // namespace sublet::actor
