// SPDX-License-Identifier: Apache-2.0
// Tests the real sublet-actor through its socket, and the groups that it makes.
#include "actor/test_support.h"

#include "actor/groups.h"
#include "actor/unleased_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <cstring>
#include <filesystem>
#include <random>

namespace sublet::actor {
namespace {

constexpr const char* program = TEST_PROGRAM;

std::string group_name() { return fmt::format("sublet-test-{}", ::getpid()); }

class Running {
 public:
  explicit Running(const std::string& variable = "A=B") {
    int pair[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    socket_ = Fd(pair[0]);
    ::fcntl(pair[0], F_SETFD, FD_CLOEXEC);
    pid_ = ::fork();
    if (pid_ == 0) {
      const std::string fd = std::to_string(pair[1]);
      ::execl(program, program, "serve", "--fd", fd.c_str(), "--name", group_name().c_str(), "--env", variable.c_str(),
              nullptr);
      ::_exit(127);
    }
    ::close(pair[1]);
  }
  ~Running() {
    socket_.reset();
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  int end() {
    socket_.reset();
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

  // False: the actor closed the socket.
  bool send(std::span<const std::byte> bytes, std::span<const int> fds) const {
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * 64)> control{};
    if (!fds.empty()) {
      message.msg_control = control.data();
      message.msg_controllen = CMSG_SPACE(fds.size_bytes());
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(fds.size_bytes());
      std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
    }
    return ::sendmsg(socket_.get(), &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  std::optional<Reply> reply() const {
    Reply reply;
    if (::recv(socket_.get(), &reply, sizeof reply, 0) != static_cast<ssize_t>(sizeof reply)) return {};
    return reply;
  }
  Reply ask(const Order& order, std::span<const int> fds = {}) const {
    EXPECT_TRUE(send(std::as_bytes(std::span(&order, 1)), fds));
    const auto answer = reply();
    EXPECT_TRUE(answer);
    EXPECT_EQ(answer.value_or(Reply{}).id, order.id);
    return answer.value_or(Reply{.code = Code::lost});
  }
  pid_t pid() const { return pid_; }

 private:
  Fd socket_;
  pid_t pid_ = -1;
};

TEST(Program, SaysWhoItIsAndEndsWithItsSocket) {
  Running actor;
  const Reply reply = actor.ask({.verb = Verb::hello, .id = 41});
  EXPECT_EQ(reply.code, Code::ok);
  EXPECT_EQ(reply.version, protocol_version);
  EXPECT_EQ(reply.uid, ::geteuid());
  EXPECT_EQ((reply.flags & signals_others) != 0, ::geteuid() == 0);
  EXPECT_EQ(actor.end(), 0);
}

TEST(Program, FollowsAndSignalsByWhatIsAttached) {
  const auto root = *proc::ProcRoot::open();
  Running actor;
  const Kept kept(ana);
  const int fds[] = {kept.main_pidfd.get(), kept.keeper_pidfd.get()};
  ASSERT_EQ(actor.ask({.verb = Verb::hello}).code, Code::ok);
  const Reply followed = actor.ask(kept.order(7, root), fds);
  ASSERT_EQ(followed.code, Code::ok);
  EXPECT_NE(followed.path[0], '\0') << "a group, or why there is none";
  EXPECT_EQ(actor.ask({.verb = Verb::signal, .lease = 7, .signal = SIGKILL}).sent, 1u);
  EXPECT_TRUE(ends(kept.main_pidfd));
  EXPECT_EQ(actor.ask({.verb = Verb::forget, .lease = 7}).code, Code::ok);
  EXPECT_FALSE((followed.flags & own_group) != 0 && std::filesystem::exists(followed.path));
}

TEST(Program, LooksForFilesOfTheSimulatedCardsThatItsOptionsName) {
  const auto root = *proc::ProcRoot::open();
  const Cards cards;
  Family family;
  family.fork([&] {
    cards.map_card();
    family.report(0);
  });
  family.await(1);
  const int fds[] = {family.pidfd(0).get()};
  Order order{.verb = Verb::inspect, .main_pid = family.pid(0)};
  order.main_start = root.read(family.pid(0))->ref.start_ticks;
  order.main_inode = proc::pidfd_inode(fds[0]).value_or(0);
  EXPECT_EQ(Running().ask(order, fds).code, Code::no_evidence);
  const Running actor("SIMGPU_DIR=" + cards.path());
  const Reply seen = actor.ask(order, fds);
  EXPECT_EQ(seen.code, Code::ok) << to_string(seen.code);
  EXPECT_EQ(seen.flags, has_mapping);
  order.verb = Verb::end;
  order.lease = 31;
  order.signal = SIGKILL;
  EXPECT_EQ(actor.ask(order, fds).sent, 1u);
  EXPECT_TRUE(ends(family.pidfd(0)));
}

TEST(Program, OutlivesWhateverIsSent) {
  Running actor;
  const Kept kept(ana);
  std::mt19937 random(4711);
  std::array<std::byte, 512> bytes;
  const int fd = kept.main_pidfd.get();
  const std::vector<int> many(40, fd);
  for (int round = 0; round < 3000; ++round) {
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() % 4 == 0 ? random() : 0);
    const std::size_t size = round % 3 == 0 ? sizeof(Order) : 1 + random() % bytes.size();
    const auto verb = static_cast<std::uint32_t>(random() % (last_verb + 2));
    std::memcpy(bytes.data(), &verb, sizeof verb);
    const std::span<const int> fds = random() % 4 == 0 ? std::span(many).first(random() % 41) : std::span<const int>();
    ASSERT_TRUE(actor.send({bytes.data(), size}, fds));
    const auto reply = actor.reply();
    ASSERT_TRUE(reply);
    EXPECT_TRUE(size == sizeof(Order) || reply->code == Code::malformed);
  }
  EXPECT_EQ(actor.ask({.verb = Verb::hello, .id = 9}).code, Code::ok);
  EXPECT_FALSE(proc::is_dead(kept.main_pidfd.get()));
  std::size_t open = 0;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", actor.pid()))) {
    open += !entry.path().empty();
  }
  EXPECT_LE(open, 8u) << "what was attached is closed";
}

// Returns the exit status of the program with these arguments, without a socket.
int status(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), program);
  arguments.push_back(nullptr);
  proc::Child child([&] {
    const int nothing = ::open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) ::dup2(nothing, fd);
    ::execv(program, const_cast<char* const*>(arguments.data()));
    return 127;
  });
  child.wait_for_end();
  return WEXITSTATUS(child.reap());
}

TEST(Program, RefusesWhatIsNoSocketOfADaemon) {
  EXPECT_EQ(status({"--version"}), 0);
  EXPECT_EQ(status({"--help"}), 0);
  EXPECT_EQ(status({}), 2);
  EXPECT_EQ(status({"serve"}), 2);
  EXPECT_EQ(status({"serve", "--fd", "x"}), 2);
  EXPECT_EQ(status({"serve", "--fd", "0", "--name", "../x"}), 2);
  EXPECT_EQ(status({"listen", "--fd", "0"}), 2);
  EXPECT_EQ(status({"serve", "--fd", "0"}), 1) << "no socket";
  EXPECT_EQ(status({"listen"}), 1) << "nothing was passed";
}

// --- listening: the users that may connect

class Listening {
 public:
  explicit Listening(const char* user) : path_(dir_.path("socket")) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path_.copy(address.sun_path, sizeof address.sun_path - 1);
    const Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener.get(), 8), 0);
    ::chmod(path_.c_str(), 0666);
    ::chmod(dir_.path().c_str(), 0755);
    child_.emplace([&] {
      // dup2 to the same number would leave close-on-exec set. The pid must be that of this process.
      if (listener.get() != 3) ::dup2(listener.get(), 3);
      ::setenv("LISTEN_FDS", "1", 1);
      ::setenv("LISTEN_PID", std::to_string(::getpid()).c_str(), 1);
      ::execl(program, program, "listen", "--user", user, "--name", group_name().c_str(), nullptr);
      return 127;
    });
  }

  pid_t pid() const { return child_->pid(); }
  // Returns the code of the answer to `hello` for a process of that user; 99 if the actor hangs up.
  int hello_as(uid_t uid) const {
    proc::Child asker([&] {
      if (::setresuid(uid, uid, uid) != 0) return 98;
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      path_.copy(address.sun_path, sizeof address.sun_path - 1);
      const Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
      if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return 97;
      const Order order;
      (void)!::send(socket.get(), &order, sizeof order, MSG_NOSIGNAL);
      Reply reply;
      if (::recv(socket.get(), &reply, sizeof reply, 0) != static_cast<ssize_t>(sizeof reply)) return 99;
      return static_cast<int>(reply.code);
    });
    asker.wait_for_end();
    return WEXITSTATUS(asker.reap());
  }

 private:
  proc::TempDir dir_;
  std::string path_;
  std::optional<proc::Child> child_;
};

TEST(Program, ListensToOneUserAndRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become several users";
  const Listening actor("daemon");  // an account of every Debian: uid 1
  EXPECT_EQ(actor.hello_as(1), 0);
  EXPECT_EQ(actor.hello_as(0), 0);
  EXPECT_EQ(actor.hello_as(ana), 99);
  EXPECT_EQ(actor.hello_as(65534), 99);
  EXPECT_EQ(actor.hello_as(1), 0) << "one after the other";
}

std::uint64_t capabilities_of(pid_t pid, std::string_view line) {
  const auto status = proc::ProcRoot::open()->read_file(fmt::format("{}/status", pid));
  const auto at = status ? status->find(line) : std::string::npos;
  return at == std::string::npos ? ~std::uint64_t{0} : std::stoull(status->substr(at + line.size()), nullptr, 16);
}

TEST(Program, GivesUpTheRightToAdministerNetworks) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root has capabilities";
  const Listening actor("daemon");
  ASSERT_EQ(actor.hello_as(0), 0);  // it has started
  constexpr std::uint64_t net_admin = std::uint64_t{1} << CAP_NET_ADMIN;
  for (const char* line : {"CapPrm:", "CapEff:"})
    EXPECT_EQ(capabilities_of(actor.pid(), line), capabilities_of(::getpid(), line) & ~net_admin) << line;
  EXPECT_EQ(capabilities_of(actor.pid(), "CapInh:") & net_admin, 0u);
}

// --- control groups

struct GroupWorld {
  GroupWorld() { groups.open(); }
  // "": groups can be made here.
  std::string unusable() const {
    if (::geteuid() != 0) return "only root makes groups anywhere";
    if (groups.hierarchy().empty()) return "no unified hierarchy is mounted";
    const std::string probe = groups.hierarchy() + "/" + group_name() + "-probe";
    if (::mkdir(probe.c_str(), 0755) != 0) return std::string("no group can be made: ") + std::strerror(errno);
    ::rmdir(probe.c_str());
    return {};
  }
  proc::ProcRoot root = *proc::ProcRoot::open();
  Groups groups{root, group_name()};
};
#define NEEDS_GROUPS(world) \
  if (const std::string why = (world).unusable(); !why.empty()) GTEST_SKIP() << why

TEST(Groups, HoldWhatTheProgramForksAndGoWhenEmpty) {
  GroupWorld world;
  NEEDS_GROUPS(world);
  std::string path;
  {
    const Kept kept(ana);
    const Groups::Place place = world.groups.place(LeaseId{7}, kept.main(), kept.main_pidfd.get(), true);
    ASSERT_TRUE(place.group) << place.why_not;
    path = place.group->ref.path;
    const auto inside = proc::processes_in(place.group->ref);
    ASSERT_TRUE(inside);
    EXPECT_EQ(inside->pids, std::vector<std::int32_t>{kept.main()});
    world.groups.leave(*place.group);
    EXPECT_TRUE(std::filesystem::exists(path)) << "not while somebody is in it";
    // A later run finds the group, and finds the program in it.
    Groups later(world.root, group_name());
    later.open();
    EXPECT_TRUE(later.left_behind(LeaseId{7}));
    const Groups::Place again = later.place(LeaseId{7}, kept.main(), kept.main_pidfd.get(), true);
    ASSERT_TRUE(again.group) << again.why_not;
    EXPECT_EQ(again.group->ref, place.group->ref);
    (void)proc::send_signal(kept.main_pidfd.get(), SIGKILL);
    ASSERT_TRUE(ends(kept.main_pidfd));
  }
  Groups last(world.root, group_name());
  last.open();  // removes empty groups
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(path).parent_path()));
}

TEST(Groups, PutALeaseBesideTheKeeperOfItsUnit) {
  GroupWorld world;
  NEEDS_GROUPS(world);
  const std::string unit = fmt::format("{}/{}-unit", world.groups.hierarchy(), group_name());
  ASSERT_EQ(::mkdir(unit.c_str(), 0755), 0);
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  {
    const proc::Child child([&] {
      std::ofstream(unit + "/cgroup.procs") << ::getpid() << std::flush;
      enter_keeper_group(world.root);
      (void)!::write(ready[1], "+", 1);
      return proc::sleep_for_ever();
    });
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    const Groups::Place place = world.groups.place(LeaseId{7}, child.pid(), pidfd_of(child.pid()).get(), true);
    EXPECT_TRUE(place.group) << place.why_not;
    const std::string path = place.group ? place.group->ref.path : "";
    EXPECT_EQ(path, fmt::format("{}/{}/lease-7", unit, group_name()));
    EXPECT_EQ(::rmdir((unit + "/sublet-keeper").c_str()), 0) << "the process was moved out of it";
  }
  for (const int end : ready) ::close(end);
  Groups(world.root, group_name()).open();  // removes empty groups
  EXPECT_EQ(::rmdir(unit.c_str()), 0);
}

TEST(Groups, OfSomebodyElseAreNotTaken) {
  GroupWorld world;
  NEEDS_GROUPS(world);
  const Kept kept(ana);
  const auto present = proc::cgroups_of(world.root, kept.main());
  ASSERT_TRUE(present);
  const std::string base = world.groups.hierarchy() + (present->v2 == "/" ? "" : present->v2) + "/" + group_name();
  ASSERT_EQ(::mkdir(base.c_str(), 0755), 0);
  ASSERT_EQ(::chown(base.c_str(), ana, ana), 0);
  const Groups::Place place = world.groups.place(LeaseId{7}, kept.main(), kept.main_pidfd.get(), true);
  EXPECT_FALSE(place.group);
  EXPECT_NE(place.why_not.find("another user"), std::string::npos) << place.why_not;
  EXPECT_EQ(proc::cgroups_of(world.root, kept.main())->v2, present->v2);
  std::filesystem::remove(base + "/lease-7");
  EXPECT_EQ(::rmdir(base.c_str()), 0);
}

TEST(Groups, OfANumberThatWasGivenBeforeAreNotShared) {
  GroupWorld world;
  NEEDS_GROUPS(world);
  const Kept old(ana), fresh(ana);
  const Groups::Place first = world.groups.place(LeaseId{7}, old.main(), old.main_pidfd.get(), true);
  ASSERT_TRUE(first.group) << first.why_not;
  const Groups::Place second = world.groups.place(LeaseId{7}, fresh.main(), fresh.main_pidfd.get(), true);
  EXPECT_FALSE(second.group);
  EXPECT_NE(second.why_not.find("holds other processes"), std::string::npos) << second.why_not;
  (void)proc::send_signal(old.main_pidfd.get(), SIGKILL);
  ASSERT_TRUE(ends(old.main_pidfd));
  world.groups.leave(*first.group);
}

}  // namespace
}  // namespace sublet::actor
