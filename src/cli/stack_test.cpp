// SPDX-License-Identifier: Apache-2.0
// `sublet stack` against a daemon that only answers: its calls, and its words.
#include "cli/app.h"
#include "cli/exit_status.h"
#include "client/fake_server.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <deque>

namespace sublet::cli {
namespace {

using nlohmann::json;
using test::FakeRequest;
using test::FakeServer;

struct StackVerbs : ::testing::Test {
  test::ScratchDir dir;
  std::string path = dir.path() + "/s.sock";
  std::string host = "unix://" + path;
  std::map<std::string, std::deque<std::string>> answers;  // by "METHOD TARGET"; the last one is given again
  std::vector<std::string> calls;
  std::string err;
  int code = 0;

  static std::string stack(const char* state, const char* lease_state) {
    return FakeServer::json(200, json{{"name", "chat"},
                                      {"state", state},
                                      {"lease", "lease-1"},
                                      {"lease_state", lease_state},
                                      {"granted_bytes", 1 << 30},
                                      {"token", "secret"},
                                      {"on", {"gpu0"}}}
                                     .dump());
  }
  static std::string problem(const char* code, const std::string& detail) {
    return FakeServer::json(409, json{{"code", code}, {"detail", detail}, {"hint", "a hint"}}.dump());
  }

  void run(std::vector<std::string> words) {
    FakeServer server(path, [&](const FakeRequest& request) {
      std::string call = request.line().substr(0, request.line().rfind(' '));
      call = call.substr(0, call.find('?'));
      calls.push_back(call);
      auto& left = answers[call];
      if (left.empty()) return FakeServer::Out{FakeServer::json(404, R"({"code": "NotFound", "detail": "none"})")};
      const std::string answer = left.front();
      if (left.size() > 1) left.pop_front();
      return FakeServer::Out{answer};
    });
    words.insert(words.begin(), {"sublet", "stack"});
    words.insert(words.end(), {"--host", host});
    std::vector<const char*> arguments;
    for (const std::string& word : words) arguments.push_back(word.c_str());
    testing::internal::CaptureStderr();
    code = run_program(static_cast<int>(arguments.size()), arguments.data());
    err = testing::internal::GetCapturedStderr();
  }
  bool says(const std::string& text) const { return err.find(text) != std::string::npos; }
};

TEST_F(StackVerbs, ARenewalOfAPausedStackSaysWhatItWaitsFor) {
  answers["POST /v1/stacks/chat/renew"] = {stack("ready", "pausing"), stack("ready", "active")};
  answers["GET /v1/leases/lease-1"] = {FakeServer::json(
      200, R"j({"state": "pausing", "pause": {"reason": "time slice of lease-2 (stack-image, bea)"}})j")};
  run({"renew", "chat"});
  EXPECT_EQ(code, kOk) << err;
  EXPECT_TRUE(says("its lease is pausing (time slice of lease-2 (stack-image, bea)); "
                   "sublet why lease-1 tells what it waits for"))
      << err;
}

// A stack that is unhealthy is brought down by its next acquisition, which then starts it anew.
TEST_F(StackVerbs, AnAcquisitionWaitsForItsStackToComeDown) {
  answers["POST /v1/stacks/chat/acquire"] = {problem("InUse", "stack chat is being brought down"),
                                             stack("ready", "active")};
  answers["GET /v1/stacks/chat"] = {stack("stopping", "active"), stack("failed", "ended")};
  run({"acquire", "chat"});
  EXPECT_EQ(code, kOk) << err;
  EXPECT_TRUE(says("stack chat is being brought down")) << err;
  EXPECT_TRUE(says("stack chat is ready")) << err;
}

TEST_F(StackVerbs, AnAcquisitionWaitsForNobodyElse) {
  answers["POST /v1/stacks/chat/acquire"] = {problem("InUse", "stack chat is ready: user bea has acquired it")};
  answers["GET /v1/stacks/chat"] = {stack("ready", "active")};
  run({"acquire", "chat"});
  EXPECT_NE(code, kOk);
  EXPECT_EQ(err, "sublet: stack chat is ready: user bea has acquired it\n  hint: a hint\n");
}

TEST_F(StackVerbs, TheLinesOfComposeStayLines) {
  answers["POST /v1/stacks/chat/pull"] = {problem("Stale", "Compose could not pull\nmanifest unknown\n\x1b[1mmore")};
  run({"pull", "chat"});
  EXPECT_EQ(err, "sublet: Compose could not pull\n    manifest unknown\n    \\x1b[1mmore\n  hint: a hint\n");
}

}  // namespace
}  // namespace sublet::cli
