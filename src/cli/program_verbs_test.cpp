// SPDX-License-Identifier: Apache-2.0
// The verbs of programs against a daemon that only answers: the calls that they make, and what they print.
#include "cli/app.h"
#include "cli/exit_status.h"
#include "client/fake_server.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <deque>

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
  std::map<std::string, std::deque<json>> later;  // answers that are given once each, before those of `answers`
  std::vector<std::string> calls;                 // "METHOD TARGET", and the body of a POST
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
      if (auto next = later.find(call); next != later.end() && !next->second.empty()) {
        const std::string body = next->second.front().dump();
        next->second.pop_front();
        return FakeServer::Out{FakeServer::json(200, body)};
      }
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
  run({"restart", "ana/serve", "--no-wait"});
  EXPECT_EQ(code, kOk) << err;
  EXPECT_EQ(err, "ana/serve: starting\n");
}

TEST_F(ProgramVerbs, RestartWaitsForTheNewStart) {
  json before = program("running"), after = program("running");
  before.update(json{{"starts", 1}, {"stopping", true}});
  after.update(json{{"starts", 2}, {"stopping", false}});
  answers["POST /v1/programs/serve/restart"] = FakeServer::json(200, before.dump());
  later["GET /v1/programs/serve"] = {before, after};
  run({"restart", "serve"});
  EXPECT_EQ(code, kOk) << err;
  EXPECT_EQ(err, "serve: running\n");
  EXPECT_TRUE(later["GET /v1/programs/serve"].empty()) << "it waited for the second start";
  after.update(json{{"state", "failed"}, {"why", "no such file"}});
  later["GET /v1/programs/serve"] = {after};
  run({"restart", "serve"});
  EXPECT_EQ(code, kFailed);
  EXPECT_EQ(err, "sublet: serve has failed: no such file\n  hint: see: sublet status serve\n");
}

TEST_F(ProgramVerbs, StartLeavesAProgramThatRunsAlone) {
  json up = program("running");
  up["starts"] = 1;
  answers["POST /v1/programs/serve/start"] = FakeServer::json(200, up.dump());
  run({"start", "serve"});
  EXPECT_EQ(code, kOk) << err;
  EXPECT_EQ(err, "serve: running\n");
}

TEST_F(ProgramVerbs, RemoveWaitsUntilTheTagIsFree) {
  json ends = program("running"), another = program("running");
  ends.update(json{{"stopping", true}, {"created_at", "2026-11-26T20:00:00.000Z"}});
  another["created_at"] = "2026-11-26T20:01:00.000Z";
  answers["POST /v1/programs/serve/remove"] = FakeServer::json(200, ends.dump());
  later["GET /v1/programs/serve"] = {ends, ends};
  run({"remove", "serve"});
  EXPECT_EQ(code, kOk) << err;
  EXPECT_EQ(err, "serve is removed\n");
  EXPECT_TRUE(later["GET /v1/programs/serve"].empty()) << "until it is not found";
  later["GET /v1/programs/serve"] = {another};
  run({"remove", "serve"});
  EXPECT_EQ(code, kOk) << "somebody has added a program with its tag";
  calls.clear();
  run({"remove", "serve", "--no-wait"});
  EXPECT_EQ(err, "serve is removed once its program has ended\n");
  EXPECT_EQ(calls.size(), 1u);
}

TEST_F(ProgramVerbs, SeveralProgramsAndAllOfTheCaller) {
  for (const char* tag : {"a", "b"}) {
    json gone = program("stopped");
    gone["tag"] = tag;
    for (const char* call : {"stop", "remove"})
      answers[std::string("POST /v1/programs/") + tag + "/" + call] = FakeServer::json(200, gone.dump());
  }
  run({"stop", "a", "missing", "b"});
  EXPECT_EQ(code, kNotFound);
  EXPECT_NE(err.find("a is stopped\nb is stopped\n"), std::string::npos) << err;
  json mine = program("stopped"), other = program("stopped");
  mine.update(json{{"tag", "a"}, {"uid", ::geteuid()}});
  other.update(json{{"tag", "b"}, {"uid", ::geteuid() + 1}});
  answers["GET /v1/programs"] = FakeServer::json(200, json{{"programs", {mine, other}}}.dump());
  run({"remove", "--all"});
  EXPECT_EQ(code, kOk) << err;
  EXPECT_EQ(err, "a is removed\n") << "programs of others stay";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"remove"}, {"stop"}, {"restart", "a", "--all"}, {"start"}}) {
    run(words);
    EXPECT_EQ(code, kUsage) << err;
  }
}

TEST_F(ProgramVerbs, RunMayReplaceAProgram) {
  answers["GET /v1/status"] = FakeServer::json(200, R"({"devices": []})");
  json before = program("running"), after = program("running");
  before.update(json{{"starts", 3}, {"stopping", true}});
  after.update(json{{"starts", 4}, {"stopping", false}});
  answers["POST /v1/programs"] = FakeServer::json(200, before.dump());
  later["GET /v1/programs/serve"] = {before, after};
  run({"run", "--detach", "--replace", "--tag", "serve", "--vram", "1GiB", "--", "/bin/sleep", "1"});
  EXPECT_EQ(code, kOk) << err;
  EXPECT_EQ(out, "serve: running\n");
  EXPECT_EQ(body_of("POST /v1/programs").at("replace"), true);
  run({"run", "--replace", "--vram", "1GiB", "--", "/bin/sleep", "1"});
  EXPECT_EQ(code, kUsage);
}

TEST_F(ProgramVerbs, AReplacementTellsTheSettingsThatItChanged) {
  answers["GET /v1/status"] = FakeServer::json(200, R"({"devices": []})");
  json before = program("running"), after = program("running");
  before.update(json{{"restart", "always"}, {"tier", "batch"}, {"memory_bytes", 2LL << 30}, {"vram_bytes", 2LL << 30}});
  after.update(json{{"tier", "standard"}, {"memory_bytes", nullptr}, {"vram_bytes", 1LL << 30}});
  later["GET /v1/programs/serve"] = {before};
  answers["POST /v1/programs"] = FakeServer::json(200, after.dump());
  run({"run", "--detach", "--replace", "--tag", "serve", "--vram", "1GiB", "--", "/bin/sleep", "1"});
  EXPECT_EQ(code, kOk) << err;
  const char* changed =
      "restart always -> never, tier batch -> standard, ceiling 2.0 GiB -> none, VRAM 2.0 GiB -> 1.0 GiB";
  EXPECT_NE(err.find(changed), std::string::npos) << err;
}

TEST_F(ProgramVerbs, ALogWhoseBeginningIsGoneSaysSo) {
  answers["GET /v1/programs/serve"] = FakeServer::json(200, program("exited").dump());
  const auto log = [](const char* text) {
    return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", std::strlen(text), text);
  };
  answers["GET /v1/programs/serve/log?follow=false"] = log("2026-11-26T20:00:00.123Z step 9\n");
  run({"logs", "serve"});
  EXPECT_EQ(out, "step 9\n");
  EXPECT_NE(err.find("the beginning of this log was dropped"), std::string::npos) << err;
  answers["GET /v1/programs/serve/log?follow=false"] = log(
      "2026-11-26T20:00:00.123Z\tstart 1: pid 7 under lease-3\n2026-11-26T20:00:00.124Z step 1\n");
  run({"logs", "serve"});
  EXPECT_EQ(err, "");
}

TEST_F(ProgramVerbs, AClosedSessionWhoseWorkIsNotSavedIsAFailure) {
  const json checkpoint{{"problem", "it ended with exit status 1"}};
  json session{{"id", "session-1"}, {"state", "closed"}, {"end_reason", "closed"}, {"checkpoint", nullptr}};
  answers["POST /v1/sessions/nb/close"] = FakeServer::json(200, session.dump());
  run({"session", "close", "nb"});
  EXPECT_EQ(code, kOk) << err;
  session["checkpoint"] = checkpoint;
  answers["POST /v1/sessions/nb/close"] = FakeServer::json(200, session.dump());
  run({"session", "close", "nb"});
  EXPECT_EQ(code, kFailed);
  EXPECT_NE(err.find("its work is not saved: it ended with exit status 1"), std::string::npos) << err;
  session["state"] = "active";
  answers["POST /v1/sessions/nb/close"] = FakeServer::json(200, session.dump());
  run({"session", "close", "nb"});
  EXPECT_EQ(code, kFailed);
  EXPECT_NE(err.find("sublet session close --force session-1"), std::string::npos) << err;
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
  EXPECT_EQ(code, kDoesNotRun);
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

TEST_F(ProgramVerbs, StatusExitsByTheStateOfTheProgramOrLease) {
  const struct {
    const char *state, *reason;
    int code;
  } rows[] = {
      {"running", "", kOk},        {"starting", "", kWaits},    {"queued", "", kWaits},
      {"backoff", "", kWaits},     {"stopped", "", kDoesNotRun}, {"exited", "", kDoesNotRun},
      {"failed", "", kHasFailed},  {"active", "", kOk},         {"paused", "", kOk},
      {"resuming", "", kOk},       {"offered", "", kWaits},     {"poisoned", "", kHasFailed},
      {"ended", "released", kDoesNotRun}, {"ended", "over_limit", kHasFailed},
  };
  for (const auto& row : rows) {
    json shown = program(row.state);
    shown["end_reason"] = row.reason;
    answers["GET /v1/programs/serve"] = FakeServer::json(200, shown.dump());
    for (const bool as_json : {false, true}) {
      if (as_json) run({"status", "serve", "--json"});
      else run({"status", "serve"});
      EXPECT_EQ(code, row.code) << row.state << " " << err;
    }
  }
}

TEST_F(ProgramVerbs, WaitTellsItsOwnFailuresFromTheStatusOfTheProgram) {
  run({"wait", "missing"});
  EXPECT_EQ(code, kOurs) << err;
  answers["GET /v1/leases/train"] = FakeServer::json(
      200,
      json{{"id", "lease-3"}, {"state", "ended"}, {"end_reason", "released"}, {"vram_bytes", 1}, {"exit_status", 4}}
          .dump());
  run({"wait", "train"});
  EXPECT_EQ(code, 4) << err;
}

TEST_F(ProgramVerbs, LogsTellsMarksFromTheOutput) {
  const std::string at = "2026-11-26T20:00:00.123Z";
  const std::string text = at + "\tstart 1: pid 7\n" + at + " == sublet " + at + ": start 9 ==\n" + at + " hello\n";
  const auto stream = [](const std::string& all) {
    return fmt::format("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n", all.size(), all);
  };
  answers["GET /v1/programs/serve/log?follow=false"] = stream(text);
  run({"logs", "serve"});
  EXPECT_EQ(out, "== sublet " + at + ": start 1: pid 7 ==\n == sublet " + at + ": start 9 ==\nhello\n");
  run({"logs", "serve", "--timestamps"});
  EXPECT_EQ(out, "== sublet " + at + ": start 1: pid 7 ==\n" + at + " == sublet " + at + ": start 9 ==\n" + at +
                     " hello\n");
  answers["GET /v1/programs/serve/log?follow=false&marks=false"] = stream(text.substr(text.find('\n') + 1));
  run({"logs", "serve", "--no-marks"});
  EXPECT_EQ(out, "== sublet " + at + ": start 9 ==\nhello\n") << "each line as it was written";
}

TEST_F(ProgramVerbs, LogsPrintsTheTextOrAlsoTheTimes) {
  const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string line = "2026-11-26T20:00:00.123Z step 1\n";
  answers["GET /v1/programs/serve/log?follow=false&since=600000ms&lines=5"] =
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
