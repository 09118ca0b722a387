// SPDX-License-Identifier: Apache-2.0
#include "gpu/probe_client.h"

#include <gtest/gtest.h>

#include <random>

namespace sublet::gpu {
namespace {

TEST(Command, GoesThroughText) {
  for (const std::uint64_t id : {std::uint64_t{0}, std::uint64_t{7}, UINT64_MAX}) {
    std::string line = encode_snapshot_command(id);
    ASSERT_EQ(line.back(), '\n');
    line.pop_back();
    EXPECT_EQ(*decode_snapshot_command(line), id);
  }
  for (const char* line : {"", "snapshot", "snapshot ", "snapshot -1", "snapshot 1 ", "snapshot 1x", "snapshot  1",
                           "SNAPSHOT 1", "snapshot 18446744073709551616", "stop 1"}) {
    EXPECT_FALSE(decode_snapshot_command(line)) << line;
  }
}

TEST(LineSplitter, CutsWhateverTheChunks) {
  std::mt19937 random(5);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> lines(random() % 8);
    std::string stream;
    for (auto& line : lines) {
      line.assign(random() % 20, static_cast<char>('a' + random() % 26));
      stream += line + "\n";
    }
    stream += "unfinished";
    LineSplitter splitter(20);
    std::vector<std::string> got;
    for (std::string_view rest = stream; !rest.empty();) {
      const std::size_t step = 1 + random() % 9;
      ASSERT_TRUE(splitter.feed(rest.substr(0, step)));
      rest.remove_prefix(std::min(step, rest.size()));
      if (random() % 2 == 0) {
        while (auto line = splitter.next()) got.push_back(*line);
      }
    }
    while (auto line = splitter.next()) got.push_back(*line);
    EXPECT_EQ(got, lines);
  }
}

TEST(LineSplitter, RefusesLongLinesForGood) {
  LineSplitter splitter(10);
  EXPECT_TRUE(splitter.feed("0123456789\n012345"));
  EXPECT_FALSE(splitter.feed("67890")) << "11 bytes, ended or not";
  EXPECT_FALSE(splitter.feed("\nshort\n"));
  EXPECT_EQ(*splitter.next(), "0123456789") << "what was whole before is still there";
  EXPECT_FALSE(splitter.next());
  LineSplitter at_once(10);
  EXPECT_FALSE(at_once.feed("0123456789x\n"));
  EXPECT_FALSE(at_once.next());
}

}  // namespace
}  // namespace sublet::gpu
