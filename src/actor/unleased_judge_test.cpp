// SPDX-License-Identifier: Apache-2.0
// The judgement of an unleased process: evidence of a GPU, protected programs, and rights of the actor.
#include "actor/gpu_evidence.h"
#include "actor/protected_programs.h"
#include "actor/unleased_test.h"

#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <filesystem>
#include <thread>

namespace sublet::actor {
namespace {

TEST(Evidence, CountsFilesOfGpus) {
  const struct {
    const char* path;
    bool mapped, open;
  } files[] = {
      {"/dev/nvidia0", true, true},
      {"/dev/nvidia-uvm", true, true},
      {"/dev/nvidia-caps/nvidia-cap1", true, true},
      {"/dev/nvidiactl", true, false},
      {"/dev/null", false, false},
      {"/dev/dri/card0", false, false},
      {"/home/user/dev/nvidia0", false, false},
      {"/cards/simgpu/table", true, true},
      {"/cards/simgpu", false, false},
      {"/cards/simgpu2/table", false, false},
      {"", false, false},
      {"memfd:/dev/nvidia0", false, false},
  };
  for (const auto& [path, mapped, open] : files) {
    EXPECT_EQ(is_gpu_file(path, "/cards/simgpu"), mapped) << path;
    EXPECT_EQ(is_open_gpu_file(path, "/cards/simgpu"), open) << path;
  }
  for (const char* none : {"", "/"}) EXPECT_FALSE(is_gpu_file("/home/user/file", none));
}

TEST(Evidence, IsAnOpenFileWithoutAMappingInAProcessThatInheritedIt) {
  Judging world;
  Family family;
  const Fd card = world.cards.open_card();
  family.fork([&] { family.report(0); });
  family.await(1);
  const Reply reply = world.inspect(family);
  EXPECT_EQ(reply.code, Code::ok) << "the daemon decides";
  EXPECT_EQ(reply.flags, has_device_file);
}

TEST(Evidence, IsMissingInAProcessWithoutACard) {
  Judging world;
  Family family;
  family.fork([&] { family.report(0); });
  family.await(1);
  EXPECT_EQ(world.inspect(family).code, Code::no_evidence);
  for (const int signal : {SIGTERM, SIGKILL}) EXPECT_EQ(world.end(family, signal).code, Code::no_evidence);
  EXPECT_TRUE(family.lives(0));
}

TEST(Evidence, IsNotHiddenByTheEndOfTheFirstThread) {
  Judging world;
  Family family;
  family.fork([&] {
    std::thread([&] {
      world.cards.map_card();
      for (bool first = true; first;) first = world.root.read(::getpid())->state != 'Z';
      family.report(0);
      proc::sleep_for_ever();
    }).detach();
    ::syscall(SYS_exit, 0);
  });
  family.await(1);
  const Reply reply = world.inspect(family);
  EXPECT_EQ(reply.code, Code::ok) << to_string(reply.code);
  EXPECT_EQ(reply.flags, has_mapping);
  EXPECT_EQ(world.end(family, SIGTERM).sent, 1u);
  EXPECT_TRUE(ends(family.pidfd(0)));
}

TEST(Evidence, IsFoundBehindManyFilesAndMappings) {
  Judging world;
  Family family;
  family.fork([&] {
    for (int i = 0; i < 500; ++i) (void)::open("/dev/null", O_RDONLY);
    const Fd other(::open("/proc/self/exe", O_RDONLY));
    for (int i = 0; i < 3000; ++i) {
      // Different rights keep the kernel from joining neighbours.
      const int rights = i % 2 == 0 ? PROT_READ : PROT_NONE;
      if (::mmap(nullptr, 4096, rights, MAP_PRIVATE, other.get(), 0) == MAP_FAILED) ::_exit(9);
    }
    world.cards.map_card();
    family.report(0);
  });
  family.await(1);
  EXPECT_EQ(world.inspect(family).flags, has_mapping);
}

// Runs `body` in a process that is root with only these capabilities. Returns its result.
template <typename Body>
int with_capabilities(std::uint32_t capabilities, Body body) {
  proc::Child child([&] {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2]{};
    data[0].effective = data[0].permitted = capabilities;
    return ::syscall(SYS_capset, &header, data) == 0 ? body() : 99;
  });
  child.wait_for_end();
  const int status = child.reap();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}
constexpr std::uint32_t bit(int capability) { return 1U << static_cast<unsigned>(capability); }

TEST(Evidence, IsSeenWithTheCapabilitiesOfThePackagedActor) {
  NEEDS_ROOT();
  Judging world;
  Family family;
  family.fork([&] {
    const Fd card = world.cards.open_card();
    world.cards.map_card();
    if (::setresgid(ana, ana, ana) != 0 || ::setresuid(ana, ana, ana) != 0) ::_exit(7);
    ::prctl(PR_SET_DUMPABLE, 1);
    family.report(0);
    proc::sleep_for_ever();
  });
  family.await(1);
  const auto look = [&] {
    const Reply reply = world.inspect(family);
    return static_cast<int>(reply.flags) + (reply.code == Code::ok && reply.path[0] != '\0' ? 0 : 1);
  };
  const auto kill_it = [&] { return static_cast<int>(world.end(family, SIGTERM).code); };
  const std::uint32_t packaged = bit(CAP_KILL) | bit(CAP_SETUID) | bit(CAP_SETGID) | bit(CAP_SYS_PTRACE);
  EXPECT_EQ(with_capabilities(packaged, look), static_cast<int>(has_device_file | has_mapping));
  EXPECT_EQ(with_capabilities(packaged & ~bit(CAP_KILL), kill_it), static_cast<int>(Code::failed))
      << "the process has another user";
  EXPECT_EQ(with_capabilities(packaged & ~bit(CAP_KILL), [&] { return static_cast<int>(world.inspect(family).code); }),
            static_cast<int>(Code::failed))
      << "a look promises no signal that the actor cannot send";
  EXPECT_EQ(with_capabilities(0, kill_it), static_cast<int>(Code::no_evidence)) << "its files cannot be seen";
  EXPECT_TRUE(family.lives(0));
  EXPECT_EQ(with_capabilities(packaged, kill_it), static_cast<int>(Code::ok));
  EXPECT_TRUE(ends(family.pidfd(0)));
}

// --- protected programs

TEST(ProtectedPrograms, ServeLoginsScreensAndTheDriver) {
  for (const char* name :
       {"sshd", "Xorg", "Xwayland", "gnome-shell", "kwin_wayland", "kwin_x11", "sddm", "gdm3", "gdm-x-session",
        "lightdm", "systemd", "systemd-logind", "dbus-daemon", "dbus-broker", "weston", "sway", "nvidia-persistenced",
        "plasmashell", "Hyprland", "mutter", "cinnamon", "muffin", "xfwm4", "labwc", "niri", "river", "cosmic-comp",
        "wayfire", "gamescope", "Xvnc", "Xtigervnc", "Xvfb", "nv-hostengine", "nvidia-powerd", "dockerd", "containerd",
        "containerd-shim-runc-v2", "kubelet"})
    EXPECT_TRUE(is_protected_name(name)) << name;
  for (const char* name : {"", "python3", "ssh", "sshd2", "xsshd", "Xorg.bin", "kwin", "swaylock", "train", "systemdx",
                           "firefox", "nvcc", "docker"})
    EXPECT_FALSE(is_protected_name(name)) << name;
}

// A copy of a program in a directory that only root can write to, all the way up.
class RootsDirectory {
 public:
  RootsDirectory() {
    std::string pattern = "/var/lib/sublet-test-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) return;
    path = pattern;
    ::chmod(path.c_str(), 0755);
  }
  ~RootsDirectory() {
    if (!path.empty()) std::filesystem::remove_all(path);
  }
  std::string path;
};

std::string copy_of_sleep(const std::string& directory, const char* name) {
  const std::string path = directory + "/" + name;
  std::filesystem::copy_file("/bin/sleep", path);
  ::chmod(path.c_str(), 0755);
  return path;
}

// A process that has executed this file, with a card open.
class Executed {
 public:
  template <typename Before>
  Executed(const Cards& cards, const std::string& path, Before before) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    child_.emplace([&] {
      const Fd card = cards.open_card();
      before();
      ::execl(path.c_str(), path.c_str(), "1000", nullptr);
      return 127;
    });
    ::close(ends[1]);
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 0) << "the exec closes the pipe";
    ::close(ends[0]);
    pidfd = pidfd_of(child_->pid());
  }
  Executed(const Cards& cards, const std::string& path) : Executed(cards, path, [] {}) {}
  pid_t pid() const { return child_->pid(); }
  Fd pidfd;

 private:
  std::optional<proc::Child> child_;
};

TEST(ProtectedPrograms, AreSparedIfOnlyRootCanReplaceThem) {
  NEEDS_ROOT();
  const RootsDirectory roots;
  if (roots.path.empty()) GTEST_SKIP() << "no directory below /var/lib can be made";
  Judging world;
  const std::string file = copy_of_sleep(roots.path, "sshd");
  const Executed sshd(world.cards, file);
  const auto code = [&](Verb verb, int signal = 0) {
    return world.ask(world.order(verb, sshd.pid(), sshd.pidfd, signal), sshd.pidfd).code;
  };
  EXPECT_EQ(code(Verb::inspect), Code::untouchable);
  for (const int signal : {SIGTERM, SIGKILL}) EXPECT_EQ(code(Verb::end, signal), Code::untouchable);
  EXPECT_FALSE(proc::is_dead(sshd.pidfd.get()));
  ::chmod(file.c_str(), 0757);
  EXPECT_EQ(code(Verb::inspect), Code::ok) << "anybody may write to the file";
  ::chmod(file.c_str(), 0755);
  ASSERT_EQ(::chown(file.c_str(), ana, 0), 0);
  EXPECT_EQ(code(Verb::inspect), Code::ok) << "the file belongs to a user";
  ASSERT_EQ(::chown(file.c_str(), 0, 0), 0);
  ::chmod(roots.path.c_str(), 0777);
  EXPECT_EQ(code(Verb::inspect), Code::ok) << "anybody may replace the file";
  ::chmod(roots.path.c_str(), 0755);
  EXPECT_EQ(code(Verb::inspect), Code::untouchable);
  std::filesystem::remove(file);
  EXPECT_EQ(code(Verb::inspect), Code::untouchable) << "an update removes the file of a running program";
}

TEST(ProtectedPrograms, AreNotFoundByNameInAPlaceOfAUser) {
  Judging world;
  const proc::TempDir dir;
  const Executed sshd(world.cards, copy_of_sleep(dir.path(), "sshd"));
  EXPECT_EQ(world.ask(world.order(Verb::inspect, sshd.pid(), sshd.pidfd), sshd.pidfd).code, Code::ok);
}

TEST(ProtectedPrograms, IncludeTheProgramsOfSublet) {
  const proc::TempDir dir;
  Judging world(dir.path());
  const Executed helper(world.cards, copy_of_sleep(dir.path(), "sublet-gpu"));
  const Executed other(world.cards, copy_of_sleep(dir.path(), "sleep"));
  EXPECT_EQ(world.ask(world.order(Verb::inspect, helper.pid(), helper.pidfd), helper.pidfd).code, Code::untouchable);
  EXPECT_EQ(world.ask(world.order(Verb::inspect, other.pid(), other.pidfd), other.pidfd).code, Code::ok);
}

TEST(ProtectedPrograms, AreSparedBelowAnUnleasedProcessWithAllBelowThem) {
  const proc::TempDir dir;
  Judging world(dir.path());
  const std::string keeper = copy_of_sleep(dir.path(), "sublet-keep");
  Family family;
  family.fork([&] {
    world.cards.map_card();
    family.fork([&] {
      family.report(1);
      ::execl(keeper.c_str(), keeper.c_str(), "1000", nullptr);
    });
    family.report(0);
  });
  family.await(2);
  for (bool executed = false; !executed;) {
    const auto files = proc::open_process_files(world.root, family.pid(1));
    ASSERT_TRUE(files);
    const auto executable = proc::executable_of(files->get());
    executed = executable && executable->path == keeper;
  }
  const Reply reply = world.end(family, SIGKILL);
  EXPECT_EQ(reply.sent, 1u);
  EXPECT_EQ(reply.left, 1u);
  EXPECT_TRUE(family.lives(1));
}

TEST(ProtectedPrograms, AreNotImitatedInAnotherMountNamespace) {
  NEEDS_ROOT();
  const RootsDirectory roots;
  if (roots.path.empty()) GTEST_SKIP() << "no directory below /var/lib can be made";
  Judging world;
  const std::string file = copy_of_sleep(roots.path, "sshd"), other = copy_of_sleep(roots.path, "train");
  const Executed imitation(world.cards, file, [&] {
    if (::unshare(CLONE_NEWNS) != 0) return;
    (void)::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    (void)::mount(other.c_str(), file.c_str(), nullptr, MS_BIND, nullptr);
  });
  const auto files = proc::open_process_files(world.root, imitation.pid());
  ASSERT_TRUE(files);
  const auto executable = proc::executable_of(files->get());
  struct stat real {};
  ASSERT_TRUE(executable && ::stat(file.c_str(), &real) == 0);
  if (executable->inode == real.st_ino) GTEST_SKIP() << "nothing can be mounted here";
  EXPECT_EQ(executable->path, file);
  EXPECT_EQ(world.ask(world.order(Verb::inspect, imitation.pid(), imitation.pidfd), imitation.pidfd).code, Code::ok);
}

TEST(ProtectedPrograms, AreNotTakenFromAContainer) {
  const proc::Executable shown{.path = "/proc/self/exe-of-nobody", .owner = 0, .mode = 0100755};
  EXPECT_FALSE(is_protected(shown, true, "/usr/bin"));
  proc::Executable bash{.path = "/usr/sbin/sshd", .removed = true, .owner = 0, .mode = 0100755};
  EXPECT_FALSE(is_protected(bash, false, "/usr/bin")) << "a container";
  EXPECT_TRUE(is_protected(bash, true, "/usr/bin"));
  bash.owner = ana;
  EXPECT_FALSE(is_protected(bash, true, "/usr/bin"));
}

TEST(ProtectedPrograms, IncludeTheActorAndItsAncestors) {
  Judging world;
  for (pid_t pid : {::getpid(), ::getppid(), 1}) {
    const Fd pidfd = pidfd_of(pid);
    EXPECT_EQ(world.ask(world.order(Verb::inspect, pid, pidfd), pidfd).code, Code::untouchable) << pid;
    EXPECT_EQ(world.ask(world.order(Verb::end, pid, pidfd, SIGTERM), pidfd).code, Code::untouchable) << pid;
  }
}

// --- orders

TEST(UnleasedOrders, BelongToTheDaemonAlone) {
  Judging world;
  Family family;
  family.fork([&] {
    world.cards.map_card();
    family.report(0);
  });
  family.await(1);
  for (const std::uint32_t asker : {0U, ana, admin, 65534U}) {
    for (const Verb verb : {Verb::inspect, Verb::end}) {
      Order order = world.order(verb, family.pid(0), family.pidfd(0), verb == Verb::end ? SIGKILL : 0);
      order.asked_by = asker;
      EXPECT_EQ(world.ask(order, family.pidfd(0)).code, Code::denied) << asker;
    }
    EXPECT_EQ(world.ask({.verb = Verb::close, .asked_by = asker, .lease = 31}).code, Code::denied);
  }
  EXPECT_TRUE(family.lives(0));
}

TEST(UnleasedOrders, TakeTheirOwnFieldsOnly) {
  Judging world;
  Family family;
  family.fork([&] { family.report(0); });
  family.await(1);
  const Order look = world.order(Verb::inspect, family.pid(0), family.pidfd(0));
  const Order kill = world.order(Verb::end, family.pid(0), family.pidfd(0), SIGKILL);
  const auto refused = [&](Order order, auto change) {
    change(order);
    return world.ask(order, family.pidfd(0)).code == Code::malformed;
  };
  for (const Order& order : {look, kill}) {
    EXPECT_TRUE(refused(order, [](Order& o) { o.lease = o.lease == 0 ? 31 : 0; }));
    EXPECT_TRUE(refused(order, [](Order& o) { o.uid = ana; }));
    EXPECT_TRUE(refused(order, [](Order& o) { o.flags = by_user; }));
    EXPECT_TRUE(refused(order, [](Order& o) { o.main_pid = 0; }));
    EXPECT_TRUE(refused(order, [](Order& o) { o.main_pid = -1; }));
    EXPECT_TRUE(refused(order, [](Order& o) { o.keeper_pid = 1; }));
    EXPECT_TRUE(refused(order, [](Order& o) { o.keeper_start = 1; }));
    EXPECT_TRUE(refused(order, [](Order& o) { o.percent = 1; }));
    EXPECT_TRUE(refused(order, [](Order& o) { o.signal = SIGSTOP; }));
    EXPECT_EQ(world.ask(order).code, Code::descriptors);
  }
  EXPECT_TRUE(refused(look, [](Order& o) { o.flags = to_spare; }));
  EXPECT_TRUE(refused(kill, [](Order& o) { o.flags = to_spare; })) << "with a signal";
  EXPECT_EQ(world.ask({.verb = Verb::close}).code, Code::malformed);
  EXPECT_EQ(world.ask({.verb = Verb::close, .lease = 31, .main_pid = 5}).code, Code::malformed);
  EXPECT_EQ(world.ask({.verb = Verb::close, .lease = 31}).code, Code::ok);
}

TEST(UnleasedOrders, NeedTheInodeOfThePidfd) {
  Judging world;
  Family family;
  family.fork([&] {
    world.cards.map_card();
    family.report(0);
  });
  family.await(1);
  Order order = world.order(Verb::end, family.pid(0), family.pidfd(0), SIGKILL);
  if (order.main_inode == 0) GTEST_SKIP() << "this kernel has no inodes of pidfds";
  for (const std::uint64_t inode : {std::uint64_t{0}, order.main_inode + 1}) {
    order.main_inode = inode;
    EXPECT_EQ(world.ask(order, family.pidfd(0)).code, Code::no_proof);
  }
  const Fd nothing(::open("/dev/null", O_RDONLY));
  EXPECT_EQ(world.ask(order, nothing).code, Code::descriptors);
  EXPECT_TRUE(family.lives(0));
}

}  // namespace
}  // namespace sublet::actor
