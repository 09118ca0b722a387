// SPDX-License-Identifier: Apache-2.0
#include "simgpu/table/table.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <thread>

namespace simgpu {
namespace {

constexpr std::uint64_t mib = 1 << 20;

class TableTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/simgpu-table-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    dir_ = name;
    std::string error;
    const auto spec = parse_spec("2x1GiB,reserve=0", &error);
    ASSERT_TRUE(spec) << error;
    table_ = Table::create(dir_, *spec, &error);
    ASSERT_TRUE(table_) << error;
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // Runs `body` in a new process with a table of its own and returns its pid. The process ends by _exit with body's
  // result.
  pid_t start(const std::function<int(Table&, Process&)>& body) const {
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    std::string error;
    auto table = Table::open(dir_, &error);
    Process* process = table ? table->join(&error) : nullptr;
    ::_exit(process ? body(*table, *process) : 99);
  }
  static int finish(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  std::string dir_;
  std::unique_ptr<Table> table_;
};

TEST(Spec, ReadsCountsSizesNamesAndSettings) {
  std::string error;
  const auto spec = parse_spec("2x24GiB,Blue,link_bandwidth=5GB+1x512MiB,reserve=16MiB", &error);
  ASSERT_TRUE(spec) << error;
  ASSERT_EQ(spec->devices.size(), 3u);
  EXPECT_EQ(spec->devices[0].name, "Simulated Blue");
  EXPECT_EQ(spec->devices[0].total, std::uint64_t{24} << 30);
  EXPECT_EQ(spec->devices[0].reserve, 614 * mib);
  EXPECT_EQ(spec->devices[2].name, "Simulated GPU 512MiB");
  EXPECT_EQ(spec->devices[2].reserve, 16 * mib);
  ASSERT_EQ(spec->settings.size(), 1u);
  EXPECT_EQ(spec->settings[0].second, 5'000'000'000u);
  for (const char* wrong : {"", "x", "2x", "0x1GiB", "1x1KiB", "2 x 1GiB", "1x1GiB,", "1x1GiB,colour=red",
                            "1x1GiB,copy_engines=3", "17x1GiB", "1x1GiB,reserve=1GiB", "-1x1GiB"})
    EXPECT_FALSE(parse_spec(wrong, &error)) << wrong;
}

TEST(Spec, ReadsSlicesAndUnifiedMemory) {
  std::string error;
  const auto spec = parse_spec("1x80GiB,mig=1g.10gb*4+3g.40gb+2x4GiB,unified+1x8GiB,mig=", &error);
  ASSERT_TRUE(spec) << error;
  ASSERT_EQ(spec->devices.size(), 4u);
  ASSERT_EQ(spec->devices[0].slices.size(), 5u);
  EXPECT_EQ(format_profile(spec->devices[0].slices[0]), "1g.10gb");
  EXPECT_EQ(spec->devices[0].slices[4], (Profile{3, std::uint64_t{40} << 30}));
  EXPECT_TRUE(spec->devices[1].unified && spec->devices[2].unified && !spec->devices[2].mig);
  EXPECT_TRUE(spec->devices[3].mig && spec->devices[3].slices.empty());
  for (const char* wrong :
       {"1x80GiB,mig=1g.10gb*8", "1x80GiB,mig=2g.50gb*2", "1x80GiB,mig=8g.80gb", "1x80GiB,mig=0g.1gb",
        "1x80GiB,mig=1g.0gb", "1x80GiB,mig=1g.10gb*0", "1x80GiB,mig=10gb", "1x80GiB,mig=1g.10gb*", "1x80GiB,mig=1g.gb",
        "1x80GiB,unified,mig=1g.10gb", "8x80GiB,mig=1g.10gb*5"})
    EXPECT_FALSE(parse_spec(wrong, &error)) << wrong;
}

TEST_F(TableTest, SlicesAreMadeAndDestroyed) {
  std::string error;
  EXPECT_FALSE(table_->create_slice(0, {1, std::uint64_t{1} << 30}, &error)) << "not in MIG mode";
  auto table = Table::create(dir_, *parse_spec("1x4GiB,mig=1g.1gb*2", &error), &error, true);
  ASSERT_TRUE(table) << error;
  EXPECT_EQ(table->device_count(), 1u);
  const auto slices = table->slices_of(0);
  ASSERT_EQ(slices.size(), 2u);
  EXPECT_FALSE(table->is_usable(0));
  EXPECT_TRUE(table->is_usable(slices[0]));
  EXPECT_EQ(table->parent_of(slices[1]), 0u);
  EXPECT_NE(table->uuid_text(slices[0]), table->uuid_text(slices[1]));
  EXPECT_FALSE(table->create_slice(0, {1, std::uint64_t{3} << 30}, &error));
  EXPECT_NE(error.find("too little"), std::string::npos);
  const std::string uuid = table->uuid_text(slices[0]);
  table->destroy_slice(slices[0]);
  EXPECT_EQ(table->slices_of(0), std::vector{slices[1]});
  const auto again = table->create_slice(0, {1, std::uint64_t{1} << 30}, &error);
  ASSERT_TRUE(again) << error;
  EXPECT_EQ(table->uuid_text(*again), uuid);
  EXPECT_EQ(table->slices_of(0), (std::vector{*again, slices[1]})) << "in the order of their indices";
  table->set_mig_mode(0, false);
  EXPECT_TRUE(table->slices_of(0).empty());
  EXPECT_TRUE(table->is_usable(0));
}

TEST_F(TableTest, ASecondTableInTheSamePlaceIsRefused) {
  std::string error;
  EXPECT_FALSE(Table::create(dir_, *parse_spec("1x1GiB", &error), &error));
  EXPECT_NE(error.find("exists"), std::string::npos) << error;
}

TEST_F(TableTest, RefusesAFileOfAnotherLayout) {
  std::filesystem::resize_file(dir_ + "/cards", 100);
  std::string error;
  EXPECT_FALSE(Table::open(dir_, &error));
  EXPECT_NE(error.find("version"), std::string::npos) << error;
}

TEST_F(TableTest, IdentityOfCardsIsStable) {
  const auto uuid = table_->uuid_text(0);
  EXPECT_EQ(uuid.size(), 40u);
  EXPECT_NE(uuid, table_->uuid_text(1));
  std::string error;
  auto again = Table::create(dir_, *parse_spec("2x1GiB", &error), &error, true);
  ASSERT_TRUE(again) << error;
  EXPECT_EQ(again->uuid_text(0), uuid);
}

TEST_F(TableTest, ChargesUpToTheCardAndNoFurther) {
  Process* process = table_->join(nullptr);
  ASSERT_TRUE(process);
  EXPECT_TRUE(process->charge(0, 1000 * mib));
  EXPECT_FALSE(process->charge(0, 25 * mib));
  EXPECT_TRUE(process->charge(0, 24 * mib));
  EXPECT_EQ(table_->use(0).available(), 0u);
  EXPECT_EQ(table_->use(1).available(), 1024 * mib);
  process->discharge(0, 24 * mib);
  EXPECT_EQ(table_->use(0).used(), 1000 * mib);
}

TEST_F(TableTest, EveryProcessSeesEveryOther) {
  int ready[2], go[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(go), 0);
  const pid_t child = start([&](Table&, Process& process) {
    const bool good = process.charge(0, 600 * mib);
    char byte = 0;
    if (::write(ready[1], "x", 1) != 1 || ::read(go[0], &byte, 1) != 1) return 2;
    return good ? 0 : 1;
  });
  char byte;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  Process* mine = table_->join(nullptr);
  EXPECT_FALSE(mine->charge(0, 500 * mib));
  EXPECT_TRUE(mine->charge(0, 400 * mib));
  EXPECT_EQ(table_->processes().size(), 2u);
  ASSERT_EQ(::write(go[1], "x", 1), 1);
  EXPECT_EQ(finish(child), 0);
  EXPECT_EQ(table_->use(0).used(), 400 * mib);
  EXPECT_EQ(table_->processes().size(), 1u);
}

// Two processes request the last memory of a card at once: exactly one of them gets it.
TEST_F(TableTest, ExactlyOneOfTwoGetsTheLastMemory) {
  for (int round = 0; round < 50; ++round) {
    int go[2], end[2];
    ASSERT_EQ(::pipe(go), 0);
    ASSERT_EQ(::pipe(end), 0);
    int result[2];
    ASSERT_EQ(::pipe(result), 0);
    pid_t pids[2];
    for (auto& pid : pids)
      pid = start([&](Table&, Process& process) {
        char byte;
        ::close(end[1]);
        if (::read(go[0], &byte, 1) != 1) return 2;
        byte = process.charge(0, 700 * mib) ? 'y' : 'n';
        if (::write(result[1], &byte, 1) != 1) return 3;
        return ::read(end[0], &byte, 1) == 0 ? 0 : 4;
      });
    ::close(end[0]);
    ASSERT_EQ(::write(go[1], "xx", 2), 2);
    char answers[2];
    for (char& answer : answers) ASSERT_EQ(::read(result[0], &answer, 1), 1);
    EXPECT_NE(answers[0], answers[1]);
    ::close(end[1]);
    for (const pid_t pid : pids) EXPECT_EQ(finish(pid), 0);
    for (const int fd : {go[0], go[1], result[0], result[1]}) ::close(fd);
  }
}

// SUBLET_KILL_STORM sets the number of kills. No death at any moment may leave a byte behind.
TEST_F(TableTest, AStormOfSigkillsLeavesNothing) {
  const char* wanted = std::getenv("SUBLET_KILL_STORM");
  const int kills = wanted ? static_cast<int>(std::strtol(wanted, nullptr, 10)) : 300;
  std::mt19937 random(7);
  for (int i = 0; i < kills; ++i) {
    const pid_t pid = start([&](Table&, Process& process) {
      for (unsigned n = 0;; ++n) {
        if (process.charge(n % 2, (1 + n % 7) * mib)) process.discharge(n % 2, (1 + n % 7) * mib);
        if (n % 16 == 0 && process.charge(0, mib)) ::close(process.share(0, mib));
      }
      return 0;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    ::kill(pid, SIGKILL);
    EXPECT_EQ(finish(pid), 1000 + SIGKILL);
  }
  EXPECT_EQ(table_->use(0).used(), 0u);
  EXPECT_EQ(table_->use(1).used(), 0u);
  EXPECT_TRUE(table_->processes().empty());
}

TEST_F(TableTest, AZombieHoldsNothing) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t pid = start([&](Table&, Process& process) { return process.charge(0, mib) ? 0 : 1; });
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, pid, &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(table_->use(0).used(), 0u);
  EXPECT_EQ(finish(pid), 0);
}

TEST_F(TableTest, ExecFreesTheOldProgramsMemory) {
  int out[2];
  ASSERT_EQ(::pipe(out), 0);
  const pid_t pid = start([&](Table&, Process& process) {
    if (!process.charge(0, 100 * mib)) return 1;
    ::dup2(out[1], 1);
    ::close(out[0]);
    ::execl("/bin/sh", "sh", "-c", "echo; exec sleep 1000", nullptr);
    return 2;
  });
  char byte;
  ASSERT_EQ(::read(out[0], &byte, 1), 1);
  EXPECT_EQ(table_->use(0).used(), 0u);
  ::kill(pid, SIGKILL);
  EXPECT_EQ(finish(pid), 1000 + SIGKILL);
}

// A stopped process must not stop the others, whatever it was doing.
TEST_F(TableTest, AStoppedProcessBlocksNoOther) {
  for (int i = 0; i < 20; ++i) {
    const pid_t pid = start([&](Table&, Process& process) {
      for (;;)
        if (process.charge(0, mib)) process.discharge(0, mib);
      return 0;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(500 + 100 * i));
    ::kill(pid, SIGSTOP);
    int status;
    ::waitpid(pid, &status, WUNTRACED);
    Process* mine = table_->join(nullptr);
    EXPECT_TRUE(mine->charge(0, 1000 * mib));
    mine->discharge(0, 1000 * mib);
    ::kill(pid, SIGKILL);
    EXPECT_EQ(finish(pid), 1000 + SIGKILL);
  }
}

TEST_F(TableTest, AnExportLivesWhileItsFileIsHeld) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const pid_t pid = start([&](Table&, Process& process) {
    if (!process.charge(1, 64 * mib)) return 1;
    const int fd = process.share(1, 64 * mib);
    char byte = 'x';
    iovec part{&byte, 1};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    auto* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    *reinterpret_cast<int*>(CMSG_DATA(header)) = fd;
    return ::sendmsg(pair[1], &message, 0) == 1 ? 0 : 2;
  });
  EXPECT_EQ(finish(pid), 0);
  // The maker is dead, and only the socket holds its file.
  EXPECT_EQ(table_->use(1).exported, 64 * mib);
  EXPECT_EQ(table_->use(1).processes, 0u);
  ::close(pair[1]);
  ::close(pair[0]);
  EXPECT_EQ(table_->use(1).exported, 0u);
  EXPECT_TRUE(std::filesystem::is_empty(dir_ + "/shared"));
}

TEST_F(TableTest, IdentifiesItsOwnFilesOnly) {
  Process* process = table_->join(nullptr);
  ASSERT_TRUE(process->charge(0, 4 * mib));
  const int fd = process->share(0, 4 * mib);
  ASSERT_GE(fd, 0);
  const auto found = process->identify(fd);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->bytes, 4 * mib);
  EXPECT_FALSE(process->identify(0));
  ASSERT_EQ(table_->processes().size(), 1u);
  EXPECT_EQ(table_->processes()[0].device[0].bytes, 4 * mib);
  ::close(fd);
  EXPECT_EQ(table_->use(0).used(), 0u);
}

TEST_F(TableTest, CountsCallsAndViolationsByName) {
  table_->counter("cuInit").fetch_add(2);
  table_->violation("unmap under work");
  ASSERT_EQ(table_->calls().size(), 1u);
  EXPECT_EQ(table_->calls()[0].name, "cuInit");
  EXPECT_EQ(table_->calls()[0].count, 2u);
  EXPECT_EQ(table_->violations(), 1u);
  EXPECT_EQ(table_->violations_by_kind()[0].name, "unmap under work");
  table_->clear();
  EXPECT_TRUE(table_->calls().empty());
  EXPECT_EQ(table_->violations(), 0u);
}

TEST_F(TableTest, FaultsMatchByCardProcessAndCount) {
  std::string error;
  EXPECT_FALSE(table_->meet(FaultKind::alloc_fail, 0));
  Fault fault;
  fault.kind = FaultKind::alloc_fail;
  fault.device = 1;
  fault.nth = 2;
  ASSERT_TRUE(table_->set_fault(fault, &error)) << error;
  EXPECT_FALSE(table_->meet(FaultKind::alloc_fail, 0));
  EXPECT_FALSE(table_->meet(FaultKind::alloc_fail, 1));
  EXPECT_TRUE(table_->meet(FaultKind::alloc_fail, 1));
  EXPECT_FALSE(table_->meet(FaultKind::alloc_fail, 1));
  table_->clear_faults();
  fault = {};
  fault.kind = FaultKind::copy_fail;
  fault.pid = 1;
  ASSERT_TRUE(table_->set_fault(fault, &error));
  EXPECT_FALSE(table_->meet(FaultKind::copy_fail, 0));
  fault.kind = FaultKind::ecc;
  fault.device = 2;
  EXPECT_FALSE(table_->set_fault(fault, &error));
}

TEST_F(TableTest, EveryFaultOfTheClosedListHasAName) {
  EXPECT_EQ(faults().size(), static_cast<std::size_t>(FaultKind::count_));
  for (std::size_t i = 0; i < faults().size(); ++i) EXPECT_EQ(static_cast<std::size_t>(faults()[i].kind), i);
  EXPECT_EQ(settings().size(), static_cast<std::size_t>(Setting::count_));
  EXPECT_FALSE(fault_from_name("typo"));
}

}  // namespace
}  // namespace simgpu
