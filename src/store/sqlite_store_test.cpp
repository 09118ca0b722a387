// SPDX-License-Identifier: Apache-2.0
// The files of the SQLite store: permissions, the lock, and unexpected or damaged files.
#include "store/sqlite_store.h"

#include "store/sqlite.h"
#include "store/test_support.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

namespace sublet::store::test {
namespace {

namespace fs = std::filesystem;

class SqliteFiles : public testing::Test {
 protected:
  // Makes a store with `steps` steps and closes it.
  void make_store(std::uint64_t steps = 3) {
    SqliteStore store(path_);
    News news;
    ASSERT_TRUE(store.open(news.events()));
    for (std::uint64_t n = 1; n <= steps; ++n) store.intend(step(n));
  }
  // Opens the store. Returns the number of steps in it, or the error.
  Result<std::uint64_t> steps() {
    SqliteStore store(path_);
    News news;
    const auto loaded = store.open(news.events());
    if (!loaded) return loaded.error();
    return count_steps(store, *loaded);
  }
  std::string error() {
    const auto opened = steps();
    return opened ? "opened" : opened.error().detail;
  }
  void change(const char* sql) {
    auto database = Database::open(path_.string(), Database::Mode::existing);
    ASSERT_TRUE(database);
    ASSERT_TRUE((*database)->run(sql));
  }
  void write_at(std::streamoff offset, const std::string& bytes) {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(offset);
    file << bytes;
  }
  // Returns the names of the files that were set aside.
  std::vector<std::string> aside() {
    std::vector<std::string> names = names_in(path_.parent_path());
    std::erase_if(names, [](const std::string& name) { return !name.starts_with("store.db.corrupt-"); });
    return names;
  }
  void expect_set_aside() {
    const std::string original = read_file(path_);
    const auto opened = steps();
    ASSERT_FALSE(opened);
    ASSERT_EQ(aside().size(), 1U);
    const fs::path moved = path_.parent_path() / aside().front();
    EXPECT_NE(opened.error().detail.find(moved.string()), std::string::npos) << opened.error().detail;
    EXPECT_NE(opened.error().hint.find("move"), std::string::npos) << opened.error().hint;
    EXPECT_EQ(read_file(moved), original) << "what was set aside must be as it was found";
    EXPECT_FALSE(fs::exists(path_));
  }

  TempDir dir_;
  fs::path path_ = dir_ / "state" / "store.db";
};

mode_t mode_of(const fs::path& path) {
  struct stat status {};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

TEST_F(SqliteFiles, AreTheirOwnersAlone) {
  const mode_t before = ::umask(0);
  SqliteStore store(path_);
  News news;
  ASSERT_TRUE(store.open(news.events()));
  ASSERT_TRUE(news.wait_for(store.intend(step(1))));
  ::umask(before);
  EXPECT_EQ(mode_of(path_.parent_path()), 0700U);
  const std::vector<std::string> expected{"store.db", "store.db-wal", "store.lock"};
  EXPECT_EQ(names_in(path_.parent_path()), expected) << "no shared memory file: there is one connection";
  for (const std::string& name : expected) EXPECT_EQ(mode_of(path_.parent_path() / name), 0600U) << name;
}

TEST_F(SqliteFiles, AreInheritedByNoChild) {
  SqliteStore store(path_);
  News news;
  ASSERT_TRUE(store.open(news.events()));
  ASSERT_TRUE(news.wait_for(store.intend(step(1))));
  int ours = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const fs::path target = fs::read_symlink(entry.path(), gone);
    if (gone || !target.string().starts_with(dir_.path().string())) continue;
    ++ours;
    const int fd = std::stoi(entry.path().filename().string());
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0) << target;
  }
  EXPECT_EQ(ours, 3) << "database, log and lock";
}

TEST_F(SqliteFiles, LeaveNoLogBehindWhenClosed) {
  make_store();
  EXPECT_EQ(names_in(path_.parent_path()), (std::vector<std::string>{"store.db", "store.lock"}));
  EXPECT_EQ(*steps(), 3U);
}

TEST_F(SqliteFiles, ASecondDaemonIsRefusedAndToldTheFirst) {
  int ready[2], done[2];
  ASSERT_EQ(::pipe(ready), 0);
  ASSERT_EQ(::pipe(done), 0);
  const pid_t first = ::fork();
  if (first == 0) {
    ::close(done[1]);
    SqliteStore store(path_);
    const char said = store.open({}) ? 'y' : 'n';
    char byte = 0;
    (void)!::write(ready[1], &said, 1);
    (void)!::read(done[0], &byte, 1);  // waits until the parent closes its end
    ::_exit(0);
  }
  char said = 0;
  ASSERT_EQ(::read(ready[0], &said, 1), 1);
  ASSERT_EQ(said, 'y');
  SqliteStore second(path_);
  const auto refused = second.open({});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::InUse);
  EXPECT_NE(refused.error().detail.find(fmt::format("pid {}", first)), std::string::npos) << refused.error().detail;
  EXPECT_NE(refused.error().detail.find(path_.string()), std::string::npos);
  ::close(done[1]);
  int status = 0;
  ::waitpid(first, &status, 0);
  for (const int fd : {ready[0], ready[1], done[0]}) ::close(fd);
  EXPECT_TRUE(second.open({})) << "free as soon as the first is gone";
  SqliteStore third(path_);
  EXPECT_FALSE(third.open({}));
  second.close();
  EXPECT_TRUE(third.open({}));
}

TEST_F(SqliteFiles, ADirectoryThatOthersMayWriteIsRefused) {
  fs::create_directory(path_.parent_path());
  fs::permissions(path_.parent_path(), fs::perms::all);
  EXPECT_NE(error().find("other users may write"), std::string::npos);
  EXPECT_TRUE(names_in(path_.parent_path()).empty());
}

TEST_F(SqliteFiles, ALinkInPlaceOfTheStoreIsRefused) {
  make_store();
  fs::rename(path_, dir_ / "elsewhere.db");
  fs::create_symlink(dir_ / "elsewhere.db", path_);
  EXPECT_NE(error().find("not a plain file"), std::string::npos);
}

TEST_F(SqliteFiles, ABrokenHeaderIsSetAside) {
  make_store();
  write_at(0, "no database");
  expect_set_aside();
}

TEST_F(SqliteFiles, AnEmptyFileIsSetAside) {
  make_store();
  fs::resize_file(path_, 0);
  expect_set_aside();
}

TEST_F(SqliteFiles, ATruncatedFileIsSetAside) {
  make_store(50);
  fs::resize_file(path_, fs::file_size(path_) / 2);
  expect_set_aside();
}

TEST_F(SqliteFiles, ADamagedPageIsSetAside) {
  make_store(50);
  // The tables start at page 2. The check must notice a damaged page header.
  write_at(4096, std::string(512, '\xff'));
  expect_set_aside();
}

TEST_F(SqliteFiles, AWordThatIsNoneOfOursIsSetAside) {
  make_store();
  change("UPDATE leases SET document = json_set(document, '$.state', 'dreaming') WHERE id = 1002");
  expect_set_aside();
}

TEST_F(SqliteFiles, ANumberOutOfRangeIsSetAside) {
  make_store();
  change("UPDATE leases SET document = json_set(document, '$.vram_bytes', -1) WHERE id = 1002");
  expect_set_aside();
}

TEST_F(SqliteFiles, ACorruptStoreStaysAnErrorUntilItIsMovedAway) {
  make_store();
  write_at(0, "no database");
  const std::string first = error();
  ASSERT_EQ(aside().size(), 1U);
  const fs::path moved = path_.parent_path() / aside().front();
  for (int restart = 0; restart < 2; ++restart) {
    const auto opened = steps();
    ASSERT_FALSE(opened) << "a restart must not make it an empty store";
    EXPECT_NE(opened.error().detail.find(moved.string()), std::string::npos) << opened.error().detail;
    EXPECT_FALSE(fs::exists(path_));
  }
  fs::rename(moved, dir_ / "kept.db");
  const auto fresh = steps();
  ASSERT_TRUE(fresh) << fresh.error().detail;
  EXPECT_EQ(*fresh, 0U);
}

TEST_F(SqliteFiles, AGoodCopyPutBackIsOpened) {
  make_store();
  fs::copy_file(path_, dir_ / "copy.db");
  write_at(0, "no database");
  ASSERT_FALSE(steps());
  fs::copy_file(dir_ / "copy.db", path_);
  EXPECT_EQ(*steps(), 3U);
}

TEST_F(SqliteFiles, ALogWithoutItsDatabaseIsRefused) {
  make_store();
  fs::remove(path_);
  std::ofstream(path_.string() + "-wal") << "something";
  EXPECT_NE(error().find("store.db-wal"), std::string::npos) << error();
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(SqliteFiles, ACommitWaitsForOneReadAtMost) {
  SqliteStore store(path_);
  News news;
  ASSERT_TRUE(store.open(news.events()));
  struct Gate {
    std::promise<void> reached, open;
    void pass() { reached.set_value(), open.get_future().wait(); }
  } gate, first;
  std::promise<std::uint64_t> second;
  store.read([&](Reader&) { gate.pass(); });
  gate.reached.get_future().wait();
  store.read([&](Reader&) { first.pass(); });
  store.read([&](Reader&) { second.set_value(news.committed()); });
  gate.open.set_value();
  first.reached.get_future().wait();
  const std::uint64_t sequence = store.intend(step(1));
  first.open.set_value();
  EXPECT_EQ(second.get_future().get(), sequence) << "asked for before the batch, and told what it changed";
}

TEST_F(SqliteFiles, DamageMetWhileRunningSetsTheStoreAside) {
  make_store();
  SqliteStore store(path_);
  News news;
  ASSERT_TRUE(store.open(news.events()));
  // An ended lease is not loaded at the start, so only the read meets the damage.
  store.intend({.changed = {ended_lease(500, {5})}, .now = {5}});
  store.close();
  change("UPDATE leases SET document = json_set(document, '$.tier', 'golden') WHERE id = 500");
  ASSERT_TRUE(store.open(news.events()));
  const auto read = ask(store, [](Reader& reader) { return reader.lease(LeaseId{500}); });
  EXPECT_FALSE(read);
  const std::uint64_t late = store.intend(step(4));
  EXPECT_FALSE(news.wait_for(late + 1)) << "never numbered: returns with the failure";
  ASSERT_TRUE(news.failure());
  EXPECT_NE(news.failure()->detail.find("was renamed to"), std::string::npos) << news.failure()->detail;
  EXPECT_FALSE(aside().empty());
  EXPECT_FALSE(store.open(news.events()));
}

TEST_F(SqliteFiles, ANewerStoreIsRefusedAndNotTouched) {
  make_store();
  change("PRAGMA user_version = 4711");
  const std::string before = read_file(path_);
  const std::string said = error();
  EXPECT_NE(said.find("version 4711"), std::string::npos) << said;
  EXPECT_EQ(read_file(path_), before);
  EXPECT_TRUE(aside().empty());
}

TEST_F(SqliteFiles, AnotherProgramsDatabaseIsRefusedAndNotTouched) {
  fs::create_directory(path_.parent_path());
  fs::permissions(path_.parent_path(), fs::perms::owner_all);
  {
    auto database = Database::open(path_.string(), Database::Mode::create);
    ASSERT_TRUE(database);
    ASSERT_TRUE((*database)->run("CREATE TABLE recipes (name TEXT)"));
  }
  const std::string before = read_file(path_);
  EXPECT_NE(error().find("another program"), std::string::npos) << error();
  EXPECT_EQ(read_file(path_), before);
  EXPECT_TRUE(aside().empty());
}

TEST_F(SqliteFiles, AHalfMadeStoreIsMadeAnew) {
  fs::create_directory(path_.parent_path());
  fs::permissions(path_.parent_path(), fs::perms::owner_all);
  std::ofstream(path_.string() + ".new") << "half";
  EXPECT_EQ(*steps(), 0U);
  EXPECT_EQ(names_in(path_.parent_path()), (std::vector<std::string>{"store.db", "store.lock"}));
}

// Damages every byte of a small store in turn, in strides. The store must open unchanged, be set aside, or be refused.
// It must never look empty, and the program must never crash.
TEST_F(SqliteFiles, NoDamagedByteMakesTheStoreEmpty) {
  make_store(5);
  const std::string good = read_file(path_);
  int refused = 0;
  for (std::size_t offset = 0; offset < good.size(); offset += offset < 128 ? 1 : 797) {
    std::string bad = good;
    bad[offset] = static_cast<char>(bad[offset] ^ 0x5a);
    {
      std::ofstream file(path_, std::ios::binary | std::ios::trunc);
      file << bad;
    }
    SqliteStore store(path_);
    News news;
    const auto loaded = store.open(news.events());
    if (loaded) {
      EXPECT_EQ(loaded->leases.size(), 6U) << "offset " << offset;
    } else {
      ++refused;
    }
    store.close();
    for (const std::string& name : aside()) fs::remove(path_.parent_path() / name);
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace sublet::store::test
