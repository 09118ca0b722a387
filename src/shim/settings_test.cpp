// SPDX-License-Identifier: Apache-2.0
#include "shim/settings.h"

#include <gtest/gtest.h>

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace sublet::shim {
namespace {

TEST(ShimSettings, AreReadAsTheyAreWritten) {
  for (const Bytes vram : {2 * GiB, 1536 * MiB, Bytes{123457}}) {
    for (const char* real : {"", "/opt/a b/ffmpeg"}) {
      for (const IfAbsent policy : {IfAbsent::run, IfAbsent::wait, IfAbsent::fail}) {
        const Settings settings{vram,   "speech to text",         real,
                                policy, policy == IfAbsent::wait, policy == IfAbsent::wait ? 30 : 0};
        const auto read = parse_settings(settings_text(settings, "ffmpeg"));
        ASSERT_TRUE(read) << read.error().detail;
        EXPECT_EQ(read->vram, vram);
        EXPECT_EQ(read->consumer, "speech to text");
        EXPECT_EQ(read->real, real);
        EXPECT_EQ(read->if_absent, policy);
        EXPECT_EQ(read->interposer, policy == IfAbsent::wait);
        EXPECT_EQ(read->share, settings.share);
      }
    }
  }
}

TEST(ShimSettings, BlanksCommentsAndLineEndsDoNotMatter) {
  const auto read = parse_settings("\r\n# a comment\n  vram=2GiB \r\n\tname =  x y\t\n\nif_absent = fail");
  ASSERT_TRUE(read) << read.error().detail;
  EXPECT_EQ(read->vram, 2 * GiB);
  EXPECT_EQ(read->consumer, "x y");
  EXPECT_EQ(read->if_absent, IfAbsent::fail);
}

TEST(ShimSettings, DamageIsNamedWithItsLine) {
  struct Case {
    const char* text;
    const char* error;
  };
  constexpr Case cases[] = {
      {"", "the key 'vram' is missing"},
      {"name = x\n", "the key 'vram' is missing"},
      {"vram = 1GiB\n", "the key 'name' is missing"},
      {"vram\n", "line 1: it has no '='"},
      {"# x\nvram = 1GiB\nvram = 1GiB\n", "line 3: the key 'vram' is there twice"},
      {"vram = 12\n", "line 1: the size '12' has no unit"},
      {"colour = red\n", "line 1: unknown key 'colour'"},
      {"interposer = 1\n", "line 1: '1' is neither true nor false"},
      {"share = 101\n", "line 1: '101' is not between 1 and 100"},
      {"vram = 1GiB\nname = x\nshare = 30\n", "share is there without interposer = true"},
      {"name = a/b\n", "line 1: 'a/b' cannot name a consumer"},
      {"name =\n", "line 1: '' cannot name a consumer"},
      {"real = ffmpeg\n", "line 1: 'ffmpeg' is no absolute path"},
      {"if_absent = no\n", "line 1: 'no' is not one of run, wait, fail"},
      {"= 3\n", "line 1: unknown key ''"},
  };
  for (const Case& wrong : cases) {
    const auto read = parse_settings(wrong.text);
    ASSERT_FALSE(read) << wrong.text;
    EXPECT_EQ(read.error().detail, wrong.error);
  }
  EXPECT_FALSE(parse_settings("vram = much\nname = x\n"));
  EXPECT_FALSE(parse_settings("vram = -1GiB\nname = x\n"));
}

TEST(ShimSettings, LieBesideTheShim) {
  EXPECT_EQ(settings_path("/a/b/ffmpeg"), "/a/b/.ffmpeg.shim");
  EXPECT_EQ(settings_path("/ffmpeg"), "/.ffmpeg.shim");
  EXPECT_EQ(settings_path("ffmpeg"), ".ffmpeg.shim");
}

TEST(ShimSettings, OnlyFilesOfTheUserCount) {
  const std::string directory = testing::TempDir() + "shim-settings";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directory(directory);
  ::chmod(directory.c_str(), 0755);
  const std::string shim = directory + "/ffmpeg", file = settings_path(shim);
  EXPECT_EQ(read_settings(shim).error().code, Code::NotFound);
  std::ofstream(file) << "vram = 1GiB\nname = x\n";
  ::chmod(file.c_str(), 0644);
  EXPECT_TRUE(read_settings(shim));
  for (const mode_t mode : {0664, 0646}) {
    ::chmod(file.c_str(), mode);
    EXPECT_EQ(read_settings(shim).error().code, Code::Denied);
  }
  ::chmod(file.c_str(), 0600);
  EXPECT_TRUE(read_settings(shim));
  ::chmod(directory.c_str(), 0775);
  EXPECT_EQ(read_settings(shim).error().code, Code::Denied);
  ::chmod(directory.c_str(), 0755);
  std::filesystem::rename(file, directory + "/other");
  std::filesystem::create_symlink("other", file);
  EXPECT_EQ(read_settings(shim).error().code, Code::Denied);  // a link may lead to another user's file
  std::filesystem::remove(file);
  std::filesystem::create_directory(file);
  EXPECT_EQ(read_settings(shim).error().code, Code::Denied);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace sublet::shim
