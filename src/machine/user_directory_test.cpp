// SPDX-License-Identifier: Apache-2.0
#include "machine/user_directory.h"

#include "proc/test_support.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace sublet::machine {
namespace {

namespace fs = std::filesystem;
constexpr uid_t daemon_uid = 54320, ana = 54321, ben = 54322;

// Whether the user succeeds. Runs in a child.
bool can(uid_t uid, const std::function<bool()>& act) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::umask(0077);
    const bool alone = ::setgroups(0, nullptr) == 0 && ::setresgid(uid, uid, uid) == 0;
    const bool became = alone && ::setresuid(uid, uid, uid) == 0;
    ::_exit(became && act() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool writes(const std::string& path) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  return file && ::write(file.get(), "yielded\n", 8) == 8;
}

bool reads(const std::string& path) { return static_cast<bool>(Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC))); }

// By the daemon of a package, which is no root, and by a daemon of root.
struct UserDirectory : testing::TestWithParam<uid_t> {
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    fs::permissions(dir.path(), fs::perms(0711));
    fs::create_directory(dir.path("exits"));
    ASSERT_EQ(::chown(exits.c_str(), GetParam(), GetParam()), 0);
    fs::permissions(exits, fs::perms(0711));
  }
  bool make(uid_t uid) {
    return can(GetParam(), [&] { return make_user_directory(exits, uid).has_value(); });
  }
  proc::TempDir dir;
  std::string exits = dir.path("exits");
};

TEST_P(UserDirectory, OnlyItsUserAndTheDaemonReachIt) {
  ASSERT_TRUE(make(ana)) << "does " << exits << " lie on a file system with access lists?";
  const std::string place = user_directory(exits, ana), file = place + "/lease-7-yield";
  EXPECT_TRUE(can(ana, [&] { return writes(file); }));
  EXPECT_TRUE(can(GetParam(), [&] { return reads(file); })) << "although the umask of the program is 077";
  EXPECT_FALSE(can(ben, [&] { return reads(file) || writes(file); }));
  EXPECT_FALSE(can(ben, [&] { return ::mkdir((place + "/lease-8-yield").c_str(), 0700) == 0; }));
  EXPECT_FALSE(can(ben, [&] { return ::symlink("/etc/passwd", (place + "/lease-8-yield").c_str()) == 0; }));
  EXPECT_FALSE(can(ben, [&] { return ::rename(place.c_str(), (exits + "/other").c_str()) == 0; }));
  ASSERT_TRUE(make(ana)) << "again";
  EXPECT_TRUE(can(GetParam(), [&] { return ::unlink(file.c_str()) == 0; }));
}

TEST_P(UserDirectory, TakesNoDirectoryOfAnotherUserAndNoLink) {
  fs::create_directory(user_directory(exits, ana));
  ASSERT_EQ(::chown(user_directory(exits, ana).c_str(), ben, ben), 0);
  EXPECT_FALSE(make(ana));
  fs::create_directory_symlink(dir.path(), user_directory(exits, ben));
  EXPECT_FALSE(make(ben));
}

INSTANTIATE_TEST_SUITE_P(Daemons, UserDirectory, testing::Values(daemon_uid, 0));

TEST(UserDirectoryOfAPrivateDaemon, BelongsToItsUser) {
  const proc::TempDir dir;
  ASSERT_TRUE(make_user_directory(dir.path(), ::geteuid()));
  struct stat about {};
  ASSERT_EQ(::stat(user_directory(dir.path(), ::geteuid()).c_str(), &about), 0);
  EXPECT_EQ(about.st_mode, S_IFDIR | 0700u);
}

}  // namespace
}  // namespace sublet::machine
