// SPDX-License-Identifier: Apache-2.0
#include "stacks/slot.h"

#include <gtest/gtest.h>

namespace sublet::stacks {
namespace {

using namespace std::chrono_literals;
using Kind = Answer::Kind;

constexpr Time start{1'000'000'000'000};
constexpr Duration window = 10s;

Ask ask(std::string target, std::string token = "", std::optional<std::int64_t> priority = {}) {
  return {std::move(target), "ana", std::move(token), 60s, priority};
}

// A slot held with token "h" by a ready stack "a", and `waiting` callers "w0", "w1", … for stack "b".
Slot held(int waiting = 0) {
  Slot slot;
  EXPECT_EQ(slot.acquire(ask("a"), "h", window, start).kind, Kind::start);
  slot.started("h", start);
  slot.ready("h", start);
  for (int i = 0; i < waiting; ++i)
    EXPECT_EQ(slot.acquire(ask("b", "", 0), "w" + std::to_string(i), window, start).kind, Kind::queued);
  return slot;
}

// The same after its holder has released it: the window of "w0" is open.
Slot offered(int waiting) {
  Slot slot = held(waiting);
  EXPECT_TRUE(slot.release("h", false, window, start));
  return slot;
}

TEST(Slot, AnswersAsTheService) {
  struct Case {
    const char* name;
    Slot slot;
    Ask ask;
    Kind kind;
    std::string detail;
  };
  const Case cases[] = {
      {"an empty slot", Slot{}, ask("a"), Kind::start, ""},
      {"an empty slot, with priority", Slot{}, ask("a", "", 3), Kind::start, ""},
      {"an unknown token", Slot{}, ask("a", "mine"), Kind::refused,
       "the lease_token is unknown or expired; acquire without lease_token for a new one"},
      {"the holder again", held(), ask("a", "h"), Kind::refreshed, ""},
      {"the holder, another stack", held(), ask("b", "h"), Kind::refused, "target mismatch: active:a; requested:b"},
      {"a waiter at the head while held", held(2), ask("b", "w0"), Kind::refused, "gpu busy: service:a; queue_index:0"},
      {"a waiter further back", held(2), ask("b", "w1"), Kind::refused, "gpu busy: service:a; queue_index:1"},
      {"held, no priority", held(), ask("b"), Kind::refused, "gpu busy: service:a"},
      {"held, with priority", held(), ask("b", "", 0), Kind::queued, ""},
      {"an own token, with a priority", Slot{}, ask("a", "mine", 0), Kind::start, ""},
      {"held, with priority and an own token", held(), ask("b", "mine", 0), Kind::queued, ""},
      {"the head in its window", offered(2), ask("b", "w0"), Kind::start, ""},
      {"the head, another stack", offered(2), ask("a", "w0"), Kind::refused, "target mismatch: queued:b; requested:a"},
      {"not the head", offered(2), ask("b", "w1"), Kind::refused, "gpu busy: queue_index:1"},
      {"a newcomer in a window", offered(2), ask("b"), Kind::refused, "gpu busy: queued claimant pending"},
      {"a newcomer with priority in a window", offered(2), ask("b", "", 99), Kind::queued, ""},
      {"a token that was released", offered(0), ask("a", "h"), Kind::refused,
       "the lease_token is unknown or expired; acquire without lease_token for a new one"},
  };
  for (const Case& one : cases) {
    Slot slot = one.slot;
    const Answer answer = slot.acquire(one.ask, "fresh", window, start + 1s);
    EXPECT_EQ(answer.kind, one.kind) << one.name << ": " << answer.detail;
    EXPECT_EQ(answer.detail, one.detail) << one.name;
    if (answer.kind == Kind::queued) {
      EXPECT_EQ(answer.token, one.ask.token.empty() ? "fresh" : one.ask.token) << one.name;
      EXPECT_TRUE(slot.place(answer.token)) << one.name;
    }
    if (answer.kind == Kind::start) {
      EXPECT_EQ(slot.holder()->token, answer.token) << one.name;
      EXPECT_FALSE(slot.holder()->expires_at) << one.name << ": its time counts from ready";
    }
  }
}

TEST(Slot, IsOrderedByPriorityThenEntryAndAHeadInItsWindowStays) {
  Slot slot = held();
  for (const auto& [token, priority] : {std::pair("low", -5), {"first", 7}, {"second", 7}, {"top", 9}})
    slot.acquire(ask("b", token, priority), "", window, start);
  ASSERT_EQ(slot.queue().size(), 4U);
  EXPECT_EQ(slot.place("top"), 0U);
  EXPECT_EQ(slot.place("first"), 1U);
  EXPECT_EQ(slot.place("second"), 2U);
  EXPECT_EQ(slot.place("low"), 3U);
  ASSERT_TRUE(slot.release("h", false, window, start));
  slot.acquire(ask("b", "late", 100), "", window, start);
  EXPECT_EQ(slot.place("top"), 0U) << "its window is open";
  EXPECT_EQ(slot.place("late"), 1U);
}

TEST(Slot, TheTimeToLiveCountsFromReadyAndWindowsRunOneAfterTheOther) {
  Slot slot = held(2);
  EXPECT_EQ(slot.tick(window, start), start + 60s);
  EXPECT_EQ(slot.acquire(ask("a", "h"), "", window, start + 50s).kind, Kind::refreshed);
  EXPECT_EQ(slot.tick(window, start + 60s), start + 110s);
  EXPECT_EQ(slot.tick(window, start + 110s), start + 120s) << "the window of w0";
  EXPECT_FALSE(slot.holder());
  EXPECT_EQ(slot.tick(window, start + 120s), start + 130s) << "w1 gets a full window";
  EXPECT_FALSE(slot.place("w0"));
  EXPECT_EQ(slot.tick(window, start + 130s), Time::never());
  EXPECT_TRUE(slot.queue().empty());
}

TEST(Slot, TheTimeToLiveStandsStillWhileItsStackIsParked) {
  Slot slot = held(1);
  slot.stand_since(start + 20s);
  EXPECT_EQ(slot.tick(window, start + 2h), Time::never());
  slot.forgive(30s, start + 2h);
  ASSERT_TRUE(slot.holder());
  slot.stand_still(2h);
  slot.stand_since({});
  EXPECT_EQ(slot.tick(window, start + 2h), start + 2h + 60s);
  slot.stand_since(start + 2h + 10s);
  EXPECT_EQ(slot.acquire(ask("a", "h"), "", window, start + 5h).kind, Kind::refreshed);
  EXPECT_EQ(slot.holder()->expires_at, start + 2h + 70s) << "whole again, and it still stands";
}

TEST(Slot, AFailedStartFreesTheSlotForTheNext) {
  Slot slot = offered(2);
  ASSERT_EQ(slot.acquire(ask("b", "w0"), "", window, start).kind, Kind::start);
  slot.failed("other", window, start);
  ASSERT_TRUE(slot.holder()) << "another holder's failure";
  slot.failed("w0", window, start + 5s);
  EXPECT_FALSE(slot.holder());
  EXPECT_EQ(slot.queue().front().claim_ends, start + 15s);
  EXPECT_EQ(slot.last_target(), "a") << "b was never started";
}

TEST(Slot, ReleaseNeedsTheTokenOrForce) {
  struct Case {
    Slot slot;
    std::string token;
    bool force;
    std::string error;
  };
  const Case cases[] = {
      {held(), "h", false, ""},
      {held(), "x", false, "lease mismatch"},
      {held(), "", false, "lease mismatch"},
      {Slot{}, "", false, "no active lease"},
      {held(), "", true, ""},
      {Slot{}, "", true, ""},
  };
  for (const Case& one : cases) {
    Slot slot = one.slot;
    const Status done = slot.release(one.token, one.force, window, start + 1s);
    EXPECT_EQ(done ? "" : done.error().detail, one.error) << one.token << one.force;
    EXPECT_EQ(slot.holder().has_value(), !one.error.empty() && one.error != "no active lease");
  }
}

TEST(Slot, SurvivesARestartAndRefusesBrokenDocuments) {
  const Slot slot = offered(3);
  const auto read = Slot::from_json(slot.to_json());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->queue(), slot.queue());
  EXPECT_EQ(read->last_target(), "a");
  const auto again = Slot::from_json(held(1).to_json());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->holder(), held(1).holder());
  for (const char* broken : {"", "{}", "[1]", R"({"entered":1,"last_target":"a","last_start":0,"queue":[{}]})"})
    EXPECT_FALSE(Slot::from_json(broken)) << broken;
}

TEST(Slot, TheQueueHasALimit) {
  Slot slot = held(static_cast<int>(Slot::most_waiters));
  const Answer answer = slot.acquire(ask("b", "", 1), "one more", window, start);
  EXPECT_EQ(answer.kind, Kind::refused);
  EXPECT_EQ(answer.detail, "gpu busy: the queue is full (1000 callers)");
}

}  // namespace
}  // namespace sublet::stacks
