// SPDX-License-Identifier: Apache-2.0
// Makes writes and syncs fail. Earlier acknowledged batches must be there afterwards, a failed batch must not be
// acknowledged, and the store must work again when the disk does.
#include "store/sqlite_store.h"
#include "store/test_support.h"

#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <sched.h>
#include <atomic>
#include <cerrno>
#include <csignal>

namespace {

// Counts calls of a kind and makes the n-th call fail; with `for_good` all later calls too.
struct Fault {
  std::atomic<int> error{0};
  std::atomic<long> calls{0};
  std::atomic<long> failing_call{0};  // 0: none
  std::atomic<bool> for_good{false};

  bool strikes() {
    const long call = ++calls;
    const long n = failing_call;
    if (n == 0 || call < n || (call > n && !for_good)) return false;
    errno = error;
    return true;
  }
  void arm(int with, long n, bool stays) {
    error = with;
    for_good = stays;
    calls = 0;
    failing_call = n;
  }
  void disarm() { failing_call = 0; }
};

Fault write_fault, sync_fault;

ssize_t faulty_write(int fd, const void* data, size_t size) {
  return write_fault.strikes() ? -1 : ::write(fd, data, size);
}

ssize_t faulty_pwrite(int fd, const void* data, size_t size, off_t offset) {
  return write_fault.strikes() ? -1 : ::pwrite(fd, data, size, offset);
}

template <typename Function>
void replace(const char* name, Function* function) {
  sqlite3_vfs* vfs = sqlite3_vfs_find("unix");
  // The build of SQLite decides which of the three functions it uses.
  if (vfs->xGetSystemCall(vfs, name) != nullptr) {
    vfs->xSetSystemCall(vfs, name, reinterpret_cast<sqlite3_syscall_ptr>(function));
  }
}

}  // namespace

// SQLite's calls of these functions reach the definitions here.
extern "C" int fdatasync(int fd) { return sync_fault.strikes() ? -1 : static_cast<int>(::syscall(SYS_fdatasync, fd)); }
extern "C" int fsync(int fd) { return sync_fault.strikes() ? -1 : static_cast<int>(::syscall(SYS_fsync, fd)); }

namespace sublet::store::test {
namespace {

class StoreFaults : public testing::Test {
 protected:
  void SetUp() override {
    replace("write", faulty_write);
    replace("pwrite", faulty_pwrite);
    replace("pwrite64", faulty_pwrite);
  }
  void TearDown() override {
    sqlite3_vfs* vfs = sqlite3_vfs_find("unix");
    vfs->xSetSystemCall(vfs, nullptr, nullptr);
  }

  // Opens a store with the fault armed and commits steps until one fails. Then repairs the disk and checks the content.
  // Returns whether the fault struck.
  static bool strike(Fault& fault, int error, long n, bool for_good) {
    constexpr std::uint64_t steps = 160;  // more than one checkpoint
    SCOPED_TRACE(fmt::format("errno {} at call {}{}", error, n, for_good ? " and after" : ""));
    TempDir dir;
    SqliteStore store(dir / "store.db");
    std::uint64_t told = 0, asked = 0;
    {
      News news;
      fault.arm(error, n, for_good);
      if (store.open(news.events())) {
        for (asked = 1; asked <= steps; ++asked) {
          const std::uint64_t sequence = store.intend(step(asked));
          if (asked % 3 != 0) continue;  // some alone, some in a group
          if (!news.wait_for(sequence)) break;
        }
        if (news.failure()) {
          EXPECT_NE(news.failure()->detail.find("free in"), std::string::npos);
        }
        told = news.committed();
      }
      fault.disarm();
      // The sequence equals the step: both count from 1.
      if (!news.failure() && asked > steps) store.close();
    }
    const bool struck = fault.calls >= n;
    News news;
    const auto loaded = store.open(news.events());
    EXPECT_TRUE(loaded) << loaded.error().detail;
    if (!loaded) return struck;
    const auto there = count_steps(store, *loaded);
    EXPECT_TRUE(there) << there.error().detail;
    if (!there) return struck;
    EXPECT_GE(*there, told);
    EXPECT_LE(*there, asked);
    EXPECT_TRUE(news.wait_for(store.intend(step(*there + 1))));
    return struck;
  }

  // Makes calls 1, 2, 3, … fail, in growing strides, until a run meets no fault.
  static void sweep(Fault& fault, int error, bool for_good) {
    int struck = 0;
    for (long n = 1; strike(fault, error, n, for_good); n += 1 + n / 4) ++struck;
    EXPECT_GE(struck, 12) << "the fault is not in the way of SQLite";
  }
};

TEST_F(StoreFaults, AWriteFailsOnce) { sweep(write_fault, EIO, false); }
TEST_F(StoreFaults, WritesFailFromThenOn) { sweep(write_fault, EIO, true); }
TEST_F(StoreFaults, TheDiskIsFull) { sweep(write_fault, ENOSPC, true); }
TEST_F(StoreFaults, ASyncFailsOnce) { sweep(sync_fault, EIO, false); }
TEST_F(StoreFaults, SyncsFailFromThenOn) { sweep(sync_fault, EIO, true); }

// Commits steps until the store fails. Returns "" with the last committed step in `told`, or a description of the
// fault.
std::string fill(SqliteStore& store, std::uint64_t& told, std::string_view expected) {
  News news;
  if (auto opened = store.open(news.events()); !opened) return "cannot open: " + opened.error().detail;
  std::uint64_t n = 1;
  while (n < 100'000 && news.wait_for(store.intend(step(n)))) ++n;
  told = news.committed();
  if (!news.failure()) return "the store never failed";
  const std::string said = news.failure()->detail;
  if (said.find(expected) == std::string::npos) return "unexpected words: " + said;
  if (said.find("free in") == std::string::npos) return "no free space named: " + said;
  if (told == 0) return "nothing was committed before";
  const auto read = ask(store, [](Reader& reader) { return reader.lease(LeaseId{1}); });
  return read ? "a failed store still answers" : "";
}

std::string expect_kept(SqliteStore& store, std::uint64_t told) {
  News news;
  const auto loaded = store.open(news.events());
  if (!loaded) return "cannot open again: " + loaded.error().detail;
  const auto steps = count_steps(store, *loaded);
  if (!steps) return steps.error().detail;
  if (*steps < told) return fmt::format("{} steps of {} acknowledged are there", *steps, told);
  return news.wait_for(store.intend(step(*steps + 1))) ? "" : "does not work again: " + news.failure()->detail;
}

TEST(StoreOnAFullDisk, FailsLoudlyAtAFileSizeLimit) {
  TempDir dir;
  const std::string said = in_child([&]() -> std::string {
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{600'000, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    SqliteStore store(dir / "store.db");
    std::uint64_t told = 0;
    if (std::string wrong = fill(store, told, "while writing"); !wrong.empty()) return wrong;
    ::setrlimit(RLIMIT_FSIZE, &before);
    return expect_kept(store, told);
  });
  EXPECT_EQ(said, "");
}

TEST(StoreOnAFullDisk, FailsLoudlyOnASmallFileSystem) {
  TempDir dir;
  const std::string path = dir.path().string();
  const std::string said = in_child([&]() -> std::string {
    if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("tmpfs", path.c_str(), "tmpfs", 0, "size=2m,mode=700") != 0) {
      return "skip";
    }
    SqliteStore store(dir / "store.db");
    std::uint64_t told = 0;
    if (std::string wrong = fill(store, told, "full"); !wrong.empty()) return wrong;
    if (::mount("tmpfs", path.c_str(), "tmpfs", MS_REMOUNT, "size=64m,mode=700") != 0) return "cannot remount";
    return expect_kept(store, told);
  });
  if (said == "skip") GTEST_SKIP() << "mounting a small file system needs root";
  EXPECT_EQ(said, "");
}

}  // namespace
}  // namespace sublet::store::test
