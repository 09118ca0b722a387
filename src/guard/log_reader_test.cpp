// SPDX-License-Identifier: Apache-2.0
#include "guard/log_reader.h"

#include "proc/test_support.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <filesystem>
#include <fstream>

namespace sublet::guard {
namespace {

using namespace std::chrono_literals;

constexpr Time noon{1'764'158'400'000'000'000};  // 2025-11-26T12:00:00Z

struct LogReaderTest : ::testing::Test {
  proc::TempDir dir;
  const std::string path = dir.path("program-7.log");

  static std::string line(int second, const std::string& text) {
    return format_rfc3339(noon + std::chrono::seconds(second)) + " " + text + "\n";
  }
  void append(const std::string& text, const std::string& suffix = {}) const {
    std::ofstream(path + suffix, std::ios::app | std::ios::binary) << text;
  }
  // As the writer does it.
  void rotate(int keep = 3) const {
    for (int number = keep; number > 1; --number)
      ::rename(fmt::format("{}.{}", path, number - 1).c_str(), fmt::format("{}.{}", path, number).c_str());
    ::rename(path.c_str(), (path + ".1").c_str());
  }
  // Six lines "0" to "5", two in each file, one each second.
  void write_three_files() const {
    append(line(0, "0") + line(1, "1"), ".2");
    append(line(2, "2") + line(3, "3"), ".1");
    append(line(4, "4") + line(5, "5"));
  }
  LogQuery query(std::optional<std::size_t> lines = {}, std::optional<Time> since = {}) const {
    return {.path = path, .uid = ::geteuid(), .lines = lines, .since = since, .keep = 3};
  }
  static std::string read(LogReader& reader) {
    std::string all;
    for (std::string text = reader.next(); !text.empty(); text = reader.next()) {
      EXPECT_LE(text.size(), 65536u);
      all += text;
    }
    return all;
  }
  std::string read(const LogQuery& wanted) const {
    auto reader = LogReader::open(wanted);
    return reader ? read(*reader) : reader.error().detail;
  }
  // The numbers of the lines, without times and newlines.
  std::string numbers(const LogQuery& wanted) const {
    std::string found;
    const std::string all = read(wanted);
    for (std::size_t at = all.find('\n'); at != std::string::npos; at = all.find('\n', at + 1)) found += all[at - 1];
    return found;
  }
};

TEST_F(LogReaderTest, ReadsTheRotatedFilesAndThenTheLiveFile) {
  write_three_files();
  EXPECT_EQ(numbers(query()), "012345");
}

TEST_F(LogReaderTest, AMissingLogIsEmptyUntilItIsWritten) {
  auto reader = LogReader::open(query());
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->next(), "");
  append("first\n");
  EXPECT_EQ(read(*reader), "first\n");
  LogQuery elsewhere = query();
  elsewhere.path = dir.path("missing") + "/program-7.log";
  EXPECT_EQ(read(elsewhere), "");
}

TEST_F(LogReaderTest, BeginsWithTheLastLinesAcrossFiles) {
  write_three_files();
  for (std::size_t count = 0; count <= 8; ++count)
    EXPECT_EQ(numbers(query(count)), std::string("012345").substr(6 - std::min<std::size_t>(count, 6))) << count;
  append("a partial line");
  EXPECT_EQ(read(query(1)), "a partial line");
  EXPECT_EQ(read(query(2)), line(5, "5") + "a partial line");
}

TEST_F(LogReaderTest, LeavesTheLinesOfTheKeeperOut) {
  const auto mark = [](int second) { return format_rfc3339(noon + std::chrono::seconds(second)) + "\tstart\n"; };
  append(mark(0) + line(1, "1") + mark(2), ".1");
  append(line(3, "\t") + mark(4) + line(5, "5") + mark(6));
  LogQuery wanted = query();
  wanted.marks = false;
  EXPECT_EQ(read(wanted), line(1, "1") + line(3, "\t") + line(5, "5"));
  for (const std::size_t count : {1u, 2u, 3u}) {
    wanted.lines = count;
    EXPECT_EQ(std::ranges::count(read(wanted), '\n'), static_cast<std::ptrdiff_t>(count));
    EXPECT_TRUE(read(wanted).ends_with(line(5, "5")));
  }
  EXPECT_EQ(read(query(2)), line(5, "5") + mark(6));
  EXPECT_EQ(read(query({}, noon + 4s)), mark(4) + line(5, "5") + mark(6)) << "marks have times";
}

TEST_F(LogReaderTest, HoldsALineBackUntilItMayBeNoMark) {
  LogQuery wanted = query();
  wanted.marks = false;
  auto reader = LogReader::open(wanted);
  ASSERT_TRUE(reader);
  const std::string its_line = line(1, "a line"), mark = format_rfc3339(noon) + "\tstart\n";
  std::string found;
  for (const char byte : mark + its_line + mark) {
    append(std::string(1, byte));
    found += read(*reader);
  }
  EXPECT_EQ(found, its_line);
}

TEST_F(LogReaderTest, LastLinesMayBeLongerThanABlock) {
  const std::string longest(70'000, 'x');
  for (int i = 0; i < 5; ++i) append(longest + std::to_string(i) + "\n");
  EXPECT_EQ(numbers(query(3)), "234");
  EXPECT_EQ(read(query(1)), longest + "4\n");
}

// A user may make a file of any size that takes no space.
TEST_F(LogReaderTest, PassesOverAHole) {
  append(line(0, "0"));
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40);
  append(line(1, "1"));
  for (const std::size_t lines : {1, 2}) {
    const std::string last = read(query(lines));
    EXPECT_TRUE(last.ends_with(line(1, "1")) && last.size() < 1U << 17) << last.size();
  }
  const std::string all = read(query());
  EXPECT_TRUE(all.starts_with(line(0, "0")) && all.ends_with(line(1, "1"))) << all.size();
  EXPECT_LT(all.size(), 1U << 18);
}

// The loop goes on between two calls.
TEST_F(LogReaderTest, ReadsOneBlockOfWrittenZerosInACall) {
  append(std::string(1 << 20, '\0') + line(1, "1"));
  auto reader = LogReader::open(query());
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->next(), std::string(65536, '\0'));
  EXPECT_TRUE(read(*reader).ends_with(line(1, "1")));
}

TEST_F(LogReaderTest, SkipsOneHoleInACall) {
  for (int i = 1; i <= 4; ++i) {
    append(std::string(1 << 16, '\0'));
    std::filesystem::resize_file(path, static_cast<std::uintmax_t>(i) << 20);
  }
  auto reader = LogReader::open(query());
  ASSERT_TRUE(reader);
  int calls = 0;
  while (!reader->next().empty()) ++calls;
  EXPECT_GE(calls, 4);
}

TEST_F(LogReaderTest, LooksNoFurtherBackThanLinesCanBe) {
  append(std::string(8 << 20, 'x') + "\n" + line(1, "1"));
  EXPECT_LT(read(query(2)).size(), 2U << 20);
}

TEST_F(LogReaderTest, BeginsWithTheFirstLineSinceATime) {
  write_three_files();
  for (int second = -1; second <= 6; ++second) {
    EXPECT_EQ(numbers(query({}, noon + std::chrono::seconds(second))),
              std::string("012345").substr(static_cast<std::size_t>(std::clamp(second, 0, 6))))
        << second;
  }
  EXPECT_EQ(numbers(query({}, noon + 3500ms)), "45");
  EXPECT_EQ(numbers(query(2, noon)), "45");
  EXPECT_EQ(numbers(query(4, noon + 4s)), "45");
}

TEST_F(LogReaderTest, FindsATimeInALargeFile) {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += line(i, std::string(static_cast<std::size_t>(i % 90), 'x'));
  append(text);
  for (const int second : {0, 1, 7, 500, 9'999, 15'000, 19'998, 19'999}) {
    const std::string found = read(query({}, noon + std::chrono::seconds(second)));
    EXPECT_EQ(found.substr(0, 24), format_rfc3339(noon + std::chrono::seconds(second)));
    EXPECT_TRUE(text.ends_with(found)) << second;
  }
  EXPECT_EQ(read(query({}, noon + 20'000s)), "");
}

TEST_F(LogReaderTest, FollowsAFileThatGrows) {
  append("one\n");
  auto reader = LogReader::open(query(0));
  ASSERT_TRUE(reader);
  EXPECT_EQ(reader->next(), "");
  append("tw");
  EXPECT_EQ(reader->next(), "tw");
  append("o\n");
  EXPECT_EQ(reader->next(), "o\n");
}

TEST_F(LogReaderTest, FollowsOverRotations) {
  append("0\n");
  auto reader = LogReader::open(query());
  ASSERT_TRUE(reader);
  EXPECT_EQ(read(*reader), "0\n");
  append("1\n");
  rotate();
  EXPECT_EQ(reader->next(), "1\n");  // the live file does not exist yet
  EXPECT_EQ(reader->next(), "");
  append("2\n");
  rotate();
  append("3\n");
  EXPECT_EQ(read(*reader), "2\n3\n");
  for (const char* text : {"4\n", "5\n", "6\n", "7\n", "8\n", "9\n"}) {
    rotate();
    append(text);
  }
  EXPECT_EQ(read(*reader), "6\n7\n8\n9\n");  // the others are lost
}

TEST_F(LogReaderTest, FollowsAfterTheUserRemovedTheFile) {
  append("old\n", ".1");
  append("one\n");
  auto reader = LogReader::open(query());
  ASSERT_TRUE(reader);
  EXPECT_EQ(read(*reader), "old\none\n");
  const timespec earlier[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, (path + ".1").c_str(), earlier, 0), 0);
  std::filesystem::remove(path);
  append("two\n");
  EXPECT_EQ(read(*reader), "two\n");
}

TEST_F(LogReaderTest, FollowsAFileThatWasTruncated) {
  append("a long line\n");
  auto reader = LogReader::open(query());
  ASSERT_TRUE(reader);
  EXPECT_EQ(read(*reader), "a long line\n");
  std::filesystem::resize_file(path, 0);
  append("new\n");
  EXPECT_EQ(read(*reader), "new\n");
}

TEST_F(LogReaderTest, RefusesFilesThatAreNotPlainAndNamesThem) {
  dir.write("secret", "secret\n");
  const auto refusal = [&](const std::string& why) { return "cannot read the log " + path + why; };
  ASSERT_EQ(::symlink(dir.path("secret").c_str(), path.c_str()), 0);
  EXPECT_EQ(read(query()), refusal(": it is a symbolic link"));
  std::filesystem::remove(path);
  ASSERT_EQ(::link(dir.path("secret").c_str(), path.c_str()), 0);
  EXPECT_EQ(read(query()), refusal(": it has 2 names"));
  std::filesystem::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(read(query()), refusal(": it is not a regular file"));
  std::filesystem::remove(path);
  ASSERT_EQ(::mkdir(path.c_str(), 0700), 0);
  EXPECT_EQ(read(query()), refusal(": it is not a regular file"));
  std::filesystem::remove(path);
  append("text\n");
  ASSERT_EQ(::symlink(dir.path("secret").c_str(), (path + ".2").c_str()), 0);
  EXPECT_EQ(read(query()), refusal(".2: it is a symbolic link"));
  std::filesystem::remove(path + ".2");
  LogQuery foreign = query();
  foreign.uid = 54321;
  EXPECT_EQ(read(foreign), refusal(fmt::format(": it belongs to uid {}", ::geteuid())));
}

TEST_F(LogReaderTest, RefusesALinkThatReplacesAFollowedFile) {
  dir.write("secret", "secret\n");
  append("one\n");
  auto reader = LogReader::open(query());
  ASSERT_TRUE(reader);
  EXPECT_EQ(read(*reader), "one\n");
  rotate();
  ASSERT_EQ(::symlink(dir.path("secret").c_str(), path.c_str()), 0);
  EXPECT_EQ(reader->next(), "");
  std::filesystem::remove(path);
  append("two\n");
  EXPECT_EQ(read(*reader), "two\n");
}

TEST_F(LogReaderTest, DoesNotFollowALinkInPlaceOfTheDirectory) {
  std::filesystem::create_directory(dir.path("real"));
  dir.write("real/program-7.log", "text\n");
  std::filesystem::create_directory_symlink(dir.path("real"), dir.path("link"));
  LogQuery linked = query();
  linked.path = dir.path("link") + "/program-7.log";
  EXPECT_EQ(read(linked), "cannot open the directory " + dir.path("link") + ": Not a directory");
}

}  // namespace
}  // namespace sublet::guard
