// SPDX-License-Identifier: Apache-2.0
// Keepers that the actor starts: their rights, the refusals, and the directories of their logs. The keeper here is a
// script. It reports itself, and writes its document and the /proc/self/status of its child to files.
#include "actor/keeper_start.h"

#include "actor/service.h"
#include "actor/test_support.h"
#include "base/accounts.h"
#include "proc/detached.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pwd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sstream>

namespace sublet::actor {
namespace {

constexpr const char* script =
    "#!/bin/sh\n"
    "cat <&3 >\"$0.document\"\n"
    "{ cat /proc/self/status; tr '\\0' '\\n' </proc/$$/environ; pwd; cat /proc/$$/oom_score_adj; } >\"$0.status\"\n"
    "ls /proc/$$/fd >\"$0.fds\"\n"
    "echo \"$$ 77\" >&4\n";

struct KeeperStart : ::testing::Test {
  KeeperStart() {
    ::chmod(dir.path().c_str(), 01777);
    dir.write("keep", script);
    ::chmod(dir.path("keep").c_str(), 0755);
  }
  static Fd document(const std::string& text = "the document") {
    auto made = proc::document_file(text);
    return made ? std::move(*made) : Fd();
  }
  Reply ask(const Order& order, Fd attached) {
    Service service(
        root,
        {.group_name = fmt::format("sublet-test-{}", ::getpid()), .client_pid = 0, .is_admin = {}, .keepers = options});
    std::vector<Fd> descriptors;
    if (attached) descriptors.push_back(std::move(attached));
    const Reply reply = service.answer(std::as_bytes(std::span(&order, 1)), std::move(descriptors), false);
    report = service.take_attachment();
    EXPECT_EQ(static_cast<bool>(report), reply.code == Code::ok);
    return reply;
  }
  Reply keep(std::uint32_t uid) { return ask({.verb = Verb::keep, .uid = uid}, document()); }
  // All that the keeper reports until it closes its end.
  std::string reported() const {
    std::string text;
    char buffer[512];
    for (pollfd entry{report.get(), POLLIN, 0}; ::poll(&entry, 1, 10'000) == 1;) {
      const ssize_t got = ::read(report.get(), buffer, sizeof buffer);
      if (got <= 0) return text;
      text.append(buffer, static_cast<std::size_t>(got));
    }
    return text + " and then nothing for ten seconds";
  }
  std::string written(const std::string& name) const {
    std::ifstream file(dir.path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  bool started() const { return std::filesystem::exists(dir.path("keep.status")); }

  proc::TempDir dir;
  proc::ProcRoot root = *proc::ProcRoot::open();
  KeeperOptions options{.program = dir.path("keep"), .logs = dir.path("logs"), .group = ::getegid(), .for_root = true};
  Fd report;
};

TEST_F(KeeperStart, OfTheOwnUserGetsItsDocumentAndLittleElse) {
  const Reply reply = keep(::geteuid());
  ASSERT_EQ(reply.code, Code::ok) << reply.path;
  const std::string line = reported();
  const auto process = proc::parse_report(line);
  ASSERT_TRUE(process) << line;
  EXPECT_EQ(process->start_ticks, 77u);
  EXPECT_NE(process->pid, ::getpid());
  EXPECT_EQ(written("keep.document"), "the document");
  const std::string status = written("keep.status");
  EXPECT_NE(status.find("\nUmask:\t0022\n"), std::string::npos);
  EXPECT_NE(status.find("\nSigIgn:\t0000000000000000\n"), std::string::npos);
  EXPECT_NE(status.find("\nSigBlk:\t0000000000000000\n"), std::string::npos);
  EXPECT_NE(status.find("\nPATH=/usr/local/bin:/usr/bin:/bin\n"), std::string::npos);
  EXPECT_TRUE(status.ends_with("\n/\n0\n")) << "the root directory, and no protection from the out-of-memory killer";
  std::istringstream open(written("keep.fds"));
  for (std::string number; open >> number;) EXPECT_TRUE(std::stoi(number) <= 4 || std::stoi(number) >= 10) << number;
}

TEST_F(KeeperStart, OfAnotherUserHasItsAccountsGroupsAndNoCapability) {
  NEEDS_ROOT();
  const passwd* account = ::getpwnam("daemon");
  if (account == nullptr) GTEST_SKIP() << "there is no account to become";
  const uid_t uid = account->pw_uid;
  const gid_t gid = account->pw_gid;
  ASSERT_EQ(keep(uid).code, Code::ok);
  const std::string line = reported();
  ASSERT_TRUE(proc::parse_report(line)) << line;
  const std::string status = written("keep.status");
  const auto rights = proc::parse_rights(status);
  ASSERT_TRUE(rights);
  EXPECT_EQ(rights->uids, (std::array<std::uint32_t, 4>{uid, uid, uid, uid}));
  EXPECT_EQ(rights->gids, (std::array<std::uint32_t, 4>{gid, gid, gid, gid}));
  const auto groups = groups_of_account(uid);
  ASSERT_TRUE(groups);
  for (const std::uint32_t group : rights->groups) EXPECT_TRUE(std::count(groups->begin(), groups->end(), group));
  for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapAmb"})
    EXPECT_NE(status.find(fmt::format("\n{}:\t0000000000000000\n", set)), std::string::npos) << set;
}

TEST_F(KeeperStart, OfAUidWithoutAccountIsRefusedInTheReport) {
  NEEDS_ROOT();
  ASSERT_EQ(keep(ana).code, Code::ok) << "nobody waits for the account database";
  const auto process = proc::parse_report(reported());
  ASSERT_FALSE(process);
  EXPECT_EQ(process.error().detail, "uid 54321 has no account");
  EXPECT_FALSE(started());
}

TEST_F(KeeperStart, ReportsAProgramThatCannotBeStarted) {
  options.program = dir.path("missing");
  ASSERT_EQ(keep(::geteuid()).code, Code::ok);
  EXPECT_EQ(reported(),
            fmt::format("failed: cannot start its keeper: {}: No such file or directory\n", options.program));
}

TEST_F(KeeperStart, IsNoChildOfTheActor) {
  ASSERT_EQ(keep(::geteuid()).code, Code::ok);
  const auto process = proc::parse_report(reported());
  ASSERT_TRUE(process);
  EXPECT_EQ(::waitpid(process->pid, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST_F(KeeperStart, IsRefusedForUidsOfNobodyAndForForeignUsersWithoutRights) {
  for (const std::uint32_t uid : {65534u, 0xffffffffu}) EXPECT_EQ(keep(uid).code, Code::denied) << uid;
  options.for_root = false;
  EXPECT_EQ(keep(0).code, Code::denied) << "for a daemon that is not root";
  const StartedKeeper foreign = start_keeper(options, ana, document(), false);
  EXPECT_EQ(foreign.code, Code::denied);
  EXPECT_EQ(foreign.why, "the actor may not become uid 54321");
  options.for_root = true;
  options.program.clear();
  const Reply reply = keep(::geteuid());
  EXPECT_EQ(reply.code, Code::failed);
  EXPECT_STREQ(reply.path, "sublet-keep is not in the directory of sublet-actor");
  options.program = dir.path("keep");
  options.logs.clear();
  EXPECT_STREQ(keep(::geteuid()).path, "sublet-actor runs without --logs");
  EXPECT_FALSE(started());
}

TEST_F(KeeperStart, IsRefusedWithoutASealedDocument) {
  const std::uint32_t uid = ::geteuid();
  EXPECT_EQ(ask({.verb = Verb::keep, .uid = uid}, Fd()).code, Code::descriptors);
  EXPECT_EQ(ask({.verb = Verb::keep, .uid = uid}, Fd(::open("/dev/null", O_RDWR))).code, Code::descriptors);
  Fd open(::memfd_create("open", MFD_ALLOW_SEALING));
  ASSERT_EQ(::fcntl(open.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_EQ(ask({.verb = Verb::keep, .uid = uid}, std::move(open)).code, Code::descriptors);
  EXPECT_FALSE(started());
}

TEST_F(KeeperStart, IsRefusedIfTheOrderIsMalformedOrAUsers) {
  const std::uint32_t uid = ::geteuid();
  EXPECT_EQ(ask({.verb = Verb::keep, .lease = 7, .uid = uid}, document()).code, Code::malformed);
  EXPECT_EQ(ask({.verb = Verb::keep, .uid = uid, .flags = 1}, document()).code, Code::malformed);
  EXPECT_EQ(ask({.verb = Verb::keep, .uid = uid, .main_pid = 7}, document()).code, Code::malformed);
  EXPECT_EQ(ask({.verb = Verb::keep, .uid = uid, .signal = 9}, document()).code, Code::malformed);
  EXPECT_EQ(ask({.verb = Verb::keep, .asked_by = ana, .uid = ana}, document()).code, Code::denied);
  EXPECT_FALSE(started());
}

// --- directories of logs

struct stat info_of(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0) << path;
  return info;
}

TEST_F(KeeperStart, MakesTheDirectoryOfItsLogs) {
  for (int i = 0; i < 2; ++i) {
    const Reply reply = keep(::geteuid());
    ASSERT_EQ(reply.code, Code::ok) << reply.path;
    const struct stat info = info_of(fmt::format("{}/{}", options.logs, ::geteuid()));
    EXPECT_EQ(info.st_mode, S_IFDIR | 02770u);
    EXPECT_EQ(info.st_gid, options.group);
    reported();
  }
  EXPECT_EQ(info_of(options.logs).st_mode & 07777, 0711u);
}

TEST_F(KeeperStart, GivesTheDirectoryToTheUserAndTheDaemonsGroup) {
  NEEDS_ROOT();
  const std::string logs = dir.path("logs"), path = logs + "/54321";
  ASSERT_EQ(make_log_directory(logs, ana, 54400), "");
  EXPECT_EQ(info_of(path).st_uid, ana);
  EXPECT_EQ(info_of(path).st_gid, 54400u);
  EXPECT_EQ(info_of(path).st_mode, S_IFDIR | 02770u);
  ASSERT_EQ(::chmod(path.c_str(), 0700), 0);
  EXPECT_EQ(make_log_directory(logs, ana, 54400), "");
  EXPECT_EQ(info_of(path).st_mode, S_IFDIR | 0700u) << "the user decides";
  ASSERT_EQ(::chown(path.c_str(), ben, 54400), 0);
  EXPECT_EQ(make_log_directory(logs, ana, 54400), path + " belongs to uid 54322");
}

TEST_F(KeeperStart, FollowsNoLinkToADirectoryOfLogs) {
  const std::string logs = dir.path("logs"), path = fmt::format("{}/{}", logs, ::geteuid());
  std::filesystem::create_directory(dir.path("elsewhere"));
  std::filesystem::create_directory(logs);
  ASSERT_EQ(::chmod(dir.path("elsewhere").c_str(), 0700), 0);
  ASSERT_EQ(::chmod(logs.c_str(), 0755), 0);
  std::filesystem::create_directory_symlink(dir.path("elsewhere"), path);
  EXPECT_EQ(make_log_directory(logs, ::geteuid(), ::getegid()), "cannot open " + path + ": Not a directory");
  EXPECT_EQ(info_of(dir.path("elsewhere")).st_mode, S_IFDIR | 0700u);
  std::filesystem::create_directory_symlink(logs, dir.path("link"));
  EXPECT_EQ(make_log_directory(dir.path("link"), ::geteuid(), ::getegid()),
            "cannot open " + dir.path("link") + ": Not a directory");
  ASSERT_EQ(::chmod(logs.c_str(), 0777), 0);
  EXPECT_EQ(make_log_directory(logs, ::geteuid(), ::getegid()), "other users may write to " + logs);
}

}  // namespace
}  // namespace sublet::actor
