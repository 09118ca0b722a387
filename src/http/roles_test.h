// SPDX-License-Identifier: Apache-2.0
// Callers of all kinds, and an engine with a lease, a program, a session, a verdict and a stack for them to ask about.
#pragma once

#include "enforcer/enforcer.h"
#include "events/outlets.h"
#include "guard/guard.h"
#include "http/admission.h"
#include "http/routes.h"
#include "maintenance/maintenance.h"
#include "meter/meter.h"
#include "sessions/sessions.h"
#include "stacks/test_support.h"
#include "store/memory_store.h"
#include "store/secret.h"
#include "tenants/tenants.h"

#include <gtest/gtest.h>

#include <unistd.h>

namespace sublet::http {

using engine::Peer;
using engine::Role;
using engine::Scope;

inline constexpr std::uint32_t owner_uid = 54321;
inline constexpr std::uint32_t other_uid = 2000;

inline Peer on_socket(std::uint32_t uid, Role role) {
  return {.uid = uid, .pid = ::getpid(), .user = std::to_string(uid), .role = role};
}

inline Peer by_token(std::uint32_t uid, Scope scope) {
  return {.uid = uid,
          .user = std::to_string(uid),
          .role = scope == Scope::admin ? Role::admin : Role::user,
          .tcp = true,
          .scope = scope};
}

// Starts no keeper, and never answers.
struct NoKeepers final : machine::Keepers {
  void start(const machine::KeeperOrder&, std::function<void(Result<ProcessRef>)>) override {}
};

// All processes have ended.
struct NoProcesses final : machine::Unleased {
  Result<std::uint64_t> hold(ProcessRef, std::uint64_t) override { return sublet::not_found("it has ended"); }
  void let_go(ProcessRef) override {}
  bool lives(ProcessRef) const override { return false; }
  Result<proc::ProcessRecord> describe(ProcessRef) const override { return sublet::not_found("it has ended"); }
  void trace(ProcessRef, std::function<void(const machine::Parents&)>) override {}
  LeaseId lease_above(const std::vector<proc::Ancestor>&) const override { return {}; }
  void open_sources(const std::string&) override {}
  const std::vector<machine::LinkSource>& sources() const override { return sources_; }
  void look(ProcessRef, Done) override {}
  void end(std::uint64_t, ProcessRef, int, const std::vector<ProcessRef>&, Done) override {}
  void close(std::uint64_t) override {}
  std::vector<machine::LinkSource> sources_;
};

// An engine without a card: every lease waits. There is verdict 1, about a process of the owner.
class Roles : public testing::Test {
 protected:
  Roles()
      : engine_(io_, store_, machine(), options()),
        guard_(engine_, keepers_, {.runs = {.host = "", .log_dir = "/nowhere"}}),
        enforcer_(engine_, processes_, {}),
        stacks_(engine_, worker_, {}),
        sessions_(engine_, keepers_, {.runs = {.host = "", .log_dir = "/nowhere"}}),
        outlets_(io_, engine_, {}),
        meter_(io_, engine_, {.path = ":memory:"}),
        maintenance_(engine_),
        tenants_(engine_) {
    engine_.capabilities().add(maintenance_);
    engine_.capabilities().add(tenants_);
    engine_.capabilities().add(meter_);
    engine_.capabilities().add(stacks_);
    engine_.capabilities().add(guard_);
    engine_.capabilities().add(sessions_);
    engine_.capabilities().add(enforcer_);
    EXPECT_TRUE(engine_.start());
    enforcer::Verdict verdict;
    verdict.id = 1;
    verdict.record.process = {4321, 987654};
    verdict.record.uid = owner_uid;
    store::Loaded loaded;
    loaded.rows = {enforcer::to_row(verdict)};
    enforcer_.loaded(loaded, engine_.now());
    settle();
  }
  ~Roles() override { engine_.stop(); }

  engine::Machine machine() {
    engine::MachineOptions options;
    options.probe.helper = "/bin/false";
    return engine::real_machine(io_, options);
  }
  static engine::Options options() {
    engine::Options options;
    options.mode = "system";
    return options;
  }

  void settle() {
    store_.pump();
    io_.restart();
    io_.poll();
  }

  int ask(Method method, const std::string& path, const char* body, const Peer& peer, json* answer = nullptr) {
    Request request;
    request.method = method;
    request.path = path;
    request.peer = peer;
    std::string text = body;  // OURS: a process that is none of the askers'
    if (const auto at = text.find("OURS"); at != std::string::npos) text.replace(at, 4, std::to_string(::getpid()));
    if (!text.empty()) request.body = json::parse(text);
    Reply reply = dispatch(request, engine_,
                           {.guard = &guard_,
                            .enforcer = &enforcer_,
                            .stacks = &stacks_,
                            .sessions = &sessions_,
                            .events = &outlets_,
                            .meter = &meter_,
                            .maintenance = &maintenance_,
                            .tenants = &tenants_});
    while (auto* later = std::get_if<Later>(&reply)) {
      std::optional<Reply> next;
      later->start([&](Reply found) { next = std::move(found); });
      while (!next) settle();
      reply = std::move(*next);
    }
    settle();
    if (std::holds_alternative<FollowEvents>(reply) || std::holds_alternative<TextStream>(reply)) return 200;
    const Response& response = std::get<Response>(reply);
    if (answer != nullptr) *answer = response.text.empty() ? response.body : json::parse(response.text);
    return response.status;
  }

  std::string filled(std::string path) {
    const Peer owner = on_socket(owner_uid, Role::user);
    json made;
    const auto put = [&](const char* mark, const char* where, const char* body) {
      const auto at = path.find(mark);
      if (at == std::string::npos) return;
      ask(Method::post, where, body, owner, &made);
      path.replace(at, std::string_view(mark).size(), made.at("id").get<std::string>());
    };
    put("LEASE", "/v1/leases", R"({"vram_bytes":65536,"ttl_seconds":60})");
    put("SESSION", "/v1/sessions", R"({"vram_bytes":65536})");
    put("TOKEN", "/v1/tokens", R"({"scope":"read"})");
    const auto put_rule = [&](std::string_view mark, const char* where, const char* body) {
      const auto at = path.find(mark);
      if (at == std::string::npos) return;
      ask(Method::post, where, body, on_socket(0, Role::admin), &made);
      path.replace(at, mark.size(), std::to_string(made.at("id").get<std::uint64_t>()));
    };
    put_rule("APPROVAL", "/v1/approvals", R"({"subject":"user:ada"})");
    put_rule("POLICY", "/v1/policies", R"({"subject":"user:bob","policy":"adopt"})");
    if (const auto at = path.find("VERDICT"); at != std::string::npos) path.replace(at, 7, "1");
    const std::string tag = "serve" + std::to_string(++tags_);
    put_stack(path);
    if (const auto at = path.find("NEW"); at != std::string::npos) path.replace(at, 3, tag);
    if (const auto at = path.find("PROGRAM"); at != std::string::npos) {
      path.replace(at, 7, tag);
      const std::string body = R"({"arguments":["true"],"directory":"/","vram_bytes":65536,"tag":")" + tag + "\"}";
      ask(Method::post, "/v1/programs", body.c_str(), owner);
    }
    return path;
  }

  // STACK: one that the owner has acquired. ADOPT: one that may be adopted.
  void put_stack(std::string& path) {
    for (const std::string_view mark : {"STACK", "ADOPT"}) {
      const auto at = path.find(mark);
      if (at == std::string::npos) continue;
      const std::string name = "stack" + std::to_string(++tags_);
      worker_.add(name, R"({"vram":"65536"})");
      path.replace(at, mark.size(), name);
      if (mark == "STACK") {
        ask(Method::post, "/v1/stacks/" + name + "/acquire", "{}", on_socket(owner_uid, Role::user));
      }
    }
  }

  boost::asio::io_context io_;
  store::MemoryStore store_;
  stacks::RecordingWorker worker_{io_};
  NoKeepers keepers_;
  engine::Engine engine_;
  guard::Guard guard_;
  NoProcesses processes_;
  enforcer::Enforcer enforcer_;
  stacks::Stacks stacks_;
  sessions::Sessions sessions_;
  events::Outlets outlets_;
  meter::Meter meter_;
  maintenance::Maintenance maintenance_;
  tenants::Tenants tenants_;
  int tags_ = 0;
};

}  // namespace sublet::http
