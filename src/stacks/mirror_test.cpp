// SPDX-License-Identifier: Apache-2.0
#include "stacks/mirror.h"

#include "compose/private_file.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace sublet::stacks {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr Time now{1'700'000'000'000'000'000};

TEST(Mirror, TellsWhatTheServiceToldWithoutTokens) {
  Slot slot;
  EXPECT_EQ(json::parse(mirror_text(slot, false, now)), json({{"queue", json::array()}}));
  slot.acquire({"a", "ana", "", 60s, {}}, "secret-1", 10s, now);
  slot.started("secret-1", now);
  slot.ready("secret-1", now);
  slot.acquire({"b", "bob", "", 60s, 5}, "secret-2", 10s, now);
  const std::string text = mirror_text(slot, false, now);
  EXPECT_EQ(text.find("secret"), std::string::npos);
  EXPECT_EQ(json::parse(text), json::parse(R"({"mode":"service","target":"a","at":1700000000,
      "lease":{"owner":"ana","expires_at":1700000060},
      "queue":[{"owner":"bob","priority":5,"target":"b","claim_expires_at":null}]})"));
}

TEST(Mirror, TheWayBackHasAllThatTheServiceReads) {
  Slot slot;
  slot.acquire({"a", "", "", 60s, {}}, "secret-1", 10s, now);
  slot.started("secret-1", now);
  slot.ready("secret-1", now);
  slot.acquire({"b", "bob", "", 60s, 5}, "secret-2", 10s, now);
  const std::string text = mirror_text(slot, true, now);
  EXPECT_EQ(json::parse(text), json::parse(R"({"mode":"service","target":"a","at":1700000000,
      "lease":{"token":"secret-1","owner":null,"expires_at":1700000060},
      "queue":[{"token":"secret-2","owner":"bob","priority":5,"target":"b","enqueued_at":1700000000,
                "claim_expires_at":null}]})"));
  const auto again = read_service_state("/f", text, now);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->holder()->token, "secret-1");
  EXPECT_EQ(again->place("secret-2"), 0U);
}

TEST(Mirror, TakesAServicesStateOver) {
  const auto slot = read_service_state("/f", R"({"mode":"service","target":"a","at":1699999000,
      "lease":{"token":"t","owner":"ana","expires_at":1700000060},
      "queue":[{"token":"low","owner":"l","priority":0,"target":"b","claim_expires_at":null},
               {"token":"high","owner":"h","priority":9,"target":"a"},
               {"owner":"no token"}, 7]})",
                                       now);
  ASSERT_TRUE(slot);
  ASSERT_TRUE(slot->holder());
  EXPECT_EQ(slot->holder()->token + slot->holder()->target, "ta");
  EXPECT_EQ(slot->holder()->ttl, 60s);
  EXPECT_FALSE(slot->holder()->expires_at);
  EXPECT_EQ(slot->place("high"), 0U);
  EXPECT_EQ(slot->place("low"), 1U);
  EXPECT_EQ(slot->queue().size(), 2U);
  EXPECT_EQ(slot->last_start(), Time{1'699'999'000'000'000'000});

  const auto over = read_service_state("/f", R"({"target":"a","lease":{"token":"t","expires_at":1699999999}})", now);
  ASSERT_TRUE(over);
  EXPECT_FALSE(over->holder()) << "its lease is over";
  EXPECT_EQ(over->last_target(), "a");
  for (const char* broken : {"", "[]", "{"}) EXPECT_FALSE(read_service_state("/f", broken, now)) << broken;
}

TEST(Mirror, IsReplacedAsAWhole) {
  char directory[] = "/tmp/mirror-XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  const std::string path = std::string(directory) + "/state.json";
  ASSERT_TRUE(compose::replace_file(path, "one", 0644));
  ASSERT_TRUE(compose::replace_file(path, "two", 0644));
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "two");
  const Status failed = compose::replace_file("/nonexistent/state.json", "x", 0644);
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().detail.find("/nonexistent/state.json"), std::string::npos);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace sublet::stacks
