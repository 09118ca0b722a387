// SPDX-License-Identifier: Apache-2.0
// The verbs of programs against a daemon that only answers: the calls that they make, and what they print.
#include "cli/app.h"
#include "client/fake_server.h"

#include <gtest/gtest.h>

namespace sublet::cli {
namespace {

using nlohmann::json;
using test::FakeRequest;
using test::FakeServer;

std::string problem(int http_status, const char* code, const std::string& detail) {
  return FakeServer::json(http_status, json{{"code", code}, {"detail", detail}, {"hint", "a hint"}}.dump());
}

struct ProgramVerbs : ::testing::Test {
  test::ScratchDir dir;
  std::string path = dir.path() + "/s.sock";
  std::string host = "unix://" + path;
  std::map<std::string, std::string> answers;  // by "METHOD TARGET"; other calls are not found
  std::vector<std::string> calls;              // "METHOD TARGET", and the body of a POST
  std::string out, err;
  int code = 0;

  static json program(const char* state) {
    return {{"tag", "serve"},   {"user", "ana"},          {"state", state},
            {"lease", nullptr}, {"lease_state", nullptr}, {"restart", "never"}};
  }

  void run(std::vector<std::string> words) {
    FakeServer server(path, [&](const FakeRequest& request) {
      const std::string call = request.line().substr(0, request.line().rfind(' '));
      calls.push_back(request.body.empty() ? call : call + " " + request.body);
      const auto found = answers.find(call);
      return FakeServer::Out{found == answers.end() ? problem(404, "NotFound", "no " + call) : found->second};
    });
    words.insert(words.begin(), "sublet");
    const auto mark = std::find(words.begin(), words.end(), "--");
    words.insert(mark, {"--host", host});
    std::vector<const char*> arguments;
    for (const std::string& word : words) arguments.push_back(word.c_str());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    code = run_program(static_cast<int>(arguments.size()), arguments.data());
    out = testing::internal::GetCapturedStdout();
    err = testing::internal::GetCapturedStderr();
  }

  json body_of(const std::string& call) const {
    for (const std::string& made : calls)
      if (made.starts_with(call + " ")) return json::parse(made.substr(call.size() + 1));
    return nullptr;
  }
};

TEST_F(ProgramVerbs, RunDetachedHandsTheProgramOver) {
  answers["GET /v1/status"] = FakeServer::json(200, R"({"devices": []})");
  answers["POST /v1/programs"] = FakeServer::json(201, program("starting").dump());
  run({"run",   "--detach", "--tag",   "serve",     "--vram", "1GiB",       "--memory",
       "2GiB",  "--soft",   "1536MiB", "--restart", "always", "--env",      "A=1",
       "--env", "A=[2,3]",  "--tier",  "batch",     "--",     "/bin/sleep", "600"});
  EXPECT_EQ(code, kOk) << err;
  EXPECT_EQ(out, "serve: starting\n");
  const json body = body_of("POST /v1/programs");
  EXPECT_EQ(body.at("arguments"), (json{"/bin/sleep", "600"}));
  EXPECT_EQ(body.at("command"), "/bin/sleep 600");
  EXPECT_EQ(body.at("consumer"), "sleep");
  EXPECT_EQ(body.at("vram_bytes"), GiB.count);
  EXPECT_EQ(body.at("memory_bytes"), 2 * GiB.count);
  EXPECT_EQ(body.at("soft_bytes"), 1536 * MiB.count);
  EXPECT_EQ(body.at("restart"), "always");
  EXPECT_EQ(body.at("tier"), "batch");
  EXPECT_EQ(body.at("environment").at(0), "A=[2,3]");
  for (const char* field : {"directory", "umask", "limits"}) EXPECT_TRUE(body.contains(field)) << field;
  for (const char* field : {"owner", "queue", "ttl_seconds"}) EXPECT_FALSE(body.contains(field)) << field;
}

TEST_F(ProgramVerbs, ACommandLineIsRunByAShellAndSizedByItsCeiling) {
  answers["GET /v1/status"] = FakeServer::json(200, R"({"devices": []})");
  answers["POST /v1/programs"] = FakeServer::json(201, program("starting").dump());
  run({"run", "--command", "python3 serve.py --port 1", "--memory", "536870912", "--json"});
  EXPECT_EQ(code, kOk) << err;
  EXPECT_EQ(json::parse(out), program("starting"));
  const json body = body_of("POST /v1/programs");
  EXPECT_EQ(body.at("arguments"), (json{"sh", "-c", "python3 serve.py --port 1"}));
  EXPECT_EQ(body.at("command"), "python3 serve.py --port 1");
  EXPECT_EQ(body.at("tag"), "serve.py");
  EXPECT_EQ(body.at("memory_bytes"), 536870912);
  EXPECT_FALSE(body.contains("vram_bytes")) << "the size follows the ceiling";
}

TEST_F(ProgramVerbs, RefusalsNameTheFlag) {
  answers["GET /v1/status"] = FakeServer::json(200, R"({"devices": []})");
  answers["POST /v1/programs"] = problem(409, "InUse", "there is a program 'serve'");
  run({"run", "--detach", "--tag", "serve", "--vram", "1GiB", "--", "true"});
  EXPECT_EQ(code, 125);
  EXPECT_EQ(err, "sublet: there is a program 'serve'\n  hint: a hint\n");
}

TEST_F(ProgramVerbs, UpdateSendsOnlyWhatWasGiven) {
  json changed = program("running");
  changed.update(json{{"memory_bytes", 2 * GiB.count}, {"soft_bytes", nullptr}, {"restart", "always"}});
  answers["POST /v1/programs/serve/update"] = FakeServer::json(200, changed.dump());
  run({"update", "serve", "--memory", "2GiB", "--soft", "none", "--restart", "always"});
  EXPECT_EQ(code, kOk) << err;
  EXPECT_EQ(body_of("POST /v1/programs/serve/update"),
            (json{{"memory_bytes", 2 * GiB.count}, {"soft_bytes", 0}, {"restart", "always"}}));
  EXPECT_EQ(err, "serve: ceiling 2.0 GiB, soft limit none, restart always\n");
  run({"update", "serve"});
  EXPECT_EQ(code, kUsage);
}

TEST_F(ProgramVerbs, AnotherUsersProgramIsNamedByUserAndTag) {
  answers["POST /v1/programs/ana%2Fserve/restart"] = FakeServer::json(200, program("starting").dump());
  run({"restart", "ana/serve"});
  EXPECT_EQ(code, kOk) << err;
  EXPECT_EQ(err, "ana/serve: starting\n");
}

TEST_F(ProgramVerbs, RemoveMayLeaveTheProgramRunning) {
  answers["POST /v1/programs/serve/remove"] = FakeServer::json(200, R"({"removed": "serve"})");
  run({"remove", "serve", "--keep-running"});
  EXPECT_EQ(body_of("POST /v1/programs/serve/remove"), (json{{"keep_running", true}}));
  EXPECT_NE(err.find("goes on under its lease"), std::string::npos) << err;
  run({"remove", "serve"});
  EXPECT_EQ(err, "serve is removed\n");
}

TEST_F(ProgramVerbs, StopPrefersTheProgramAndFallsBackToTheLease) {
  answers["POST /v1/programs/serve/stop"] = FakeServer::json(200, program("stopped").dump());
  run({"stop", "serve", "--force"});
  EXPECT_EQ(code, kOk) << err;
  EXPECT_EQ(err, "serve is stopped\n");
  EXPECT_EQ(body_of("POST /v1/programs/serve/stop"), (json{{"force", true}}));
  answers["POST /v1/leases/train/release"] = FakeServer::json(
      200, json{{"id", "lease-3"}, {"state", "ended"}, {"end_reason", "released"}, {"vram_bytes", 1}}.dump());
  run({"stop", "train"});
  EXPECT_EQ(code, kOk) << err;
  EXPECT_NE(err.find("lease-3 has ended"), std::string::npos) << err;
  calls.clear();
  run({"stop", "lease-9"});
  EXPECT_EQ(calls, (std::vector<std::string>{R"(POST /v1/leases/lease-9/release {"stop":true})"}));
  run({"stop", "neither"});
  EXPECT_EQ(code, kNotFound);
  EXPECT_NE(err.find("there is no program and no lease 'neither'"), std::string::npos) << err;
}

TEST_F(ProgramVerbs, StatusShowsTheProgramOrTheLease) {
  json shown = program("exited");
  answers["GET /v1/programs/serve"] = FakeServer::json(200, shown.dump());
  run({"status", "serve"});
  EXPECT_EQ(out, "serve (ana): exited\n    restart  never; 0 starts, 0 by the policy\n");
  run({"status", "serve", "--json"});
  EXPECT_EQ(json::parse(out), shown);
  answers["GET /v1/leases/lease-3"] =
      FakeServer::json(200, R"({"id": "lease-3", "state": "active", "consumer": "train", "user": "ana", "vram_bytes": 1,
                                "tier": "standard", "priority": 0})");
  run({"status", "lease-3"});
  EXPECT_EQ(out.substr(0, out.find('\n')), "lease-3 (train, ana): active");
  run({"status", "neither"});
  EXPECT_EQ(code, kNotFound);
}

TEST_F(ProgramVerbs, LogsPrintsTheTextOrAlsoTheTimes) {
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string line = "2026-11-26T20:00:00.123Z step 1\n";
  answers["GET /v1/programs/serve/log?follow=false&since=10m&lines=5"] =
      head + "10\r\n" + line.substr(0, 16) + "\r\n10\r\n" + line.substr(16) + "\r\n0\r\n\r\n";
  run({"logs", "serve", "-n", "5", "--since", "10m"});
  EXPECT_EQ(code, kOk) << err;
  EXPECT_EQ(out, "step 1\n");
  run({"logs", "serve", "-n", "5", "--since", "10m", "--timestamps"});
  EXPECT_EQ(out, line);
  run({"logs", "serve", "--since", "soon"});
  EXPECT_EQ(code, kUsage);
}

TEST_F(ProgramVerbs, ProgramsAreListed) {
  answers["GET /v1/programs"] = FakeServer::json(200, json{{"programs", {program("running")}}}.dump());
  run({"programs", "--no-header", "-o", "tag,state"});
  EXPECT_EQ(out, "serve  running\n");
  answers["GET /v1/programs"] = FakeServer::json(200, R"({"programs": []})");
  run({"programs"});
  EXPECT_EQ(err, "no supervised program: sublet run --detach starts one\n");
}

}  // namespace
}  // namespace sublet::cli
