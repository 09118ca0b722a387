// SPDX-License-Identifier: Apache-2.0
#include "stacks/steps.h"

#include <gtest/gtest.h>

#include <functional>

namespace sublet::stacks {
namespace {

using namespace std::chrono_literals;

constexpr Time noon{1'795'780'800'000'000'000};
constexpr Duration ready_timeout = 15min;

Use ana() { return {.uid = 1000, .user = "ana", .token_hash = "hash", .lease = LeaseId{7}, .ttl = 30min}; }

// A stack that has come to this phase at noon.
Stack in(Phase phase) {
  Stack stack;
  stack.name = "chat";
  if (phase == Phase::down) return stack;
  acquire(stack, ana(), noon);
  if (phase == Phase::queued) return stack;
  granted(stack, noon);
  stack.project = "chat";
  if (phase == Phase::creating) return stack;
  if (phase == Phase::failed) {
    fail(stack, "broken", noon);
    stopped(stack, noon);
    return stack;
  }
  created(stack, ready_timeout, noon);
  if (phase == Phase::starting) return stack;
  observe(stack, {Health::ready, ""}, true, noon);
  if (phase == Phase::ready) return stack;
  release(stack, After::up_if_ready, "", noon);
  if (phase == Phase::released) return stack;
  stop(stack, "", noon);
  return stack;
}

constexpr Phase all[] = {Phase::down,  Phase::queued,   Phase::creating, Phase::starting,
                         Phase::ready, Phase::released, Phase::stopping, Phase::failed};

TEST(Steps, EachPhaseIsReached) {
  for (const Phase phase : all) EXPECT_EQ(to_string(in(phase).phase), to_string(phase));
}

// The phase that follows each event in each phase; "": none.
TEST(Steps, EveryEventInEveryPhase) {
  const struct {
    const char* name;
    std::function<void(Stack&)> event;
    // in the order of `all`
    std::array<const char*, 8> next;
  } rows[] = {
      {"granted", [](Stack& s) { granted(s, noon); }, {"", "creating", "", "", "", "", "", ""}},
      {"created", [](Stack& s) { created(s, ready_timeout, noon); }, {"", "", "starting", "", "", "", "", ""}},
      {"ready",
       [](Stack& s) {
         observe(s, {Health::ready, ""}, true, noon);
       },
       {"", "", "", "ready", "", "", "", ""}},
      {"seen before",
       [](Stack& s) {
         observe(s, {Health::ready, ""}, false, noon);
       },
       {"", "", "", "", "", "", "", ""}},
      {"exited",
       [](Stack& s) {
         observe(s, {Health::exited, "it exited"}, true, noon + 1s);
       },
       {"", "", "", "stopping", "", "", "", ""}},
      {"exited for long",
       [](Stack& s) {
         observe(s, {Health::exited, "it exited"}, true, noon);
         observe(s, {Health::exited, "it exited"}, true, noon + return_time);
       },
       {"", "", "", "stopping", "stopping", "stopping", "", ""}},
      {"exited while parked",
       [](Stack& s) {
         observe(s, {Health::exited, "it exited"}, true, noon + 1s, true);
       },
       {"", "", "", "stopping", "stopping", "stopping", "", ""}},
      {"exited in a moment",
       [](Stack& s) {
         observe(s, {Health::exited, "it exited"}, true, noon + 999ms);
       },
       {"", "", "", "", "", "", "", ""}},
      {"removed",
       [](Stack& s) {
         observe(s, {Health::absent, "none"}, true, noon);
         observe(s, {Health::absent, "none"}, true, noon + return_time);
       },
       {"", "", "", "stopping", "stopping", "stopping", "", ""}},
      {"unhealthy",
       [](Stack& s) {
         observe(s, {Health::unhealthy, "ill"}, true, noon + 1s);
       },
       {"", "", "", "stopping", "", "", "", ""}},
      {"restarting",
       [](Stack& s) {
         observe(s, {Health::starting, "again"}, true, noon + 1s);
       },
       {"", "", "", "", "", "", "", ""}},
      {"16 minutes", [](Stack& s) { pass_time(s, noon + 16min); }, {"", "", "", "stopping", "", "", "", ""}},
      {"31 minutes", [](Stack& s) { pass_time(s, noon + 31min); }, {"", "", "", "stopping", "released", "", "", ""}},
      {"release",
       [](Stack& s) { release(s, After::up_if_ready, "", noon); },
       {"", "down", "stopping", "stopping", "released", "stopping", "", ""}},
      {"release, up",
       [](Stack& s) { release(s, After::up, "", noon); },
       {"", "down", "stopping", "released", "released", "stopping", "", ""}},
      {"release, down",
       [](Stack& s) { release(s, After::down, "", noon); },
       {"", "down", "stopping", "stopping", "stopping", "stopping", "", ""}},
      {"take over",
       [](Stack& s) { take_over(s, ana(), true, "", ready_timeout, noon); },
       {"", "", "", "", "", "ready", "", ""}},
      {"take over, paused",
       [](Stack& s) { take_over(s, ana(), false, "paused", ready_timeout, noon); },
       {"", "", "", "", "", "starting", "", ""}},
      {"restart", [](Stack& s) { restart(s, noon); }, {"", "", "", "creating", "creating", "", "", ""}},
      {"without its master",
       [](Stack& s) {
         observe(s, {Health::no_label, "no container has the label"}, true, noon);
         observe(s, {Health::no_label, "no container has the label"}, true, noon + return_time);
       },
       {"", "", "", "stopping", "stopping", "stopping", "", ""}},
      {"stop",
       [](Stack& s) { stop(s, "", noon); },
       {"", "down", "stopping", "stopping", "stopping", "stopping", "", ""}},
      {"fail",
       [](Stack& s) { fail(s, "x", noon); },
       {"", "failed", "stopping", "stopping", "stopping", "stopping", "", ""}},
      {"stopped", [](Stack& s) { stopped(s, noon); }, {"", "", "", "", "", "", "down", ""}},
  };
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < std::size(all); ++i) {
      Stack stack = in(all[i]);
      row.event(stack);
      const std::string_view expected = row.next[i][0] == '\0' ? to_string(all[i]) : row.next[i];
      EXPECT_EQ(to_string(stack.phase), expected) << row.name << " in " << to_string(all[i]);
    }
  }
}

TEST(Steps, TheTimeToLiveCountsFromReady) {
  Stack stack = in(Phase::starting);
  EXPECT_EQ(stack.use.expires_at, std::nullopt);
  EXPECT_EQ(next_step(stack, noon), noon + settle_time);
  EXPECT_EQ(next_step(stack, noon + 2s), noon + ready_timeout);
  observe(stack, {Health::starting, "container chat-api-1 is created"}, true, noon + 1s);
  EXPECT_EQ(stack.why, "container chat-api-1 is created");
  observe(stack, {Health::ready, ""}, true, noon + 10min);
  EXPECT_EQ(stack.use.expires_at, noon + 40min);
  EXPECT_EQ(stack.why, "");
  EXPECT_EQ(next_step(stack, noon), noon + 40min);
  EXPECT_FALSE(pass_time(stack, noon + 39min));
  EXPECT_TRUE(pass_time(stack, noon + 40min));
  EXPECT_EQ(stack.why, "its time to live is over");
  EXPECT_EQ(stack.use.token_hash, "") << "the old token is worth nothing";
  EXPECT_EQ(stack.use.lease, LeaseId{7}) << "it is still up under its lease";
  EXPECT_EQ(next_step(stack, noon), Time::never());
}

TEST(Steps, AFailureIsToldUntilTheNextStart) {
  Stack stack = in(Phase::starting);
  observe(stack, {Health::unhealthy, "container chat-api-1 is unhealthy"}, true, noon + 2s);
  EXPECT_EQ(stack.why, "it did not become ready: container chat-api-1 is unhealthy");
  EXPECT_FALSE(stack.acquired());
  stopped(stack, noon + 3s);
  EXPECT_EQ(stack.phase, Phase::failed);
  EXPECT_EQ(stack.why, "it did not become ready: container chat-api-1 is unhealthy");
  EXPECT_FALSE(stack.use.lease) << "nothing is left of the use";
  acquire(stack, ana(), noon + 4s);
  EXPECT_EQ(stack.phase, Phase::queued);
  EXPECT_EQ(stack.why, "");
}

TEST(Steps, AStartIsGivenUpWithItsLastProgress) {
  Stack stack = in(Phase::starting);
  observe(stack, {Health::starting, "container chat-api-1 is created"}, true, noon + 1s);
  pass_time(stack, noon + ready_timeout);
  EXPECT_EQ(stack.why, "it was not ready within 15 min (stacks.ready_timeout): container chat-api-1 is created");
}

TEST(Steps, AnUnhealthyStackKeepsItsUse) {
  Stack stack = in(Phase::ready);
  EXPECT_TRUE(observe(stack, {Health::unhealthy, "ill"}, true, noon));
  EXPECT_EQ(stack.why, "ill");
  EXPECT_FALSE(observe(stack, {Health::unhealthy, "ill"}, true, noon)) << "told once";
  EXPECT_TRUE(observe(stack, {Health::ready, "fine"}, true, noon));
  EXPECT_EQ(stack.why, "");
}

TEST(Steps, AContainerThatIsRestartedByHandKeepsTheUse) {
  const Readiness exited{Health::exited, "container chat-api-1 is exited with exit code 143"};
  for (const Health gone : {Health::exited, Health::no_label, Health::absent}) {
    Stack stack = in(Phase::ready);
    observe(stack, {gone, "it is gone"}, true, noon + 1s);
    EXPECT_EQ(stack.why, "it is gone; it has 10 s to come back");
    EXPECT_EQ(next_step(stack, noon + 1s), noon + 1s + return_time);
    observe(stack, {Health::starting, "its health is starting"}, true, noon + 3s);
    observe(stack, exited, true, noon + 1s + return_time);
    EXPECT_EQ(stack.phase, Phase::ready) << "each restart has its own time";
    observe(stack, {Health::ready, "fine"}, true, noon + 15s);
    EXPECT_EQ(stack.why, "");
    EXPECT_EQ(next_step(stack, noon + 15s), noon + 30min);
    observe(stack, exited, true, noon + 20s);
    EXPECT_FALSE(observe(stack, exited, true, noon + 29s)) << "told once";
    EXPECT_TRUE(observe(stack, exited, true, noon + 30s));
    EXPECT_EQ(stack.phase, Phase::stopping);
    EXPECT_EQ(stack.why,
              "container chat-api-1 is exited with exit code 143, and was not back within 10 s; to replace containers, "
              "use sublet stack restart chat");
  }
  Stack stack = in(Phase::released);
  observe(stack, exited, true, noon + 1s);
  observe(stack, {Health::ready, "fine"}, true, noon + 2s);
  EXPECT_EQ(stack.phase, Phase::released);
  EXPECT_EQ(stack.why, "");
}

TEST(Steps, ARestartOfTheDaemonForgivesLateRenewals) {
  Stack stack = in(Phase::ready);
  forgive(stack, 30s, noon + 2h);
  EXPECT_FALSE(pass_time(stack, noon + 2h));
  EXPECT_EQ(stack.use.expires_at, noon + 2h + 30s);
  forgive(stack, 10s, noon + 2h);
  EXPECT_EQ(stack.use.expires_at, noon + 2h + 30s) << "never shorter";
}

TEST(Steps, AStackIsStoredWhole) {
  for (const Phase phase : all) {
    Stack stack = in(phase);
    stack.adopted = "/srv/chat";
    stack.set = {.vram = 3 * GiB, .devices = 2, .tier = core::Tier::batch, .exclusive = false};
    stack.peak = 2 * GiB;
    const auto read = from_row(to_row(stack));
    ASSERT_TRUE(read) << read.error().detail;
    EXPECT_EQ(to_row(*read), to_row(stack));
    EXPECT_EQ(read->set, stack.set);
    EXPECT_EQ(read->use.expires_at, stack.use.expires_at);
    EXPECT_EQ(read->use.lease, stack.use.lease);
    EXPECT_EQ(read->phase, phase);
  }
  EXPECT_FALSE(from_row({"stack", "chat", R"({"adopted":7})"}));
  EXPECT_FALSE(from_row({"stack", "chat", "no JSON"}));
}

TEST(Steps, NamesAreWordsOfCommandsAndTags) {
  for (const char* good : {"chat", "a", "0day", "Chat-2.5_x"}) EXPECT_TRUE(check_name(good)) << good;
  for (const char* bad : {"", "-x", ".x", "a b", "a/b", "ü", "a\n"}) EXPECT_FALSE(check_name(bad)) << bad;
  EXPECT_TRUE(check_name(std::string(58, 'a')));
  EXPECT_FALSE(check_name(std::string(59, 'a')));
}

}  // namespace
}  // namespace sublet::stacks
