// SPDX-License-Identifier: Apache-2.0
#include "proc/exit_record.h"

#include "proc/test_support.h"

#include <sys/stat.h>
#include <random>

namespace sublet::proc {
namespace {

const Time some_time{1'795'276'805'123'000'000};  // 2026-11-21T16:00:05.123Z, in whole milliseconds

TEST(ExitRecord, GoesThroughText) {
  for (const ExitRecord& record : {ExitRecord{{7}, 0, {}, some_time}, ExitRecord{{8}, 255, {}, some_time},
                                   ExitRecord{{9}, {}, 9, some_time}, ExitRecord{{10}, {}, {}, some_time},
                                   ExitRecord{{11}, {}, 15, some_time, true}}) {
    const auto read = decode_exit_record(encode_exit_record(record));
    ASSERT_TRUE(read) << read.error().detail;
    EXPECT_EQ(*read, record);
  }
  EXPECT_EQ(encode_exit_record({{7}, 3, {}, {0}}),
            "{\"ended_at\":\"1970-01-01T00:00:00.000Z\",\"exit_status\":3,\"lease\":\"lease-7\",\"signal\":"
            "null}\n");
}

TEST(ExitRecord, RefusesWhatWasNotWrittenByIt) {
  const std::string good = R"({"lease":"lease-7","exit_status":1,"signal":null,"ended_at":"2026-11-21T16:00:05.123Z"})";
  ASSERT_TRUE(decode_exit_record(good));
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    return text.replace(text.find(from), from.size(), to);
  };
  for (const std::string& text : {std::string(),
                                  std::string("{}"),
                                  std::string("[]"),
                                  std::string("null"),
                                  good + good,
                                  good.substr(0, 40),
                                  changed("\"lease-7\"", "7"),
                                  changed("lease-7", "lease-0"),
                                  changed("lease-7", "lease--1"),
                                  changed(":1,", ":256,"),
                                  changed(":1,", ":-1,"),
                                  changed(":1,", ":1.0,"),
                                  changed(":1,", ":true,"),
                                  changed(":1,", ":18446744073709551615,"),
                                  changed("null", "0"),
                                  changed("null", "65"),
                                  changed("null", "9"),
                                  changed("\"signal\":null,", ""),
                                  changed("2026-11", "2026-13"),
                                  changed("05.123Z", "05.123"),
                                  changed("05.123Z", "61.123Z"),
                                  changed("2026-11-21T", "2026-11-21 "),
                                  changed("-21T16", "-21T+6"),
                                  std::string(5000, ' ') + good}) {
    EXPECT_FALSE(decode_exit_record(text)) << text;
  }
}

TEST(ExitRecord, SurvivesRandomBytes) {
  std::mt19937 random(4711);
  const std::string good = encode_exit_record({{7}, 1, {}, some_time});
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    const int changes = 1 + static_cast<int>(random() % 6);
    for (int i = 0; i < changes; ++i) text[random() % text.size()] = static_cast<char>(random());
    if (const auto read = decode_exit_record(text)) {
      EXPECT_EQ(*decode_exit_record(encode_exit_record(*read)), *read) << text;
    }
  }
}

TEST(ExitRecord, IsWrittenWholeAndReplaced) {
  const TempDir dir;
  const std::string path = dir.path("exit.json");
  EXPECT_EQ(read_exit_record(path, ::geteuid()).error().code, Code::NotFound);
  ASSERT_TRUE(write_exit_record(path, {{7}, 1, {}, some_time}));
  ASSERT_TRUE(write_exit_record(path, {{7}, {}, 15, some_time}));
  const auto read = read_exit_record(path, ::geteuid());
  ASSERT_TRUE(read) << read.error().detail;
  EXPECT_EQ(*read, (ExitRecord{{7}, {}, 15, some_time}));
  struct stat about {};
  ASSERT_EQ(::stat(path.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 07777, 0644u);
  int entries = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path())) ++entries;
  EXPECT_EQ(entries, 1) << "no temporary file is left";
}

TEST(ExitRecord, LeftoversOfAnEarlierWriterDoNotMatter) {
  const TempDir dir;
  dir.write(".exit.json." + std::to_string(::getpid()) + ".new", "half");
  ASSERT_TRUE(write_exit_record(dir.path("exit.json"), {{7}, 1, {}, some_time}));
  EXPECT_TRUE(read_exit_record(dir.path("exit.json"), ::geteuid()));
}

// Users leave their records with a system daemon like this: they may create files in its folder, but not list it.
TEST(ExitRecord, IsWrittenIntoAFolderThatMayNotBeRead) {
  const TempDir dir;
  const bool root = ::geteuid() == 0;
  const uid_t writer = root ? 65534 : ::geteuid();
  ASSERT_EQ(::chmod(dir.path().c_str(), root ? 01733 : 0300), 0);
  Child child([&] {
    if (root && ::setuid(writer) != 0) return 2;
    return write_exit_record(dir.path("exit.json"), {{7}, 3, {}, some_time}) ? 0 : 1;
  });
  EXPECT_EQ(child.reap(), 0);
  ASSERT_EQ(::chmod(dir.path().c_str(), 0700), 0);
  const auto read = read_exit_record(dir.path("exit.json"), writer);
  ASSERT_TRUE(read) << read.error().detail;
  EXPECT_EQ(read->exit_status, 3);
}

TEST(ExitRecord, WriteFailsWithAReason) {
  const auto failed = write_exit_record("/nowhere/at/all/exit.json", {{7}, 1, {}, some_time});
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().detail.find("/nowhere/at/all/exit.json"), std::string::npos);
}

TEST(ExitRecord, ReadTrustsNothingButAPlainFileOfItsOwner) {
  const TempDir dir;
  const std::string path = dir.path("exit.json");
  ASSERT_TRUE(write_exit_record(path, {{7}, 1, {}, some_time}));
  EXPECT_EQ(read_exit_record(path, ::geteuid() + 1).error().code, Code::Denied);
  std::filesystem::create_symlink(path, dir.path("link"));
  EXPECT_EQ(read_exit_record(dir.path("link"), ::geteuid()).error().code, Code::Denied);
  ASSERT_EQ(::mkfifo(dir.path("fifo").c_str(), 0644), 0);
  EXPECT_EQ(read_exit_record(dir.path("fifo"), ::geteuid()).error().code, Code::Denied);
  EXPECT_EQ(read_exit_record(dir.path(), ::geteuid()).error().code, Code::Denied);
  dir.write("long", std::string(5000, ' '));
  EXPECT_EQ(read_exit_record(dir.path("long"), ::geteuid()).error().code, Code::BadRequest);
  ASSERT_EQ(::chmod(path.c_str(), 0666), 0);
  EXPECT_EQ(read_exit_record(path, ::geteuid()).error().code, Code::Denied);
}

}  // namespace
}  // namespace sublet::proc
