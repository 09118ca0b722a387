// SPDX-License-Identifier: Apache-2.0
#include "daemon/start_files.h"

#include "base/fd.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/file.h>
#include <cstdlib>
#include <fstream>

namespace sublet::daemon {
namespace {

namespace fs = std::filesystem;

struct StartFilesTest : ::testing::Test {
  fs::path dir = [] {
    std::string name = (fs::temp_directory_path() / "sublet-start-XXXXXX").string();
    return fs::path(::mkdtemp(name.data()));
  }();
  ~StartFilesTest() override { fs::remove_all(dir); }

  // Makes the files of a start in dir/home, which then succeeds or fails.
  void start(bool succeeds) const {
    StartFiles files;
    const fs::path state = dir / "home" / "state";
    files.note_directory(dir / "home");
    files.note_own(state);
    files.note_lock(state / "store.lock");
    files.note_own(dir / "home" / "env");
    fs::create_directories(state / "exits");
    for (const fs::path& file : {state / "store.db", state / "store.lock", dir / "home" / "env"}) std::ofstream{file};
    if (succeeds) files.keep();
  }
};

TEST_F(StartFilesTest, AreRemovedIfTheStartFails) {
  start(false);
  EXPECT_TRUE(fs::is_empty(dir));
}

TEST_F(StartFilesTest, StayIfTheStartSucceeds) {
  start(true);
  EXPECT_TRUE(fs::exists(dir / "home" / "state" / "store.db"));
  start(false);
  EXPECT_TRUE(fs::exists(dir / "home" / "state" / "store.db")) << "they were there before";
  EXPECT_TRUE(fs::exists(dir / "home" / "env"));
}

TEST_F(StartFilesTest, ADirectoryWithFilesOfOthersStays) {
  fs::create_directory(dir / "home");
  std::ofstream{dir / "home" / "sublet.toml"};
  start(false);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / "home"), {}), 1);
}

TEST_F(StartFilesTest, OfADaemonThatHoldsTheLockStay) {
  const fs::path lock = dir / "home" / "state" / "store.lock";
  Fd held;  // closed after the destructor of `files`
  {
    StartFiles files;
    files.note_own(lock.parent_path());
    files.note_lock(lock);
    fs::create_directories(lock.parent_path());
    held = Fd(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(::flock(held.get(), LOCK_EX | LOCK_NB), 0);
  }
  EXPECT_TRUE(fs::exists(lock));
}

}  // namespace
}  // namespace sublet::daemon
