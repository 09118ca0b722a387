// SPDX-License-Identifier: Apache-2.0
#include "proc/process_table.h"

#include "proc/test_support.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <algorithm>
#include <random>
#include <thread>

namespace sublet::proc {
namespace {

std::string stat_line(int pid, const std::string& comm, char state, int ppid, std::uint64_t start, int threads = 1) {
  return fmt::format("{} ({}) {} {} {} {} 34816 500 4194304 1 2 3 4 5 6 7 8 20 0 {} 0 {} 1000 200 184467\n", pid, comm,
                     state, ppid, pid, 77, threads, start);
}

ProcRoot open_root(const std::string& path = "/proc") {
  auto root = ProcRoot::open(path);
  EXPECT_TRUE(root) << root.error().detail;
  return std::move(*root);
}

TEST(ParseStat, ReadsEveryField) {
  const auto info = parse_stat(stat_line(4711, "python3", 'S', 12, 987654321012ULL, 9));
  ASSERT_TRUE(info);
  EXPECT_EQ(info->ref, (ProcessRef{4711, 987654321012ULL}));
  EXPECT_EQ(info->ppid, 12);
  EXPECT_EQ(info->pgrp, 4711);
  EXPECT_EQ(info->session, 77);
  EXPECT_EQ(info->state, 'S');
  EXPECT_EQ(info->threads, 9);
  EXPECT_EQ(info->comm, "python3");
}

TEST(ParseStat, NamesMayImitateTheRestOfTheLine) {
  const auto info = parse_stat(stat_line(5, "a) Z 1 1 (b", 'R', 4, 10));
  ASSERT_TRUE(info);
  EXPECT_EQ(info->comm, "a) Z 1 1 (b");
  EXPECT_EQ(info->state, 'R');
  EXPECT_EQ(info->ppid, 4);
  const auto odd = parse_stat(stat_line(6, "x\n\x1b[31m", 'S', 1, 10));
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->comm, "x\\x0a\\x1b[31m");
}

TEST(ParseStat, RefusesWhatIsCutOrNoNumber) {
  const std::string whole = stat_line(4711, "python3", 'S', 12, 98765);
  const auto after_start = whole.find(" 98765") + 6;
  for (std::size_t length = 0; length + 5 < after_start; ++length) {
    EXPECT_FALSE(parse_stat(std::string_view(whole).substr(0, length))) << length;
  }
  EXPECT_TRUE(parse_stat(std::string_view(whole).substr(0, after_start)));
  EXPECT_FALSE(parse_stat("0 (x) S 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 5 0"));
  EXPECT_FALSE(parse_stat("x (x) S 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 5 0"));
  EXPECT_FALSE(parse_stat("7 (x) S 1 1 1 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 -5 0"));
}

TEST(ParseStat, SurvivesRandomBytes) {
  std::mt19937 random(20261121);
  const std::string whole = stat_line(4711, "python3", 'S', 12, 98765);
  for (int round = 0; round < 20000; ++round) {
    std::string text = whole;
    const int changes = 1 + static_cast<int>(random() % 8);
    for (int i = 0; i < changes; ++i) text[random() % text.size()] = static_cast<char>(random());
    const auto info = parse_stat(std::string_view(text).substr(0, random() % (text.size() + 1)));
    if (info) {
      EXPECT_GT(info->ref.pid, 0);
    }
  }
}

TEST(ProcessInfo, DeadIsWhoseLastThreadHasEnded) {
  ProcessInfo info;
  info.threads = 1;
  for (const char state : {'R', 'S', 'D', 'T', 't', 'I'}) {
    info.state = state;
    EXPECT_FALSE(info.dead()) << state;
  }
  for (const char state : {'Z', 'X'}) {
    info.state = state;
    EXPECT_TRUE(info.dead()) << state;
  }
  info.state = 'Z';
  info.threads = 3;
  EXPECT_FALSE(info.dead()) << "only the first thread has ended";
}

TEST(ProcRoot, ListsALiteralTree) {
  const TempDir tree;
  tree.write("1/stat", stat_line(1, "init", 'S', 0, 1));
  tree.write("20/stat", stat_line(20, "a b", 'R', 1, 5));
  tree.write("30/stat", "rubbish");  // cannot be parsed as a process
  tree.write("self/stat", stat_line(99, "no", 'R', 1, 5));
  tree.write("40x/stat", stat_line(40, "no", 'R', 1, 5));
  std::filesystem::create_directories(tree.path("50"));  // gone between the two reads
  const ProcRoot root = open_root(tree.path());
  for (int pass = 0; pass < 2; ++pass) {
    auto list = root.list();
    ASSERT_TRUE(list);
    std::sort(list->begin(), list->end(), [](const auto& a, const auto& b) { return a.ref < b.ref; });
    ASSERT_EQ(list->size(), 2u);
    EXPECT_EQ((*list)[0].ref, (ProcessRef{1, 1}));
    EXPECT_EQ((*list)[1].comm, "a b");
    EXPECT_EQ((*list)[1].uid, ::geteuid());
  }
  EXPECT_EQ(root.read(50).error().code, Code::NotFound);
  EXPECT_EQ(root.read(60).error().code, Code::NotFound);
  EXPECT_EQ(root.read(-1).error().code, Code::NotFound);
}

TEST(ProcRoot, MissingRootIsAnError) { EXPECT_FALSE(ProcRoot::open("/nowhere/at/all")); }

TEST(ProcRoot, CommandLinesArePrintableAndBounded) {
  const TempDir tree;
  tree.write("7/stat", stat_line(7, "kworker/0", 'I', 2, 1));
  tree.write("7/cmdline", "");
  tree.write("8/cmdline", std::string("python3\0-c\0x = 1\n\0\xc3\xa4\0", 22));
  tree.write("9/cmdline", std::string(10000, 'a'));
  tree.write("10/cmdline", std::string(10000, '\x01'));
  std::string umlauts;
  while (umlauts.size() < 6001) umlauts += "\xc3\xa4";
  tree.write("11/cmdline", umlauts);
  const ProcRoot root = open_root(tree.path());
  EXPECT_EQ(root.command_line(7), "[kworker/0]");
  EXPECT_EQ(root.command_line(8), "python3 -c x = 1\\x0a \xc3\xa4");
  EXPECT_EQ(root.command_line(9), fmt::format("{:a>4096}…", ""));
  EXPECT_EQ(root.command_line(10).size(), 4096 + std::string("…").size());
  EXPECT_EQ(root.command_line(11), fmt::format("{}…", umlauts.substr(0, 4096)));
  EXPECT_EQ(root.command_line(12), "");
}

TEST(ProcRoot, FindsThisProcessOnTheRealMachine) {
  const ProcRoot root = open_root();
  const auto list = root.list();
  ASSERT_TRUE(list);
  const auto self = std::find_if(list->begin(), list->end(), [](const auto& p) { return p.ref.pid == ::getpid(); });
  ASSERT_NE(self, list->end());
  EXPECT_EQ(self->ppid, ::getppid());
  EXPECT_EQ(self->pgrp, ::getpgrp());
  EXPECT_EQ(self->session, ::getsid(0));
  EXPECT_EQ(self->uid, ::geteuid());
  EXPECT_FALSE(self->dead());
  EXPECT_EQ(root.read(::getpid())->ref, self->ref);
  EXPECT_NE(root.command_line(::getpid()).find("proc_test"), std::string::npos);
  EXPECT_EQ(root.boot_id()->size(), 36u);
}

TEST(ProcRoot, ZombieIsDead) {
  const ProcRoot root = open_root();
  const Child child([] { return 0; });
  child.wait_for_end();
  const auto info = root.read(child.pid());
  ASSERT_TRUE(info);
  EXPECT_EQ(info->state, 'Z');
  EXPECT_TRUE(info->dead());
}

TEST(ProcRoot, ProcessWhoseFirstThreadEndedLives) {
  const ProcRoot root = open_root();
  const Child child([] {
    pthread_t thread{};
    ::pthread_create(
        &thread, nullptr,
        [](void*) -> void* {
          sleep_for_ever();
          return nullptr;
        },
        nullptr);
    ::syscall(SYS_exit, 0);  // ends only this thread
    return 1;
  });
  for (;;) {
    const auto info = root.read(child.pid());
    ASSERT_TRUE(info);
    if (info->state != 'Z') continue;  // the child is not a zombie yet
    EXPECT_FALSE(info->dead());
    break;
  }
}

TEST(Rights, AreReadAsTheKernelWritesThem) {
  const std::string good =
      "Name:\tx\nUid:\t1000\t1000\t1000\t1000\nGid:\t100\t100\t100\t100\nFDSize:\t64\nGroups:\t4 27 100 \nNStgid:\t1\n";
  const auto rights = parse_rights(good);
  ASSERT_TRUE(rights);
  EXPECT_EQ(rights->uids[3], 1000u);
  EXPECT_EQ(rights->gids[0], 100u);
  EXPECT_EQ(rights->groups, (std::vector<std::uint32_t>{4, 27, 100}));
  EXPECT_TRUE(rights->plain());
  const auto with = [&](const std::string& from, const std::string& to) {
    return parse_rights(std::string(good).replace(good.find(from), from.size(), to));
  };
  EXPECT_TRUE(with("Groups:\t4 27 100 \n", "Groups:\t\n")->groups.empty());
  EXPECT_FALSE(with("1000\t1000\nGid", "1000\t1001\nGid")->plain()) << "the file system's user";
  EXPECT_FALSE(with("100\t100\t100\nFD", "101\t100\t100\nFD")->plain());
  EXPECT_FALSE(with("1000\t1000\nGid", "1000\nGid")) << "three numbers";
  EXPECT_FALSE(with("27 100 \nNStgid:\t1\n", "27 1")) << "cut off";
  EXPECT_FALSE(with("4 27", "4 x27"));
  EXPECT_FALSE(with("4 27", "4 99999999999"));
  EXPECT_FALSE(with("Uid:", "Vid:"));
  EXPECT_TRUE(parse_rights(open_root().read_with(::getpid(), "status")->text)->plain());
}

TEST(ProcRoot, OwnerOfAFileTellsWhatMayBeTraced) {
  const ProcRoot root = open_root();
  const std::string own = fmt::format("{}/environ", ::getpid());
  EXPECT_EQ(root.owner_of(own), ::geteuid());
  EXPECT_FALSE(root.owner_of("0/environ"));
}

TEST(ProcRoot, OneThatIsEndingHasNoMemory) {
  const ProcRoot root = open_root();
  EXPECT_TRUE(root.has_memory(::getpid()));
  const Child zombie([] { return 0; });
  zombie.wait_for_end();
  EXPECT_FALSE(root.has_memory(zombie.pid()));
  // The other thread still runs and has all resources of the process.
  const Child headless([] {
    std::thread([] { sleep_for_ever(); }).detach();
    return static_cast<int>(::syscall(SYS_exit, 0));
  });
  while (root.read_file(fmt::format("{}/status", headless.pid()))->find("State:\tZ") == std::string::npos) {
  }
  EXPECT_TRUE(root.has_memory(headless.pid()));
  if (::geteuid() != 0) GTEST_SKIP() << "needs root for a process that stays so";
  const Ending ending;
  EXPECT_FALSE(root.has_memory(ending.pid()));
  EXPECT_TRUE(root.read(ending.pid()));
}

TEST(ProcRoot, OwnerIsKnownOfProcessesThatMayNotBeDumped) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const Fd from(ready[0]);
  Fd to(ready[1]);
  const Child child([&] {
    if (::setresuid(1234, 1234, 1234) != 0) return 1;
    ::prctl(PR_SET_DUMPABLE, 0);
    if (::write(to.get(), "x", 1) != 1) return 1;
    return sleep_for_ever();
  });
  to.reset();
  char byte = 0;
  ASSERT_EQ(::read(from.get(), &byte, 1), 1);
  EXPECT_EQ(open_root().read(child.pid())->uid, 1234u);
}

}  // namespace
}  // namespace sublet::proc
