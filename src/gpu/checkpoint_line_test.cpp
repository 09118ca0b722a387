// SPDX-License-Identifier: Apache-2.0
#include "gpu/checkpoint_line.h"

#include <gtest/gtest.h>

namespace sublet::gpu {
namespace {

using std::chrono::milliseconds;

std::string line_of(std::string text) {
  EXPECT_EQ(text.back(), '\n');
  text.pop_back();
  return text;
}

TEST(CheckpointLine, CommandsComeBackAsTheyWere) {
  const std::vector<CheckpointCommand> commands = {
      {1, CheckpointCall::preflight, {}, {}},
      {1, CheckpointCall::preflight, {}, {}, true, 4},
      {2, CheckpointCall::state, {}, {}},
      {3, CheckpointCall::lock, milliseconds(1500), {}},
      {4, CheckpointCall::checkpoint, {}, {}},
      {5, CheckpointCall::hold, {}, {{"GPU-a", GiB}, {"GPU-b", {}}}},
      {UINT64_MAX, CheckpointCall::restore, {}, {{"GPU-a", 3 * GiB, ballast_margin}}},
      {7, CheckpointCall::unlock, {}, {}},
  };
  for (const auto& command : commands) {
    const auto read = decode_checkpoint_command(line_of(encode(command)));
    ASSERT_TRUE(read) << read.error().detail;
    EXPECT_EQ(*read, command);
  }
}

TEST(CheckpointLine, RepliesComeBackAsTheyWere) {
  CheckpointReply reply;
  reply.id = 9;
  reply.call = CheckpointCall::restore;
  reply.refusal = CheckpointRefusal::driver;
  reply.detail = "the driver said \"no\"";
  reply.code = 304;
  reply.name = "CUDA_ERROR_OPERATING_SYSTEM";
  reply.final = true;
  reply.state = ParkState::checkpointed;
  reply.took = std::chrono::seconds(3);
  reply.prepared = milliseconds(2);
  reply.held = GiB;
  reply.resident = 5 * GiB;
  for (const auto& one : {reply, CheckpointReply{}}) {
    const auto read = decode_checkpoint_reply(line_of(encode(one)));
    ASSERT_TRUE(read) << read.error().detail;
    EXPECT_EQ(*read, one);
  }
}

TEST(CheckpointLine, EveryWordHasATextOfItsOwn) {
  std::set<std::string_view> words;
  for (int i = 0; i <= static_cast<int>(CheckpointCall::unlock); ++i) {
    EXPECT_TRUE(words.insert(to_string(static_cast<CheckpointCall>(i))).second);
  }
  for (int i = 0; i <= static_cast<int>(CheckpointRefusal::driver); ++i) {
    EXPECT_TRUE(words.insert(to_string(static_cast<CheckpointRefusal>(i))).second);
  }
}

TEST(CheckpointLine, WhatIsNoCommandIsRefused) {
  for (const std::string_view line : {
           "",
           "lock",
           "[]",
           "{}",
           R"({"id":1})",
           R"({"id":-1,"do":"state"})",
           R"({"id":1,"do":"quit"})",
           R"({"id":1,"do":7})",
           R"({"id":1,"do":"lock"})",
           R"({"id":1,"do":"lock","timeout_ms":0})",
           R"({"id":1,"do":"lock","timeout_ms":3600001})",
           R"({"id":1,"do":"preflight","devices":0})",
           R"({"id":1,"do":"preflight","vouched":1})",
           R"({"id":1,"do":"unlock","ballast":[]})",
           R"({"id":1,"do":"hold","ballast":{}})",
           R"({"id":1,"do":"hold","ballast":[1]})",
           R"({"id":1,"do":"hold","ballast":[{"device":"","bytes":1}]})",
           R"({"id":1,"do":"hold","ballast":[{"device":"a","bytes":-1}]})",
           R"({"id":1,"do":"hold","ballast":[{"device":"a","bytes":1,"margin":-1}]})",
           R"({"id":1,"do":"hold","ballast":[{"device":"a","bytes":1},{"device":"a","bytes":2}]})",
           R"([[[[[[[[[[1]]]]]]]]]])",
       }) {
    EXPECT_FALSE(decode_checkpoint_command(line)) << line;
  }
}

TEST(CheckpointLine, WhatIsNoReplyIsRefused) {
  const std::string good = line_of(encode(CheckpointReply{}));
  ASSERT_TRUE(decode_checkpoint_reply(good));
  const auto changed = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  for (const auto& line :
       {std::string("{"), changed("\"ok\":true", "\"ok\":false"), changed("\"reason\":\"\"", "\"reason\":\"gone\""),
        changed("unknown", "asleep"), changed("\"took_ns\":0", "\"took_ns\":-1"),
        changed("\"held_bytes\":0", "\"held_bytes\":0.5"), changed("\"final\":false", "\"final\":0")}) {
    EXPECT_FALSE(decode_checkpoint_reply(line)) << line;
  }
}

}  // namespace
}  // namespace sublet::gpu
