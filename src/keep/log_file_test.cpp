// SPDX-License-Identifier: Apache-2.0
#include "keep/log_file.h"

#include "client/fake_server.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <csignal>
#include <filesystem>
#include <fstream>

namespace sublet::keep {
namespace {

using namespace std::chrono_literals;

constexpr Time noon{1'764'158'400'123'000'000};  // 2025-11-26T12:00:00.123Z
const std::string at_noon = "2025-11-26T12:00:00.123Z ";
const std::string at_noon_and_1s = "2025-11-26T12:00:01.123Z ";

std::string stored(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct LogFileTest : ::testing::Test {
  test::ScratchDir dir;
  std::string path = dir.path() + "/program-7.log";
  LogFile log(std::int64_t max_size = 1 << 20, int keep = 3) const { return LogFile({path, Bytes{max_size}, keep}); }
};

TEST_F(LogFileTest, EachLineHasTheTimeOfItsFirstByte) {
  const mode_t before = ::umask(077);
  LogFile file = log();
  file.write("one\ntw", noon);
  EXPECT_EQ(stored(path), at_noon + "one\n" + at_noon + "tw");
  file.write("o\n\nthree", noon + 1s);
  file.finish(noon + 1s);
  ::umask(before);
  EXPECT_EQ(stored(path), at_noon + "one\n" + at_noon + "two\n" + at_noon_and_1s + "\n" + at_noon_and_1s + "three\n");
  EXPECT_EQ(file.problem(), "");
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0640u);
}

TEST_F(LogFileTest, ContinuesAFileAndEndsTheLineOfAKilledKeeper) {
  log().write("unfinished", noon);
  log().write("next\n", noon + 1s);
  EXPECT_EQ(stored(path), at_noon + "unfinished\n" + at_noon_and_1s + "next\n");
}

// A program writes neither this separator nor a line without time, whatever it prints.
TEST_F(LogFileTest, TellsLinesOfTheKeeperFromThoseOfTheProgram) {
  LogFile file = log();
  const std::string mark = "2025-11-26T12:00:00.123Z\tstart 1: pid 7\n";
  file.mark("start 1: pid 7", noon);
  file.write(mark + mark + "no end", noon);
  file.mark("start 1 has ended:\nexit status 3", noon + 1s);
  EXPECT_EQ(stored(path), mark + at_noon + mark + at_noon + mark + at_noon + "no end\n" +
                              "2025-11-26T12:00:01.123Z\tstart 1 has ended:\\x0aexit status 3\n");
}

TEST_F(LogFileTest, SplitsALineWithoutNewlineAt16KiB) {
  LogFile file = log();
  const std::string full(16384, 'x');
  file.write(full + "\n" + full, noon);
  file.write("\n" + full + "y\n", noon);
  EXPECT_EQ(stored(path), at_noon + full + "\n" + at_noon + full + "\n" + at_noon + full + "\n" + at_noon + "y\n");
}

TEST_F(LogFileTest, RotatesBeforeAFileExceedsItsSize) {
  LogFile file = log(70, 2);  // two lines of 31 bytes
  for (const char* text : {"line1\n", "line2\n", "line3\n", "line4\n", "line5\n", "line6\n", "line7\n"})
    file.write(text, noon);
  EXPECT_EQ(stored(path), at_noon + "line7\n");
  EXPECT_EQ(stored(path + ".1"), at_noon + "line5\n" + at_noon + "line6\n");
  EXPECT_EQ(stored(path + ".2"), at_noon + "line3\n" + at_noon + "line4\n");
  EXPECT_FALSE(std::filesystem::exists(path + ".3"));
}

TEST_F(LogFileTest, NoFileIsEverLargerThanItsLimit) {
  LogFile file = log(1000, 50);
  std::string all;
  for (int i = 0; i < 300; ++i) {
    const std::string text(static_cast<std::size_t>(i * 7 % 90), 'a');
    file.write(text + (i % 5 == 0 ? "\n" : ""), noon);
    all += text;
  }
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
    const std::string text = stored(entry.path());
    EXPECT_LE(text.size(), 1000u) << entry.path();
    found += text;
  }
  EXPECT_EQ(std::count(found.begin(), found.end(), 'a'), std::count(all.begin(), all.end(), 'a'));
}

TEST_F(LogFileTest, RotatesWithinALineIfTheFileIsFull) {
  LogFile file = log(100, 1);
  file.write("a\n0123456789012345678901234567890123456789", noon);
  file.write("abcdefgh\n", noon + 1s);
  EXPECT_EQ(stored(path + ".1"), at_noon + "a\n" + at_noon + "0123456789012345678901234567890123456789\n");
  EXPECT_EQ(stored(path), at_noon_and_1s + "abcdefgh\n");
}

TEST_F(LogFileTest, RemovesAFullFileIfNoneIsKept) {
  LogFile file = log(70, 0);
  for (const char* text : {"line1\n", "line2\n", "line3\n"}) file.write(text, noon);
  EXPECT_EQ(stored(path), at_noon + "line3\n");
  EXPECT_FALSE(std::filesystem::exists(path + ".1"));
}

TEST_F(LogFileTest, WritesANewFileIfTheUserRemovedIt) {
  LogFile file = log();
  file.write("one\n", noon);
  std::filesystem::remove(path);
  file.write("two\n", noon);
  EXPECT_EQ(stored(path), at_noon + "two\n");
}

TEST_F(LogFileTest, ReportsLostBytesOnceWritingWorksAgain) {
  path = dir.path() + "/later/program-7.log";
  LogFile file = log();
  file.write("12345", noon);
  EXPECT_EQ(file.problem(), "cannot write " + path + ": No such file or directory");
  std::filesystem::create_directory(dir.path() + "/later");
  file.write("1234567\n", noon + 900ms);  // too early for another attempt
  EXPECT_NE(file.problem(), "");
  file.write("here\n", noon + 1s);
  EXPECT_EQ(file.problem(), "");
  EXPECT_EQ(stored(path), at_noon_and_1s + "sublet: 13 bytes of output were lost\n" + at_noon_and_1s + "here\n");
}

TEST_F(LogFileTest, ReportsLostBytesAtTheEndOfTheOutput) {
  path = dir.path() + "/later/program-7.log";
  LogFile file = log();
  file.write("12345", noon);
  std::filesystem::create_directory(dir.path() + "/later");
  file.finish(noon);
  EXPECT_EQ(stored(path), at_noon + "sublet: 5 bytes of output were lost\n");
}

TEST_F(LogFileTest, CountsWhatAFullDiskDidNotTake) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto action = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 50;
  LogFile file = log();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  file.write("0123456789\n0123456789\n", noon);  // 36 bytes for each line
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, action);
  EXPECT_EQ(file.problem(), "cannot write " + path + ": File too large");
  EXPECT_EQ(stored(path).size(), 50u);
  file.write("go\n", noon + 1s);
  EXPECT_EQ(stored(path), at_noon + "0123456789\n" + at_noon.substr(0, 14) + "\n" + at_noon_and_1s +
                              "sublet: 11 bytes of output were lost\n" + at_noon_and_1s + "go\n");
}

TEST_F(LogFileTest, NeverFollowsALink) {
  const std::string target = dir.path() + "/target";
  std::filesystem::create_symlink(target, path);
  LogFile file = log();
  file.write("text\n", noon);
  EXPECT_NE(file.problem(), "");
  EXPECT_FALSE(std::filesystem::exists(target));
}

TEST_F(LogFileTest, RefusesAPipe) {
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  LogFile file = log();
  file.write("text\n", noon);
  EXPECT_EQ(file.problem(), "cannot write " + path + ": it is not a regular file");
}

TEST_F(LogFileTest, LeavesTheRestOfTheDiskToOthers) {
  LogFile file({.path = path, .max_size = MiB, .keep = 3, .leave_free = Bytes{1LL << 60}});
  file.write("one\n", noon);
  EXPECT_EQ(stored(path), "");
  EXPECT_EQ(file.problem(), "cannot write " + path + ": less than 1048576 TiB are free on its disk");
}

TEST_F(LogFileTest, AUserHasOneLimitForAllLogs) {
  const std::string line(16000, 'x');
  LogFile file({.path = path, .max_size = 256 * KiB, .keep = 3, .user_max = 3 * MiB});
  const auto write_mib = [&] {
    for (int i = 0; i < 66; ++i) file.write(line + "\n", noon);
  };
  std::ofstream(dir.path() + "/other") << std::string(2 << 20, 'x');
  write_mib();
  EXPECT_EQ(file.problem(), "") << "the oldest of its own files were removed instead";
  std::ofstream(dir.path() + "/more") << std::string(2 << 20, 'x');
  write_mib(), write_mib();
  EXPECT_NE(file.problem().find("and guard.log_user_max is 3.0 MiB"), std::string::npos) << file.problem();
  std::filesystem::remove(dir.path() + "/more");
  file.write("again\n", noon + 2s);
  EXPECT_EQ(file.problem(), "");
  EXPECT_NE(stored(path).find("bytes of output were lost"), std::string::npos);
}

TEST_F(LogFileTest, TheOldestFilesOfAllProgramsOfTheUserAreRemoved) {
  const std::string old = dir.path() + "/program-3.log.2", newer = dir.path() + "/program-3.log.1";
  const std::string live = dir.path() + "/program-3.log", own = dir.path() + "/mine.log.1";
  for (const std::string& one : {old, newer, live, own}) std::ofstream(one) << std::string(1 << 20, 'x');
  const auto now = std::filesystem::last_write_time(newer);
  std::filesystem::last_write_time(old, now - 1h);
  LogFile file({.path = path, .max_size = 256 * KiB, .keep = 3, .user_max = 4 * MiB - 256 * KiB});
  file.write("one\n", noon);
  EXPECT_EQ(file.problem(), "");
  EXPECT_FALSE(std::filesystem::exists(old));
  for (const std::string& one : {newer, live, own}) EXPECT_TRUE(std::filesystem::exists(one)) << one;
  EXPECT_EQ(stored(path), at_noon + "one\n");
}

}  // namespace
}  // namespace sublet::keep
