// SPDX-License-Identifier: Apache-2.0
#include "share/files.h"

#include "wire/limit.h"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sublet::share {
namespace {

class FilesTest : public testing::Test {
 protected:
  FilesTest() : directory_(testing::TempDir() + "shares-" + std::to_string(::getpid())), files_(directory_) {
    std::filesystem::remove_all(directory_);
  }
  ~FilesTest() override { std::filesystem::remove_all(directory_); }

  static struct stat info_of(const Result<Fd>& file) {
    struct stat info {};
    EXPECT_TRUE(file) << file.error().detail;
    EXPECT_EQ(::fstat(file->get(), &info), 0);
    return info;
  }
  static sublet_share_page page_of(const Result<Fd>& file) {
    sublet_share_page page{};
    EXPECT_EQ(::pread(file->get(), &page, sizeof page, 0), static_cast<ssize_t>(sizeof page));
    return page;
  }
  bool exists(const std::string& name) const { return std::filesystem::exists(directory_ + "/" + name); }

  std::string directory_;
  Files files_;
};

TEST_F(FilesTest, APageIsMadeForItsOwnerAlone) {
  const auto file = files_.open({7}, 2);
  const auto info = info_of(file);
  EXPECT_EQ(info.st_size, static_cast<off_t>(sizeof(sublet_share_page)));
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  const auto page = page_of(file);
  EXPECT_EQ(page.size, sizeof page);
  EXPECT_EQ(page.abi, SUBLET_LIMIT_ABI);
  EXPECT_EQ(page.devices, 2U);
  struct stat folder {};
  ASSERT_EQ(::stat(directory_.c_str(), &folder), 0);
  EXPECT_EQ(folder.st_mode & 0777, 0700U);
}

TEST_F(FilesTest, ALeaseKeepsItsPageOverARestart) {
  const auto first = files_.open({7}, 1);
  const std::uint64_t paid = 42;
  ASSERT_EQ(::pwrite(first->get(), &paid, sizeof paid, offsetof(sublet_share_page, device)), 8);
  const auto second = Files(directory_).open({7}, 1);
  EXPECT_EQ(info_of(second).st_ino, info_of(first).st_ino);
  EXPECT_EQ(page_of(second).device[0].paid_until, 42U);
  EXPECT_NE(info_of(files_.open({8}, 1)).st_ino, info_of(first).st_ino);
}

// Processes of the lease write the page, so that its content and size may be anything.
TEST_F(FilesTest, ADamagedPageIsMadeAnew) {
  const auto first = files_.open({7}, 1);
  ASSERT_EQ(::ftruncate(first->get(), 100), 0);
  const auto second = files_.open({7}, 1);
  EXPECT_NE(info_of(second).st_ino, info_of(first).st_ino);
  const std::uint32_t wrong = 99;
  ASSERT_EQ(::pwrite(second->get(), &wrong, sizeof wrong, offsetof(sublet_share_page, abi)), 4);
  const auto third = files_.open({7}, 1);
  EXPECT_NE(info_of(third).st_ino, info_of(second).st_ino);
  EXPECT_EQ(page_of(third).abi, SUBLET_LIMIT_ABI);
  EXPECT_EQ(page_of(files_.open({7}, 2)).devices, 2U) << "another number of devices";
  std::filesystem::remove(directory_ + "/lease-7");
  std::filesystem::create_symlink("/dev/null", directory_ + "/lease-7");
  EXPECT_TRUE(S_ISREG(info_of(files_.open({7}, 1)).st_mode));
}

TEST_F(FilesTest, APageThatFillsTheFileSystemIsCut) {
  const auto file = files_.open({7}, 1);
  ASSERT_EQ(::ftruncate(file->get(), 1 << 20), 0);
  files_.mend({7});
  EXPECT_EQ(info_of(file).st_size, static_cast<off_t>(sizeof(sublet_share_page)));
  files_.mend({8});
  EXPECT_FALSE(exists("lease-8"));
}

TEST_F(FilesTest, PagesOfOthersAreRemoved) {
  files_.keep_only({});  // without a directory
  for (const std::uint64_t lease : {7, 8, 9}) ASSERT_TRUE(files_.open({lease}, 1));
  std::ofstream(directory_ + "/other") << "x";
  files_.keep_only({LeaseId{8}, LeaseId{10}});
  EXPECT_FALSE(exists("lease-7") || exists("lease-9") || exists("other"));
  EXPECT_TRUE(exists("lease-8"));
  files_.remove({8});
  EXPECT_FALSE(exists("lease-8"));
}

TEST_F(FilesTest, AFailureIsToldWithItsPath) {
  Files nowhere("/proc/nowhere");
  const auto file = nowhere.open({7}, 1);
  ASSERT_FALSE(file);
  EXPECT_NE(file.error().detail.find("/proc/nowhere"), std::string::npos);
}

}  // namespace
}  // namespace sublet::share
