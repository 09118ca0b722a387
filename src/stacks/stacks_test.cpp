// SPDX-License-Identifier: Apache-2.0
#include "stacks/test_support.h"

#include <unistd.h>

namespace sublet::stacks {
namespace {

using namespace std::chrono_literals;
using core::EndReason;
using core::Tier;

TEST_F(StacksTest, AnAcquiredStackIsStartedAndBecomesReady) {
  worker_.holds = true;
  worker_.health = "starting";
  ASSERT_TRUE(acquire("chat"));
  EXPECT_EQ(state("chat"), "creating");
  ASSERT_EQ(worker_.ups.size(), 1U);
  EXPECT_EQ(worker_.ups[0].resolved, R"({"name":"chat"})") << "what was read is what runs";
  EXPECT_NE(worker_.ups[0].overlay.find("GPU-1"), std::string::npos);
  EXPECT_NE(worker_.ups[0].overlay.find(to_string(at("chat").use.lease)), std::string::npos);
  worker_.answer();
  settle();
  EXPECT_EQ(state("chat"), "starting");
  pass(5s);
  EXPECT_EQ(at("chat").why, "container chat-api-1 of service api runs, and its health is starting");
  worker_.containers["chat"][0].health = "healthy";
  worker_.tell("chat");
  settle();
  EXPECT_EQ(state("chat"), "ready");
  EXPECT_EQ(at("chat").use.expires_at, clock_->now() + 30min) << "counted from ready";
  EXPECT_EQ(lease("chat")->tag, "stack-chat");
  EXPECT_EQ(lease("chat")->vram, 8 * GiB);
  EXPECT_EQ(lease("chat")->owner.kind, core::OwnerKind::token);
}

TEST_F(StacksTest, StacksThatFitRunTogether) {
  ASSERT_TRUE(acquire("chat"));
  ASSERT_TRUE(acquire("voice"));
  EXPECT_EQ(states(), "ready down ready");
  ASSERT_TRUE(acquire("image"));
  EXPECT_EQ(states(), "ready queued ready") << "acquired stacks are never brought down for another";
  EXPECT_TRUE(worker_.downs.empty());
}

TEST_F(StacksTest, AnExclusiveStackWaitsForTheWholeDevice) {
  ASSERT_TRUE(stacks_->set("voice", {.exclusive = true}));
  ASSERT_TRUE(acquire("chat"));
  ASSERT_TRUE(acquire("voice"));
  EXPECT_EQ(states(), "ready down queued");
  EXPECT_EQ(lease("voice")->vram, 24 * GiB);
  ASSERT_TRUE(release("chat", true));
  EXPECT_EQ(states(), "down down queued") << "nobody waits for it at the moment";
  EXPECT_EQ(lease("voice")->state, core::LeaseState::offered);
  ASSERT_TRUE(stacks_->claim("voice"));
  settle();
  EXPECT_EQ(states(), "down down ready");
}

TEST_F(StacksTest, AReleasedStackStaysUpUntilItsMemoryIsNeeded) {
  ASSERT_TRUE(acquire("chat"));
  ASSERT_TRUE(release("chat"));
  EXPECT_EQ(state("chat"), "released");
  EXPECT_EQ(lease("chat")->tier, Tier::spot);
  EXPECT_EQ(lease("chat")->pausable, core::Pausable::no);
  const LeaseId kept = lease("chat")->id;
  worker_.holds = true;
  ASSERT_TRUE(acquire("image"));
  EXPECT_EQ(states(), "stopping creating down");
  EXPECT_EQ(engine_->find(kept)->end_reason, EndReason::revoked);
  EXPECT_TRUE(worker_.ups.size() == 1 && worker_.downs.size() == 1) << "its containers may still hold the memory";
  EXPECT_EQ(worker_.downs[0].resolved, R"({"name":"chat"})");
  worker_.answer();
  settle();
  EXPECT_EQ(states(), "down creating down");
  ASSERT_EQ(worker_.ups.size(), 2U);
  worker_.answer();
  settle();
  EXPECT_EQ(states(), "down ready down");
}

TEST_F(StacksTest, AReleasedStackWithProcessesIsBroughtDownForAWaitingLease) {
  ASSERT_TRUE(acquire("chat"));
  ASSERT_TRUE(acquire("voice"));
  for (const char* name : {"chat", "voice"}) {
    core::Attach attach{.lease = lease(name)->id, .owner = lease(name)->owner, .as_owner = false};
    attach.booked.process = proc::ProcRoot::open()->read(::getpid())->ref;
    ASSERT_TRUE(engine_->decide(attach));
  }
  ASSERT_TRUE(release("chat"));
  pass(1s);
  ASSERT_TRUE(release("voice"));
  EXPECT_EQ(states(), "released down released") << "nobody needs their memory";
  core::Submit wanted;
  wanted.lease.uid = 1001;
  wanted.lease.user = wanted.lease.tenant = "bea";
  wanted.lease.consumer = "train";
  wanted.lease.vram = 12 * GiB;
  wanted.lease.owner.kind = core::OwnerKind::token;
  wanted.held = true;
  const auto train = engine_->decide(wanted);
  settle();
  EXPECT_EQ(states(), "down down released") << "one is enough, and chat was released first";
  EXPECT_EQ(at("chat").why, "its memory is for " + to_string(*train) + " (train, bea)");
  pass(1s);
  EXPECT_NE(engine_->find(*train)->state, core::LeaseState::queued);
  ASSERT_TRUE(engine_->decide(core::Release{.lease = *train, .force = true}));
  settle();
  EXPECT_EQ(at("chat").why, "") << "the lease that it named has ended";
}

TEST_F(StacksTest, AReleasedStackIsTakenOverAtOnce) {
  ASSERT_TRUE(acquire("chat"));
  ASSERT_TRUE(release("chat"));
  const LeaseId kept = lease("chat")->id;
  ASSERT_TRUE(acquire("chat", 1001, 5min));
  settle();
  EXPECT_EQ(state("chat"), "ready");
  EXPECT_EQ(worker_.ups.size(), 1U) << "it was up";
  EXPECT_EQ(lease("chat")->id, kept);
  EXPECT_EQ(lease("chat")->tier, Tier::standard);
  EXPECT_EQ(lease("chat")->pausable, core::Pausable::automatic);
  EXPECT_EQ(lease("chat")->user, "bea");
  EXPECT_EQ(lease("chat")->tenant, "lab") << "not the user's name";
  EXPECT_EQ(at("chat").use.expires_at, clock_->now() + 5min);
}

TEST_F(StacksTest, AReleasedStackThatIsUnhealthyIsStartedAnew) {
  ASSERT_TRUE(acquire("chat"));
  ASSERT_TRUE(release("chat"));
  worker_.containers["chat"][0].health = "unhealthy";
  worker_.tell("chat");
  settle();
  EXPECT_EQ(state("chat"), "released") << "it may recover";
  const Status refused = acquire("chat", 1001);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::InUse);
  EXPECT_EQ(refused.error().detail, "stack chat is being brought down");
  settle();
  EXPECT_EQ(state("chat"), "failed");
  EXPECT_EQ(at("chat").why, "it was not ready any more: container chat-api-1 of service api is unhealthy");
  ASSERT_TRUE(acquire("chat", 1001));
  EXPECT_EQ(state("chat"), "ready");
  EXPECT_EQ(worker_.ups.size(), 2U);
}

TEST_F(StacksTest, AnAcquiredStackIsNobodyElses) {
  ASSERT_TRUE(acquire("chat"));
  const Status second = acquire("chat", 1001);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::InUse);
  EXPECT_EQ(second.error().detail,
            "stack chat is ready: user ana has acquired it until " + format_rfc3339(clock_->now() + 30min));
  EXPECT_EQ(second.error().hint, "wait until it is released: sublet stack acquire --wait");
  EXPECT_EQ(acquire("chat", 1000).error().hint,
            "sublet stack renew chat keeps it, and sublet stack release chat gives it back")
      << "it is the caller's own";
}

TEST_F(StacksTest, AFailedStartIsBroughtDownAndCanBeRepeatedAtOnce) {
  worker_.up_fails["chat"] = Error{Code::BadRequest, "port 8080 is already allocated", ""};
  ASSERT_TRUE(acquire("chat"));
  EXPECT_EQ(state("chat"), "failed");
  EXPECT_EQ(at("chat").why, "it could not be started: port 8080 is already allocated");
  EXPECT_EQ(worker_.downs.size(), 1U) << "half of it was up";
  EXPECT_TRUE(worker_.containers.empty());
  EXPECT_TRUE(std::ranges::all_of(engine_->state().leases.by_id, [](const auto& each) { return each.second.ended(); }));
  worker_.up_fails.clear();
  ASSERT_TRUE(acquire("chat"));
  EXPECT_EQ(state("chat"), "ready");
}

TEST_F(StacksTest, AContainerThatDiesEndsTheLease) {
  ASSERT_TRUE(acquire("chat"));
  const LeaseId id = lease("chat")->id;
  worker_.containers["chat"][0].status = "exited";
  worker_.containers["chat"][0].exit_code = 137;
  worker_.tell("chat");
  settle();
  EXPECT_EQ(state("chat"), "ready") << "it may come back";
  EXPECT_FALSE(engine_->find(id)->ended());
  pass(return_time);
  EXPECT_EQ(state("chat"), "failed");
  const std::string why = "container chat-api-1 of service api is exited with exit code 137, and was not back within";
  EXPECT_TRUE(at("chat").why.starts_with(why)) << at("chat").why;
  EXPECT_TRUE(engine_->find(id)->ended());
  EXPECT_EQ(worker_.downs.size(), 1U);
}

TEST_F(StacksTest, ARevokedLeaseBringsTheStackDown) {
  ASSERT_TRUE(acquire("chat"));
  ASSERT_TRUE(engine_->decide(core::Release{.lease = lease("chat")->id, .force = true, .revoke = true}));
  settle();
  EXPECT_EQ(state("chat"), "down");
  EXPECT_NE(at("chat").why.find("its lease ended: "), std::string::npos) << at("chat").why;
  EXPECT_TRUE(worker_.containers.empty());
}

TEST_F(StacksTest, AReleaseWhileItStartsBringsItDown) {
  worker_.holds = true;
  ASSERT_TRUE(acquire("chat"));
  ASSERT_TRUE(release("chat"));
  EXPECT_EQ(state("chat"), "stopping");
  EXPECT_TRUE(worker_.downs.empty()) << "one call at a time";
  worker_.answer();
  settle();
  ASSERT_EQ(worker_.downs.size(), 1U);
  worker_.answer();
  settle();
  EXPECT_EQ(state("chat"), "down");
  EXPECT_TRUE(worker_.containers.empty());
}

TEST_F(StacksTest, AQueuedAcquisitionIsCancelled) {
  ASSERT_TRUE(acquire("chat"));
  ASSERT_TRUE(acquire("image"));
  const LeaseId id = lease("image")->id;
  ASSERT_TRUE(release("image"));
  EXPECT_EQ(states(), "ready down down");
  EXPECT_EQ(engine_->find(id)->end_reason, EndReason::cancelled);
  EXPECT_EQ(worker_.ups.size(), 1U);
}

TEST_F(StacksTest, AnOfferThatNobodyClaimsStartsNothing) {
  ASSERT_TRUE(acquire("chat"));
  ASSERT_TRUE(acquire("image"));
  ASSERT_TRUE(release("chat", true));
  restart();
  EXPECT_EQ(states(), "down queued down");
  for (int step = 0; step < 60; ++step) pass(5s);
  EXPECT_EQ(states(), "down down down");
  EXPECT_EQ(worker_.ups.size(), 1U);
}

TEST_F(StacksTest, AFailedDownIsRepeatedAndKeepsTheLease) {
  ASSERT_TRUE(acquire("chat"));
  worker_.down_fails["chat"] = unavailable("Cannot connect to the engine");
  ASSERT_TRUE(release("chat", true));
  EXPECT_EQ(state("chat"), "stopping");
  EXPECT_EQ(stacks_->find("chat")->trouble, "it could not be brought down: Cannot connect to the engine");
  EXPECT_FALSE(lease("chat")->ended()) << "its containers may still hold the memory";
  worker_.down_fails.clear();
  pass(2s);
  EXPECT_EQ(state("chat"), "down");
}

TEST_F(StacksTest, AWorkerThatIsAwayEndsNothing) {
  ASSERT_TRUE(acquire("chat"));
  worker_.tell_engine(false, "connection refused");
  settle();
  EXPECT_EQ(state("chat"), "ready");
  const Status refused = acquire("voice");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::Unavailable);
  EXPECT_EQ(refused.error().detail, "the container engine cannot be reached: connection refused");
  const auto warnings = engine_->warnings();
  EXPECT_EQ(std::ranges::count(warnings, "stacks", &engine::Warning::code), 1);
  worker_.tell_engine(true);
  settle();
  ASSERT_TRUE(acquire("voice"));
  EXPECT_EQ(states(), "ready down ready");
}

TEST_F(StacksTest, AnUpThatTheWorkerCouldNotMakeIsRepeated) {
  worker_.holds = true;
  ASSERT_TRUE(acquire("chat"));
  worker_.away = "sublet-stacks is away";
  worker_.answer();
  settle();
  EXPECT_EQ(state("chat"), "creating");
  worker_.away.clear();
  worker_.holds = false;
  pass(2s);
  EXPECT_EQ(state("chat"), "ready");
}

TEST_F(StacksTest, ContainersOfOthersAreShownAndAcquired) {
  worker_.create("chat", "/srv/chat");
  worker_.tell("chat");
  settle();
  EXPECT_EQ(state("chat"), "up");
  ASSERT_TRUE(acquire("chat"));
  EXPECT_EQ(state("chat"), "ready");
  EXPECT_EQ(worker_.ups.size(), 1U) << "they get their lease";
}

TEST_F(StacksTest, ContainersOfAnotherDirectoryAreLeftAlone) {
  const std::string text =
      "container chat-api-1 was started from /srv/others/chat, in the same Compose project 'chat'"
      " as stack chat";
  ASSERT_TRUE(acquire("image"));
  ASSERT_TRUE(acquire("chat"));
  EXPECT_EQ(states(), "queued ready down");
  worker_.create("chat", "/srv/others/chat");
  worker_.tell("chat");
  settle();
  ASSERT_TRUE(release("image", true));
  ASSERT_TRUE(stacks_->claim("chat"));
  settle();
  EXPECT_EQ(state("chat"), "failed");
  EXPECT_EQ(at("chat").why, "it cannot be started: " + text);
  const Status refused = acquire("chat");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::InUse);
  EXPECT_EQ(refused.error().detail, text);
  EXPECT_EQ(worker_.ups.size(), 1U) << "image";
  EXPECT_EQ(worker_.downs.size(), 1U) << "image";
  EXPECT_TRUE(worker_.containers.contains("chat"));
  worker_.containers["chat"][0].labels["com.docker.compose.project.working_dir"] = "/srv/x/../chat/";
  worker_.tell("chat");
  settle();
  EXPECT_TRUE(acquire("chat")) << "it is the same directory";
}

TEST_F(StacksTest, AStackIsNotBroughtDownWithContainersOfAnotherDirectory) {
  ASSERT_TRUE(acquire("chat"));
  compose::Container other = worker_.containers["chat"][0];
  other.name = "chat-web-1";
  other.labels = {{"com.docker.compose.project.working_dir", "/srv/others/chat"}};
  worker_.containers["chat"].push_back(other);
  worker_.tell("chat");
  settle();
  EXPECT_EQ(state("chat"), "ready");
  ASSERT_TRUE(release("chat", true));
  EXPECT_EQ(state("chat"), "stopping");
  EXPECT_NE(stacks_->find("chat")->trouble.find("container chat-web-1 was started from /srv/others/chat"),
            std::string::npos)
      << stacks_->find("chat")->trouble;
  EXPECT_TRUE(worker_.downs.empty());
  EXPECT_FALSE(lease("chat")->ended()) << "its own containers may hold the memory";
  worker_.containers["chat"].pop_back();
  worker_.tell("chat");
  pass(2s);
  EXPECT_EQ(state("chat"), "down");
}

TEST_F(StacksTest, ARestartUnderAnotherProjectNameBringsTheOldProjectDown) {
  ASSERT_TRUE(acquire("chat"));
  worker_.descriptions[0].project = "other";
  stacks_->refresh(1s, [] {});
  settle();
  worker_.down_fails["chat"] = {.code = Code::Stale, .detail = "no", .hint = {}};
  ASSERT_TRUE(stacks_->restart("chat"));
  pass(3s);
  EXPECT_EQ(worker_.ups.size(), 1U) << "the old containers hold the memory of the lease";
  ASSERT_FALSE(worker_.downs.empty());
  EXPECT_EQ(worker_.downs.back().project, "chat");
  EXPECT_NE(lease("chat"), nullptr);
  EXPECT_FALSE(lease("chat")->ended()) << "it stays until the containers are gone";
  worker_.down_fails.clear();
  pass(5s);
  EXPECT_EQ(state("chat"), "failed");
  EXPECT_NE(at("chat").why.find("'other' now, and was 'chat'"), std::string::npos) << at("chat").why;
  ASSERT_TRUE(acquire("chat"));
  EXPECT_EQ(worker_.ups.back().project, "other");
}

TEST_F(StacksTest, AnAdoptedStackIsCheckedFirst) {
  const auto adopt = [&](std::string name) {
    std::optional<Status> result;
    stacks_->adopt({std::move(name), "/opt/x"}, [&](Status done) { result = std::move(done); });
    settle();
    return *result;
  };
  EXPECT_EQ(adopt("chat").error().code, Code::InUse);
  EXPECT_EQ(adopt("none").error().code, Code::NotFound);
  EXPECT_EQ(adopt("a b").error().code, Code::BadRequest);
  worker_.add("broken").error = Error{Code::BadRequest, "compose.yaml:3: mapping values are not allowed", ""};
  EXPECT_EQ(adopt("broken").error().detail, "compose.yaml:3: mapping values are not allowed");
  worker_.add("extra", R"({"vrm":1})");
  EXPECT_EQ(adopt("extra").error().detail, "x-sublet of stack extra has the unknown field 'vrm'");
  worker_.descriptions.back().extension = R"({"vram":"1GiB"})";
  EXPECT_TRUE(adopt("extra"));
  EXPECT_EQ(at("extra").adopted, "/opt/x");
  restart();
  EXPECT_EQ(worker_.described.back().adopted, (std::vector<compose::Adopted>{{"extra", "/opt/x"}}));
  ASSERT_TRUE(acquire("extra"));
  EXPECT_EQ(stacks_->remove("extra").error().code, Code::InUse);
  ASSERT_TRUE(release("extra", true));
  ASSERT_TRUE(stacks_->remove("extra"));
  settle();
  EXPECT_EQ(stacks_->find("extra"), nullptr);
  EXPECT_EQ(stacks_->remove("chat").error().code, Code::BadRequest);
}

TEST_F(StacksTest, ARestartGoesOnFromTheEnginesState) {
  ASSERT_TRUE(acquire("chat"));
  restart(10min);
  EXPECT_EQ(state("chat"), "ready");
  EXPECT_EQ(worker_.ups.size(), 1U);
  worker_.containers.erase("chat");  // while no daemon looks
  restart();
  pass(return_time);
  EXPECT_EQ(state("chat"), "down");
  EXPECT_EQ(at("chat").why, "its containers were removed");
}

TEST_F(StacksTest, ARestartDuringUpRepeatsIt) {
  worker_.holds = true;
  ASSERT_TRUE(acquire("chat"));
  worker_.holds = false;
  restart();
  EXPECT_EQ(worker_.ups.size(), 2U);
  EXPECT_EQ(state("chat"), "ready");
}

TEST_F(StacksTest, ARestartDuringDownRepeatsIt) {
  ASSERT_TRUE(acquire("chat"));
  worker_.holds = true;
  ASSERT_TRUE(release("chat", true));
  worker_.holds = false;
  restart();
  EXPECT_EQ(worker_.downs.size(), 2U);
  EXPECT_EQ(state("chat"), "down");
}

TEST_F(StacksTest, ThePeakIsTheNextSize) {
  worker_.descriptions[0].extension.clear();
  std::optional<bool> looked;
  stacks_->refresh(1s, [&] { looked = true; });
  settle();
  ASSERT_TRUE(looked);
  EXPECT_EQ(stacks_->size(*stacks_->find("chat"))->vram, 24 * GiB) << "a whole device";
  ASSERT_TRUE(acquire("chat"));
  EXPECT_EQ(lease("chat")->vram, 24 * GiB);
}

TEST_F(StacksTest, ALookThatTakesLongIsNotWaitedFor) {
  int answered = 0;
  stacks_->refresh(1s, [&] { ++answered; });
  stacks_->refresh(1s, [&] { ++answered; });
  settle();
  EXPECT_EQ(answered, 2);
  EXPECT_EQ(worker_.described.size(), 3U) << "the second asks for a look of its own";
}

}  // namespace
}  // namespace sublet::stacks
