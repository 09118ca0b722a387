// SPDX-License-Identifier: Apache-2.0
// Tests the keeper against a fake daemon, whose answers the test writes.
#include "keep/keeper.h"

#include "client/fake_server.h"
#include "proc/exit_record.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace sublet::keep {
namespace {

using nlohmann::json;
using test::FakeRequest;
using test::FakeServer;
using test::ScratchDir;

struct KeeperTest : ::testing::Test {
  ScratchDir dir;
  std::string path = dir.path() + "/s.sock";
  std::string record = dir.path() + "/record.json";
  Signals signals;  // made before the server's thread, which must not receive the signals
  Events events;
  client::Client client{client::Endpoint{path}};
  std::vector<std::string> said, noted;

  json lease(const char* state, json more = json::object()) const {
    json out{{"id", "lease-7"}, {"state", state}, {"exit_record", record}, {"stop_grace_seconds", 1}};
    out.update(more);
    return out;
  }
  static FakeServer::Out reply(const json& body, int status = 200) { return {FakeServer::json(status, body.dump())}; }

  Outcome keep(const std::string& script) {
    client.set_interrupt(events.interrupt());
    Listener listener{[this](const std::string& line) { said.push_back(line); },
                      [this](const char* event, const json&) { noted.push_back(event); }};
    Keeper keeper(client, events, signals, listener, *client::parse_lease(lease("active")), "secret");
    Launch launch{{"/bin/sh", "-c", script}, {"PATH=/bin:/usr/bin"}};
    return keeper.run(launch);
  }
  // The server answers only after the program has made this file, and so is set up.
  std::string ready = dir.path() + "/ready";
  void wait_until_ready() const {
    while (!std::filesystem::exists(ready)) std::this_thread::yield();
  }
  // Returns the body of the last call of this kind.
  static json body_of(FakeServer& server, const std::string& call) {
    json found;
    for (const auto& request : server.seen()) {
      if (request.line().find(call) != std::string::npos) found = json::parse(request.body);
    }
    return found;
  }
  // Answers as a daemon without news: a long-poll gets no answer.
  FakeServer::Out usual(const FakeRequest& request) const {
    if (request.line().starts_with("GET")) return {};
    return reply(lease(request.line().find("/release") != std::string::npos ? "ended" : "active"));
  }
};

TEST_F(KeeperTest, BooksRunsAndReports) {
  FakeServer server(path, [this](const FakeRequest& r) { return usual(r); });
  const Outcome outcome = keep("exit 7");
  EXPECT_EQ(outcome.code, 7);
  EXPECT_EQ(outcome.interrupted_by, 0);
  const json attach = body_of(server, "/attach");
  EXPECT_EQ(attach["keeper_pid"], ::getpid());
  EXPECT_GT(attach["pid"], 0);
  EXPECT_EQ(body_of(server, "/release"), (json{{"exit_status", 7}}));
  for (const auto& request : server.seen()) EXPECT_EQ(request.header("Sublet-Lease-Token"), "secret");
  const auto kept = proc::read_exit_record(record, ::getuid());
  ASSERT_TRUE(kept) << kept.error().detail;
  EXPECT_EQ(kept->exit_status, 7);
  EXPECT_EQ(kept->lease.number, 7u);
  EXPECT_EQ(noted, std::vector<std::string>{"started"});
}

TEST_F(KeeperTest, ReportsASignal) {
  FakeServer server(path, [this](const FakeRequest& r) { return usual(r); });
  EXPECT_EQ(keep("kill -USR1 $$").code, 128 + SIGUSR1);
  EXPECT_EQ(body_of(server, "/release"), (json{{"signal", SIGUSR1}}));
}

TEST_F(KeeperTest, DoesNotStartWhatCouldNotBeBooked) {
  FakeServer server(path, [&](const FakeRequest& r) {
    if (r.line().find("/attach") == std::string::npos) return usual(r);
    return reply({{"code", "Stale"}, {"detail", "lease-7 has ended"}}, 409);
  });
  EXPECT_EQ(keep("touch '" + dir.path() + "/ran'").code, 125);
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/ran"));
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("lease-7 has ended"), std::string::npos);
  EXPECT_FALSE(body_of(server, "/release").is_null());
}

TEST_F(KeeperTest, BooksWithTheSameKeyWhenTheAnswerWasLost) {
  int attempts = 0;
  FakeServer server(path, [&](const FakeRequest& r) {
    if (r.line().find("/attach") != std::string::npos && ++attempts < 3) return FakeServer::Out{"", true};
    return usual(r);
  });
  EXPECT_EQ(keep("exit 0").code, 0);
  std::set<std::string> keys;
  for (const auto& request : server.seen()) {
    if (request.line().find("/attach") != std::string::npos) keys.insert(request.header("Idempotency-Key"));
  }
  EXPECT_EQ(attempts, 3);
  EXPECT_EQ(keys.size(), 1u);
}

TEST_F(KeeperTest, WaitsForTheWholeTree) {
  FakeServer server(path, [this](const FakeRequest& r) { return usual(r); });
  // The orphan runs until its parent is gone, that is, until the keeper has reaped the parent.
  const std::string mark = dir.path() + "/orphan";
  EXPECT_EQ(keep("( while kill -0 $$ 2>/dev/null; do :; done; echo done > '" + mark + "' ) & exit 3").code, 3);
  EXPECT_TRUE(std::filesystem::exists(mark));
}

TEST_F(KeeperTest, EndsTheTreeWhenTheLeaseIsStopped) {
  FakeServer server(path, [this](const FakeRequest& r) {
    if (!r.line().starts_with("GET")) return usual(r);
    wait_until_ready();
    return reply(lease("active", {{"stopping", true}}));
  });
  EXPECT_EQ(keep("sleep 1000 & touch '" + ready + "'; sleep 1000").code, 128 + SIGTERM);
  EXPECT_NE(std::find(noted.begin(), noted.end(), "stopping"), noted.end());
}

TEST_F(KeeperTest, SendsNoSecondSignalAfterTheDaemon) {
  FakeServer server(path, [this](const FakeRequest& r) {
    if (!r.line().starts_with("GET")) return usual(r);
    wait_until_ready();
    return reply(lease("active", {{"stopping", true}, {"signalled", true}}));
  });
  EXPECT_EQ(keep("touch '" + ready + "'; exec sleep 1000").code, 128 + SIGKILL) << "only the grace ends it";
}

TEST_F(KeeperTest, TellsThatItsProgramIsPausedAndRunsAgain) {
  const std::vector<const char*> states{"pausing", "paused", "resuming", "active"};
  std::size_t next = 0;
  FakeServer server(path, [&](const FakeRequest& r) {
    if (!r.line().starts_with("GET")) return usual(r);
    wait_until_ready();
    if (next < states.size()) return reply(lease(states[next++]));
    return reply(lease("active", {{"stopping", true}}));
  });
  keep("touch '" + ready + "'; sleep 1000");
  const std::vector<std::string> told{"pausing", "paused", "resuming", "resumed"};
  EXPECT_NE(std::search(noted.begin(), noted.end(), told.begin(), told.end()), noted.end());
}

TEST_F(KeeperTest, TellsWhyItsPauseWasUndone) {
  for (const bool missed : {false, true}) {
    const std::vector<const char*> states{"pausing", "resuming", "active"};
    std::size_t next = 0;
    FakeServer server(path, [&](const FakeRequest& r) {
      if (!r.line().starts_with("GET")) return usual(r);
      wait_until_ready();
      json reasons{{{"code", "pausing"}, {"text", "requested by its owner"}}};
      if (missed) reasons.push_back({{"code", "paused"}, {"text", "its bytes are measured gone"}});
      reasons.push_back({{"code", "resuming"},
                         {"kind", missed ? "resuming" : "pause_failed"},
                         {"text", missed ? "has it again" : "the pause is undone: no driver"},
                         {"args", {{"begun", true}}}});
      reasons.push_back({{"code", "resumed"}, {"text", "its program runs again"}});
      if (r.line().find("/why") != std::string::npos) return reply({{"reasons", reasons}});
      if (next < states.size()) return reply(lease(states[next++]));
      return reply(lease("active", {{"stopping", true}}));
    });
    said.clear();
    keep("touch '" + ready + "'; sleep 1000");
    EXPECT_EQ(said.at(0), missed ? "lease-7 runs again" : "lease-7 runs again: its pause was undone: no driver");
  }
}

TEST_F(KeeperTest, TellsWhyItWasNotPaused) {
  std::size_t next = 0;
  const std::vector<const char*> states{"pausing", "resuming", "active"};
  FakeServer server(path, [&](const FakeRequest& r) {
    if (!r.line().starts_with("GET")) return usual(r);
    wait_until_ready();
    const json reasons{{{"code", "pausing"}, {"text", "requested by its owner"}},
                       {{"code", "resuming"},
                        {"kind", "pause_failed"},
                        {"text", "the lease is not paused: process 7 is being traced"},
                        {"args", json::object()}},
                       {{"code", "resumed"}, {"text", "its program runs on: nothing of it was touched"}}};
    if (r.line().find("/why") != std::string::npos) return reply({{"reasons", reasons}});
    if (next < states.size()) return reply(lease(states[next++]));
    return reply(lease("active", {{"stopping", true}}));
  });
  keep("touch '" + ready + "'; sleep 1000");
  EXPECT_EQ(said.at(0), "lease-7 runs on: it was not paused: process 7 is being traced");
}

TEST_F(KeeperTest, SaysThatASignalWaitsUntilItsProgramRunsAgain) {
  const std::string handled = dir.path() + "/handled";
  int asked = 0;
  FakeServer server(path, [&](const FakeRequest& r) {
    if (!r.line().starts_with("GET")) return usual(r);
    wait_until_ready();
    if (asked++ > 0) {  // the keeper knows that the lease is paused
      ::kill(::getpid(), SIGINT);
      return FakeServer::Out{};
    }
    return reply(lease("paused", {{"pause", {{"reason", "requested by its owner"}, {"resume_requested", false}}}}));
  });
  client.set_interrupt(events.interrupt());
  Listener listener{[&](const std::string& line) {
                      said.push_back(line);
                      if (line.find("SIGINT") != std::string::npos) std::ofstream(handled) << "so it is\n";
                    },
                    [](const char*, const json&) {}};
  Keeper keeper(client, events, signals, listener, *client::parse_lease(lease("active")), "secret");
  const std::string script =
      "trap : INT; touch '" + ready + "'; while ! [ -e '" + handled + "' ]; do sleep 0.02; done; exit 5";
  EXPECT_EQ(keeper.run({{"/bin/sh", "-c", script}, {"PATH=/bin:/usr/bin"}}).code, 5);
  ASSERT_EQ(said.size(), 2u);
  EXPECT_NE(said[1].find("lease-7 is paused: its program got SIGINT and is alive"), std::string::npos) << said[1];
  EXPECT_NE(said[1].find("`sublet resume lease-7`"), std::string::npos) << said[1];
}

TEST(News, OfAPauseSaysWhatEndsIt) {
  const auto told = [](bool resume_requested) {
    const json pause{{"reason", "requested by its owner"}, {"resume_requested", resume_requested}};
    return news(*client::parse_lease(json{{"id", "lease-7"}, {"state", "paused"}, {"pause", pause}}));
  };
  EXPECT_EQ(told(true), "lease-7 is paused; `sublet why lease-7` shows the preemptor and when it resumes");
  EXPECT_EQ(told(false), "lease-7 is paused: requested by its owner; `sublet resume lease-7` resumes it");
}

TEST_F(KeeperTest, KillsWhatDoesNotEndInTheGrace) {
  FakeServer server(path, [this](const FakeRequest& r) {
    if (!r.line().starts_with("GET")) return usual(r);
    wait_until_ready();
    return reply(lease("ended", {{"end_reason", "expired"}}));
  });
  EXPECT_EQ(keep("trap '' TERM; touch '" + ready + "'; while :; do sleep 0.1; done").code, 128 + SIGKILL);
  EXPECT_NE(said[0].find("expired"), std::string::npos);
}

TEST_F(KeeperTest, GoesOnWhenTheLeaseEndedForAnotherReason) {
  FakeServer server(path, [this](const FakeRequest& r) {
    if (r.line().starts_with("GET")) return reply(lease("ended", {{"end_reason", "lost"}}));
    return usual(r);
  });
  EXPECT_EQ(keep("sleep 0.2; exit 4").code, 4);
  EXPECT_NE(said.at(0).find("continues without a lease"), std::string::npos);
}

TEST_F(KeeperTest, SaysWhatCouldNotBeExecuted) {
  FakeServer server(path, [this](const FakeRequest& r) { return usual(r); });
  client.set_interrupt(events.interrupt());
  Listener listener{[this](const std::string& line) { said.push_back(line); }, [](const char*, const json&) {}};
  Keeper keeper(client, events, signals, listener, *client::parse_lease(lease("active")), "secret");
  EXPECT_EQ(keeper.run({{"/no/such/program"}, {}}).code, 127);
  EXPECT_NE(said.at(0).find("/no/such/program"), std::string::npos);
  EXPECT_TRUE(body_of(server, "/release").contains("failed"));
}

TEST_F(KeeperTest, PassesSignalsOn) {
  FakeServer server(path, [&](const FakeRequest& r) { return usual(r); });
  // The program reports that it is ready by a signal to its keeper, which passes it back.
  EXPECT_EQ(keep("trap 'exit 9' USR2; kill -USR2 $PPID; while :; do sleep 0.05; done").code, 9);
  EXPECT_EQ(body_of(server, "/release"), (json{{"exit_status", 9}}));
}

TEST_F(KeeperTest, TellsThatItForwardedTheSignal) {
  FakeServer server(path, [&](const FakeRequest& r) { return usual(r); });
  for (const int signal : {SIGTERM, SIGHUP, SIGUSR1}) {
    EXPECT_EQ(keep(fmt::format("kill -{} $PPID; while :; do sleep 0.05; done", signal)).code, 128 + signal);
    EXPECT_EQ(body_of(server, "/release"), (json{{"signal", signal}, {"forwarded", true}}));
    EXPECT_TRUE(proc::read_exit_record(record, ::getuid())->forwarded);
  }
}

}  // namespace
}  // namespace sublet::keep
