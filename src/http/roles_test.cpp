// SPDX-License-Identifier: Apache-2.0
// The role check of every route, for every kind of caller.
#include "http/roles_test.h"

#include "proc/cgroup.h"

#include <sys/stat.h>

#include <cstdlib>
#include <set>

namespace sublet::http {
namespace {

// In the order of the columns below.
const std::vector<std::pair<const char*, Peer>> askers{
    {"nobody", on_socket(3000, Role::nobody)},
    {"owner", on_socket(owner_uid, Role::user)},
    {"another user", on_socket(other_uid, Role::user)},
    {"admin", on_socket(0, Role::admin)},
    {"stranger over TCP", Peer{.user = "unknown", .tcp = true}},
    {"owner's token to read", by_token(owner_uid, Scope::read)},
    {"owner's token to submit", by_token(owner_uid, Scope::submit)},
    {"another's token to submit", by_token(other_uid, Scope::submit)},
    {"admin's token", by_token(0, Scope::admin)},
};
struct Row {
  Method method;
  const char* path;  // LEASE, TOKEN and PROGRAM stand for the owner's, made for each question
  const char* body;
  int status[9];
};

// 202 and 200: it was done. 409: it was allowed, and what was asked for does not go with the lease's state.
const Row table[] = {
    // path                      body                    nobody own other admin | stranger read submit other admin
    {Method::get, "/", "", {200, 200, 200, 200, 200, 200, 200, 200, 200}},
    {Method::get, "/page/SET/FILE", "", {404, 404, 404, 404, 404, 404, 404, 404, 404}},
    {Method::get, "/page/SET/FOLDER/FILE", "", {404, 404, 404, 404, 404, 404, 404, 404, 404}},
    {Method::get, "/healthz", "", {200, 200, 200, 200, 200, 200, 200, 200, 200}},
    {Method::get, "/metrics", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::get, "/v1/openapi.json", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::get, "/v1/status", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::get, "/v1/devices", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::post, "/v1/devices/gpu7/cordon", "{}", {403, 403, 403, 404, 401, 403, 403, 403, 404}},
    {Method::post, "/v1/devices/gpu7/drain", "{}", {403, 403, 403, 404, 401, 403, 403, 403, 404}},
    {Method::post, "/v1/devices/gpu7/uncordon", "{}", {403, 403, 403, 404, 401, 403, 403, 403, 404}},
    {Method::get, "/v1/tenants", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::post, "/v1/tenants", R"({"tenants":[]})", {403, 403, 403, 200, 401, 403, 403, 403, 200}},
    {Method::get, "/v1/tenants/none", "", {403, 404, 404, 404, 401, 404, 404, 404, 404}},
    {Method::post, "/v1/tenants/vision", R"({"weight":2})", {403, 403, 403, 200, 401, 403, 403, 403, 200}},
    {Method::del, "/v1/tenants/none", "", {403, 403, 403, 404, 401, 403, 403, 403, 404}},
    {Method::get, "/v1/processes", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::get, "/v1/queue", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::get, "/v1/consumers", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::get, "/v1/events", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::get, "/v1/report", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::get, "/v1/leases", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::get, "/v1/leases/LEASE", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::get, "/v1/leases/LEASE/why", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::post,
     "/v1/leases",
     R"({"vram_bytes":65536,"ttl_seconds":60})",
     {403, 202, 202, 202, 401, 403, 202, 202, 202}},
    {Method::post, "/v1/leases/LEASE/claim", "{}", {403, 409, 403, 409, 401, 403, 409, 403, 409}},
    {Method::post, "/v1/leases/LEASE/attach", R"({"pid":OURS})", {403, 403, 403, 409, 401, 403, 403, 403, 403}},
    {Method::post, "/v1/leases/LEASE/renew", "{}", {403, 200, 403, 200, 401, 403, 200, 403, 200}},
    {Method::post, "/v1/leases/LEASE/touch", "{}", {403, 200, 403, 200, 401, 403, 200, 403, 200}},
    {Method::post,
     "/v1/leases/LEASE/resize",
     R"({"vram_bytes":131072})",
     {403, 409, 403, 409, 401, 403, 409, 403, 409}},  // it waits: there is nothing to resize
    {Method::post, "/v1/leases/LEASE/release", "{}", {403, 200, 403, 200, 401, 403, 200, 403, 200}},
    {Method::post, "/v1/leases/LEASE/pause", "{}", {403, 200, 403, 200, 401, 403, 200, 403, 200}},  // it is held back
    {Method::post, "/v1/leases/LEASE/resume", "{}", {403, 409, 403, 409, 401, 403, 409, 403, 409}},
    {Method::post,
     "/v1/preempt",
     R"({"lease":"LEASE"})",
     {403, 409, 403, 409, 401, 403, 409, 403, 409}},  // no card: nobody can be asked
    {Method::post, "/v1/free", R"({"vram_bytes":65536})", {403, 409, 409, 409, 401, 403, 409, 409, 409}},
    {Method::get, "/v1/leases/LEASE/cooperate", "", {403, 200, 403, 200, 401, 403, 200, 403, 200}},
    {Method::post,
     "/v1/leases/LEASE/cooperate",
     R"({"way":"webhook","url":"http://127.0.0.1:9/"})",
     {403, 200, 403, 200, 401, 403, 200, 403, 200}},
    {Method::post,
     "/v1/leases/LEASE/cooperate/answer",
     R"({"number":1,"answer":"yielded"})",
     {403, 409, 403, 409, 401, 403, 409, 403, 409}},  // there is no such order
    {Method::del, "/v1/leases/LEASE/cooperate", "", {403, 200, 403, 200, 401, 403, 200, 403, 200}},
    {Method::post, "/v1/consumers/train/grant", "{}", {403, 200, 200, 200, 401, 403, 200, 200, 200}},
    {Method::del, "/v1/consumers/other/grant", "", {403, 404, 404, 404, 401, 403, 404, 404, 404}},
    {Method::get, "/v1/ledger", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::get, "/v1/tokens", "", {403, 200, 200, 200, 401, 403, 403, 403, 200}},
    {Method::post, "/v1/tokens", R"({"scope":"submit"})", {403, 201, 201, 201, 401, 403, 403, 403, 201}},
    {Method::post, "/v1/tokens", R"({"scope":"admin"})", {403, 403, 403, 201, 401, 403, 403, 403, 201}},
    {Method::del, "/v1/tokens/TOKEN", "", {403, 200, 404, 200, 401, 403, 403, 403, 200}},
    {Method::get, "/v1/programs", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::post,
     "/v1/programs",
     R"({"tag":"NEW","arguments":["true"],"directory":"/","vram_bytes":65536})",
     {403, 201, 201, 201, 401, 403, 403, 403, 403}},  // not over TCP
    {Method::get, "/v1/programs/PROGRAM", "", {403, 200, 404, 200, 401, 200, 200, 404, 200}},
    {Method::get, "/v1/programs/PROGRAM/log", "", {403, 200, 404, 200, 401, 200, 200, 404, 200}},
    {Method::post, "/v1/programs/PROGRAM/update", "{}", {403, 200, 404, 404, 401, 403, 200, 404, 404}},
    {Method::post, "/v1/programs/PROGRAM/restart", "{}", {403, 200, 404, 404, 401, 403, 200, 404, 404}},
    {Method::post, "/v1/programs/PROGRAM/start", "{}", {403, 200, 404, 404, 401, 403, 200, 404, 404}},
    {Method::post, "/v1/programs/PROGRAM/stop", "{}", {403, 200, 404, 404, 401, 403, 200, 404, 404}},
    {Method::post, "/v1/programs/PROGRAM/remove", "{}", {403, 200, 404, 404, 401, 403, 200, 404, 404}},
    {Method::post,
     "/v1/programs/PROGRAM/report",
     R"({"start":1})",
     {403, 409, 404, 404, 401, 403, 409, 404, 404}},  // without the number of the program
    {Method::get, "/v1/sessions", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::post, "/v1/sessions", R"({"vram_bytes":65536})", {403, 201, 201, 201, 401, 403, 201, 201, 201}},
    {Method::post,
     "/v1/sessions",
     R"({"vram_bytes":65536,"arguments":["true"],"directory":"/"})",
     {403, 201, 201, 201, 401, 403, 403, 403, 403}},  // not over TCP
    {Method::get, "/v1/sessions/SESSION", "", {403, 200, 403, 200, 401, 200, 200, 403, 200}},
    {Method::get, "/v1/sessions/SESSION/log", "", {403, 404, 403, 404, 401, 404, 404, 403, 404}},  // without a program
    {Method::post, "/v1/sessions/SESSION/touch", "{}", {403, 200, 403, 200, 401, 403, 200, 403, 200}},
    {Method::post,
     "/v1/sessions/SESSION/checkpoint",
     "{}",
     {403, 400, 403, 400, 401, 403, 400, 403, 400}},  // it has no checkpoint command
    {Method::post, "/v1/sessions/SESSION/close", "{}", {403, 200, 403, 200, 401, 403, 200, 403, 200}},
    {Method::post, "/v1/sessions/SESSION/resume", "{}", {403, 200, 403, 200, 401, 403, 200, 403, 200}},
    {Method::post, "/v1/sessions/SESSION/report", R"({"start":1})", {403, 200, 403, 200, 401, 403, 200, 403, 200}},
    {Method::get, "/v1/verdicts", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::get, "/v1/verdicts/VERDICT", "", {403, 200, 404, 200, 401, 200, 200, 404, 200}},
    {Method::get, "/v1/enforcer", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::get, "/v1/enforcer/preview", "", {403, 403, 403, 200, 401, 403, 403, 403, 200}},
    {Method::post, "/v1/approvals", R"({"subject":"user:ada"})", {403, 403, 403, 201, 401, 403, 403, 403, 201}},
    {Method::del, "/v1/approvals/APPROVAL", "", {403, 403, 403, 200, 401, 403, 403, 403, 200}},
    {Method::post,
     "/v1/policies",
     R"({"subject":"user:ada","policy":"warn"})",
     {403, 403, 403, 201, 401, 403, 403, 403, 201}},
    {Method::del, "/v1/policies/POLICY", "", {403, 403, 403, 200, 401, 403, 403, 403, 200}},
    {Method::post, "/v1/events/targets/nosuch/test", "{}", {403, 403, 403, 404, 401, 403, 403, 403, 404}},
    {Method::get, "/v1/stacks", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::post, "/v1/stacks", R"({"path":"/opt/ADOPT"})", {403, 403, 403, 201, 401, 403, 403, 403, 201}},
    {Method::get, "/v1/stacks/STACK", "", {403, 200, 200, 200, 401, 200, 200, 200, 200}},
    {Method::del, "/v1/stacks/STACK", "", {403, 403, 403, 409, 401, 403, 403, 403, 409}},
    {Method::post, "/v1/stacks/STACK/set", R"({"exclusive":true})", {403, 403, 403, 200, 401, 403, 403, 403, 200}},
    {Method::post, "/v1/stacks/STACK/acquire", "{}", {403, 409, 409, 409, 401, 403, 409, 409, 409}},
    {Method::post, "/v1/stacks/STACK/renew", "{}", {403, 200, 403, 200, 401, 403, 200, 403, 200}},
    {Method::post, "/v1/stacks/STACK/restart", "{}", {403, 409, 403, 409, 401, 403, 409, 403, 409}},
    {Method::post, "/v1/stacks/STACK/pull", "{}", {403, 403, 403, 200, 401, 403, 403, 403, 200}},
    {Method::post, "/v1/stacks/STACK/release", "{}", {403, 200, 403, 200, 401, 403, 200, 403, 200}},
    {Method::get, "/v1/stacks/STACK/logs", "", {403, 200, 403, 200, 401, 200, 200, 403, 200}},
};

TEST_F(Roles, EveryCallHasAnAnswerForEverybody) {
  for (const Row& row : table) {
    for (std::size_t i = 0; i < askers.size(); ++i) {
      const std::string path = filled(row.path);
      const std::string body = filled(row.body);
      EXPECT_EQ(ask(row.method, path, body.c_str(), askers[i].second), row.status[i])
          << to_string(row.method) << " " << row.path << " by " << askers[i].first;
    }
  }
}

TEST_F(Roles, NoRouteIsMissingInTheTable) {
  std::set<std::pair<std::string, std::string>> asked;
  for (const Row& row : table) {
    std::string path = row.path;
    for (const std::string_view mark : {"LEASE", "SESSION", "TOKEN", "VERDICT", "APPROVAL", "POLICY"}) {
      if (const auto at = path.find(mark); at != std::string::npos) path.replace(at, mark.size(), "{id}");
    }
    if (const auto at = path.find("PROGRAM"); at != std::string::npos) path.replace(at, 7, "{tag}");
    if (const auto at = path.find("STACK"); at != std::string::npos) path.replace(at, 5, "{name}");
    if (path.starts_with("/v1/tenants/")) path = "/v1/tenants/{name}";
    if (path.starts_with("/v1/devices/")) path.replace(12, 4, "{id}");
    if (path.starts_with("/v1/events/targets/")) path = "/v1/events/targets/{name}/test";
    if (path.starts_with("/page/"))
      path = path == "/page/SET/FILE" ? "/page/{set}/{file}" : "/page/{set}/{folder}/{file}";
    if (path.ends_with("/grant")) path = "/v1/consumers/{name}/grant";
    asked.emplace(to_string(row.method), path);
  }
  for (const Route& route : routes())
    EXPECT_TRUE(asked.contains({std::string(to_string(route.method)), std::string(route.path)})) << route.path;
}

// A control group of the test's own; removed at its end.
struct OwnGroup {
  explicit OwnGroup(const std::string& name, uid_t owner = 0) {
    const auto found = proc::find_hierarchies(*proc::ProcRoot::open());
    if (!found || found->mounts.empty()) return;
    const std::string place = found->mounts.front().path + "/" + name;
    if (::mkdir(place.c_str(), 0755) == 0 && ::chown(place.c_str(), owner, owner) == 0) path = place;
  }
  ~OwnGroup() {
    if (!path.empty()) ::rmdir(path.c_str());
  }
  OwnGroup(const OwnGroup&) = delete;
  OwnGroup& operator=(const OwnGroup&) = delete;
  std::string path;  // "": control groups cannot be made here
};

// A user names a group by a path, which may be a link to the group of others.
TEST_F(Roles, AUserBooksNoGroupOfOthers) {
  const std::string attach = filled("/v1/leases/LEASE/attach");
  const auto number = parse_lease_id(attach.substr(11, attach.find('/', 11) - 11))->number;
  const auto name = fmt::format("sublet_{}_{}.slice", number, ::getpid());
  const OwnGroup other("sublet-test-" + std::to_string(::getpid())), mine(name);
  if (other.path.empty() || mine.path.empty()) GTEST_SKIP() << "no control group can be made here";
  std::string link = "/tmp/sublet-test-XXXXXX";
  ASSERT_NE(::mkdtemp(link.data()), nullptr);
  const std::string directory = link;
  link += "/" + name;
  ASSERT_EQ(::symlink(other.path.c_str(), link.c_str()), 0);
  const auto booked = [&](const std::string& path, Role role) {
    const std::uint32_t uid = role == Role::admin ? 0 : owner_uid;
    return ask(Method::post, attach, json{{"cgroup", path}}.dump().c_str(), on_socket(uid, role));
  };
  constexpr int allowed = 409, refused = 403;  // the lease waits: it is only allowed
  EXPECT_EQ(booked(other.path, Role::user), refused);
  EXPECT_EQ(booked(link, Role::user), refused);
  EXPECT_EQ(booked(link, Role::admin), allowed);
  EXPECT_EQ(booked(mine.path, Role::user), allowed);
  ASSERT_EQ(::chown(mine.path.c_str(), other_uid, other_uid), 0);
  EXPECT_EQ(booked(mine.path, Role::user), refused) << "another user made it";
  ASSERT_EQ(::chown(mine.path.c_str(), owner_uid, owner_uid), 0);
  EXPECT_EQ(booked(mine.path, Role::user), allowed) << "a rootless engine made it";
  ::unlink(link.c_str());
  ::rmdir(directory.c_str());
}

TEST_F(Roles, AVerdictIsListedForItsUserAndForAdmins) {
  for (const auto& [peer, number] :
       {std::pair(on_socket(owner_uid, Role::user), 1U), std::pair(on_socket(other_uid, Role::user), 0U),
        std::pair(on_socket(0, Role::admin), 1U)}) {
    Request request;
    request.path = "/v1/verdicts";
    request.query = {{"all", "true"}};
    request.peer = peer;
    const Reply reply = dispatch(request, engine_, {&guard_, &enforcer_, &stacks_, &sessions_, &outlets_, &meter_});
    EXPECT_EQ(std::get<Response>(reply).body.at("verdicts").size(), number) << peer.user;
  }
}

TEST_F(Roles, ACallForAdminsTellsOtherCallersWhatIsMissing) {
  json answer;
  ask(Method::get, "/v1/enforcer/preview", "", on_socket(owner_uid, Role::user), &answer);
  EXPECT_EQ(answer.at("detail"), "user 54321 is not an admin, and only an admin can do this");
  ask(Method::get, "/v1/enforcer/preview", "", by_token(owner_uid, Scope::submit), &answer);
  EXPECT_EQ(answer.at("detail"), "the access token has the scope submit, but this call needs admin");
}

TEST_F(Roles, WithoutAnEnforcerItsCallsAreRefused) {
  for (const Row& row : table) {
    const std::string_view path = row.path;
    if (!path.starts_with("/v1/verdicts") && !path.starts_with("/v1/enforcer") && !path.starts_with("/v1/approvals") &&
        !path.starts_with("/v1/policies"))
      continue;
    Request request;
    request.method = row.method;
    request.path = filled(row.path);
    request.peer = on_socket(0, Role::admin);
    if (*row.body != '\0') request.body = json::parse(row.body);
    const Response response = std::get<Response>(dispatch(request, engine_, {&guard_, nullptr}));
    EXPECT_EQ(response.status, 503) << path;
    EXPECT_EQ(response.body.at("code"), "Unavailable") << path;
  }
}

TEST_F(Roles, WhileStacksAreOffTheirCallsSaySo) {
  for (const Row& row : table) {
    if (!std::string_view(row.path).starts_with("/v1/stacks")) continue;
    Request request;
    request.method = row.method;
    request.path = row.path;
    request.peer = on_socket(0, Role::admin);
    if (*row.body != '\0') request.body = json::parse(row.body);
    const Response response =
        std::get<Response>(dispatch(request, engine_, {&guard_, &enforcer_, nullptr, &sessions_, &outlets_}));
    EXPECT_EQ(response.status, 503) << row.path;
    EXPECT_EQ(response.body.at("detail"), "stacks are switched off") << row.path;
    EXPECT_NE(response.body.at("hint").get<std::string>().find("stacks.enabled"), std::string::npos);
    EXPECT_EQ(response.body.at("numbers"), json({{"switched_off", 1}})) << "it is not repeated";
  }
}

TEST_F(Roles, ReportsAreCheckedAndTold) {
  const auto report = [&](const std::string& query, json* answer) {
    Request request;
    request.path = "/v1/report";
    request.peer = on_socket(owner_uid, Role::user);
    const auto at = query.find('=');
    if (at != std::string::npos) request.query = {{query.substr(0, at), query.substr(at + 1)}};
    Reply reply = dispatch(request, engine_, {&guard_, &enforcer_, &stacks_, &sessions_, &outlets_, &meter_});
    if (auto* later = std::get_if<Later>(&reply)) {
      std::optional<Reply> next;
      later->start([&](Reply found) { next = std::move(found); });
      while (!next) settle();
      reply = std::move(*next);
    }
    *answer = std::get<Response>(reply).body;
    return std::get<Response>(reply).status;
  };
  filled("LEASE");
  json answer;
  for (const char* query : {"", "since=90s", "until=1h", "until=2026-11-21T16:00:00.5Z", "by=device", "whole=true"})
    EXPECT_EQ(report(query, &answer), 200) << query << answer;
  EXPECT_TRUE(answer.contains("matrix"));
  EXPECT_EQ(answer.at("rows").at(0).at("waiting"), 1) << "there is no card";
  for (const char* query :
       {"since=x", "since=0s", "until=x", "until=200y", "until=4000-01-01T00:00:00Z", "by=", "by=x", "whole=1"})
    EXPECT_EQ(report(query, &answer), 400) << query << answer;
  Request request;
  request.path = "/v1/report";
  request.peer = on_socket(owner_uid, Role::user);
  const Response off =
      std::get<Response>(dispatch(request, engine_, {&guard_, &enforcer_, &stacks_, &sessions_, &outlets_}));
  EXPECT_EQ(off.status, 503);
  EXPECT_EQ(off.body.at("detail"), "the meter is switched off");
}

// These calls wait for a new snapshot.
TEST_F(Roles, CallsThatMayGrantMemoryAreKnownByTheirRoute) {
  const auto may_grant = [&](const char* path) {
    Request request;
    request.method = Method::post;
    request.path = path;
    request.peer = on_socket(owner_uid, Role::user);
    request.body = {{"vram_bytes", 65536}};
    return may_be_granted(request, engine_);
  };
  EXPECT_TRUE(may_grant("/v1/leases/lease-1/resize"));
  EXPECT_FALSE(may_grant("/v1/leases")) << "there is no device";
  EXPECT_FALSE(may_grant("/v1/leases/lease-1/release")) << "no lease waits";
  filled("LEASE");
  EXPECT_TRUE(may_grant("/v1/leases/lease-1/release"));
  EXPECT_FALSE(may_grant("/v1/leases/lease-1/pause"));
  EXPECT_FALSE(may_grant("/v1/resize")) << "no such route";
}

TEST_F(Roles, TheQueryOfALogIsChecked) {
  Request request;
  request.path = filled("/v1/programs/PROGRAM/log");
  request.peer = on_socket(owner_uid, Role::user);
  const auto reply = [&](const char* name, const char* value) {
    request.query = {{name, value}};
    return dispatch(request, engine_, {&guard_, &enforcer_, &stacks_, &sessions_, &outlets_, &meter_});
  };
  const std::vector<std::pair<const char*, const char*>> good{
      {"lines", "0"}, {"lines", "1000000"}, {"since", "10m"}, {"since", "2026-11-21T16:00:05.5Z"}, {"follow", "true"}};
  for (const auto& [name, value] : good) {
    const Reply answer = reply(name, value);
    ASSERT_TRUE(std::holds_alternative<TextStream>(answer)) << name << "=" << value;
    EXPECT_EQ(std::get<TextStream>(answer).follow, std::string_view(name) == "follow");
    EXPECT_EQ(std::get<TextStream>(answer).next(), "");
  }
  const std::vector<std::pair<const char*, const char*>> bad{{"lines", "-1"},      {"lines", "1000001"},
                                                             {"lines", "ten"},     {"since", "-10m"},
                                                             {"since", "monday"},  {"since", "2026-11-31T16:00:05Z"},
                                                             {"follow", "always"}, {"since", "2026-11-21T16"}};
  for (const auto& [name, value] : bad) {
    const Reply answer = reply(name, value);
    ASSERT_TRUE(std::holds_alternative<Response>(answer)) << name << "=" << value;
    EXPECT_EQ(std::get<Response>(answer).status, 400) << name << "=" << value;
  }
}

// Two users may give their leases the same tag: each means his own by it, and an admin must say whose.
TEST_F(Roles, ATagThatMeansTwoLeasesIsRefusedToAnAdminAlone) {
  json owners;
  json others;
  const char* body = R"({"vram_bytes":65536,"ttl_seconds":60,"tag":"night"})";
  ask(Method::post, "/v1/leases", body, on_socket(owner_uid, Role::user), &owners);
  ask(Method::post, "/v1/leases", body, on_socket(other_uid, Role::user), &others);
  json answer;
  for (const char* path : {"/v1/leases/night/why", "/v1/leases/night"}) {
    EXPECT_EQ(ask(Method::get, path, "", on_socket(0, Role::admin), &answer), 400) << path;
    EXPECT_EQ(answer.at("code"), "BadRequest");
    const auto detail = answer.at("detail").get<std::string>();
    for (const json* lease : {&owners, &others}) {
      EXPECT_NE(detail.find(lease->at("id").get<std::string>()), std::string::npos) << detail;
    }
    EXPECT_EQ(answer.at("hint"), "name the lease by its id");
    EXPECT_EQ(ask(Method::get, path, "", on_socket(owner_uid, Role::user), &answer), 200) << path;
    EXPECT_EQ(ask(Method::get, path, "", by_token(other_uid, Scope::submit), &answer), 200) << path;
  }
  EXPECT_EQ(ask(Method::get, "/v1/leases/night", "", on_socket(other_uid, Role::user), &answer), 200);
  EXPECT_EQ(answer.at("id"), others.at("id"));
  EXPECT_EQ(ask(Method::post, "/v1/leases/night/release", "{}", on_socket(other_uid, Role::user)), 200);
  EXPECT_EQ(ask(Method::get, "/v1/leases/night/why", "", on_socket(0, Role::admin), &answer), 200);
}

TEST_F(Roles, ALeasesTokenOpensItToAnybodyWhoMayAskButNotToATokenThatMayOnlyRead) {
  json lease;
  ask(Method::post, "/v1/leases", R"({"vram_bytes":65536,"ttl_seconds":60})", on_socket(owner_uid, Role::user), &lease);
  Request request;
  request.path = "/v1/leases/" + lease.at("id").get<std::string>();
  request.lease_token = lease.at("token").get<std::string>();
  for (const auto& [peer, status] :
       {std::pair(on_socket(other_uid, Role::user), 200), std::pair(by_token(other_uid, Scope::submit), 200),
        std::pair(by_token(owner_uid, Scope::read), 403)}) {
    request.peer = peer;
    EXPECT_EQ(std::get<Response>(dispatch(request, engine_)).status, status);
  }
}

// Its end may be lost with the store: then it is paused still, and nobody must have gone on for it.
TEST_F(Roles, ThatALeaseIsNoMoreIsToldToWhoIsPausedOnlyOnceItIsStored) {
  const std::string path = filled("/v1/leases/LEASE");
  Request request;
  request.peer = on_socket(owner_uid, Role::user);
  request.method = Method::post;
  request.path = path + "/release";
  request.body = json::object();
  EXPECT_EQ(std::get<Response>(dispatch(request, engine_)).status, 200);
  ASSERT_FALSE(engine_.commits().is_durable(engine_.intended()));
  request = Request();
  request.path = path + "/cooperate";
  for (const auto& [uid, status] : {std::pair(owner_uid, 409), std::pair(other_uid, 403)}) {
    request.peer = on_socket(uid, Role::user);
    const Response response = std::get<Response>(dispatch(request, engine_));
    EXPECT_EQ(response.status, status);
    EXPECT_TRUE(response.of_leases) << status;
    EXPECT_GE(response.after.value_or(engine_.intended()), engine_.intended());
  }
  request.path = path + "/nothing";
  EXPECT_FALSE(std::get<Response>(dispatch(request, engine_)).of_leases) << "a refusal like any other";
}

TEST_F(Roles, WhatIsKeptOfALeasesTokenDoesNotOpenIt) {
  json lease;
  ask(Method::post, "/v1/leases", R"({"vram_bytes":65536,"ttl_seconds":60})", on_socket(owner_uid, Role::user), &lease);
  const auto id = parse_lease_id(lease.at("id").get<std::string>());
  Request request;
  request.path = "/v1/leases/" + lease.at("id").get<std::string>();
  request.lease_token = engine_.find(*id)->token;
  EXPECT_EQ(request.lease_token, store::hash_secret(lease.at("token").get<std::string>()));
  request.peer = on_socket(owner_uid, Role::user);
  EXPECT_EQ(std::get<Response>(dispatch(request, engine_)).status, 403);
}

TEST_F(Roles, WhatIsOpenIsRefusedOnceItsTokenIsWorthNoMore) {
  Role now = Role::admin;
  const Admission::RoleOf role_of = [&](std::uint32_t uid) { return uid == owner_uid ? now : Role::nobody; };
  const auto admitted = [&](const char* body, Role as) {
    json made;
    EXPECT_EQ(ask(Method::post, "/v1/tokens", body, on_socket(owner_uid, as), &made), 201);
    Admission admission(engine_, role_of);
    admission.by(engine_.access().token_of(made.at("token").get<std::string>()));
    EXPECT_FALSE(admission.refusal());
    return std::pair(admission, "/v1/tokens/" + made.at("id").get<std::string>());
  };
  const auto [administrator, admins] = admitted(R"({"scope":"admin"})", Role::admin);
  const auto [user, users] = admitted(R"({"scope":"submit","ttl_seconds":5})", Role::user);
  now = Role::user;
  ASSERT_TRUE(administrator.refusal());
  EXPECT_EQ(administrator.refusal()->status, 403);
  EXPECT_FALSE(user.refusal());
  now = Role::nobody;
  EXPECT_EQ(user.refusal()->status, 403);
  now = Role::user;
  EXPECT_FALSE(user.refusal());
  EXPECT_EQ(ask(Method::del, users, "", on_socket(owner_uid, Role::user)), 200);
  EXPECT_EQ(user.refusal()->status, 401);
}

TEST_F(Roles, WhoseRoleIsUnknownIsToldToTryAgainAndNotThatTheyMayNot) {
  const Peer somebody = on_socket(owner_uid, Role::unknown);
  json answer;
  EXPECT_EQ(ask(Method::get, "/v1/status", "", somebody, &answer), 503);
  EXPECT_EQ(answer.at("code"), "Unavailable");
  EXPECT_EQ(ask(Method::get, "/healthz", "", somebody), ask(Method::get, "/healthz", "", on_socket(1, Role::nobody)));

  Role now = Role::user;
  const Admission::RoleOf role_of = [&now](std::uint32_t) { return now; };
  json made;
  ask(Method::post, "/v1/tokens", R"({"scope":"read"})", on_socket(owner_uid, Role::user), &made);
  Admission admission(engine_, role_of);
  admission.by(engine_.access().token_of(made.at("token").get<std::string>()));
  EXPECT_FALSE(admission.refusal());
  now = Role::unknown;
  ASSERT_TRUE(admission.refusal());
  EXPECT_EQ(admission.refusal()->status, 503);
}

TEST_F(Roles, WhoeverWaitsByATokenLooksAgainUntilItExpires) {
  using Clock = std::chrono::steady_clock;
  const Admission::RoleOf role_of = [](std::uint32_t) { return Role::user; };
  Admission admission(engine_, role_of);
  EXPECT_EQ(admission.look_again(), Clock::time_point::max());  // nothing was shown that could be taken back
  store::AccessToken token{.uid = owner_uid, .scope = "read"};
  admission.by(&token);
  EXPECT_LE(admission.look_again(), Clock::now() + std::chrono::minutes(1));
  token.expires_at = engine_.now() + std::chrono::seconds(2);
  admission.by(&token);
  EXPECT_LE(admission.look_again(), Clock::now() + std::chrono::seconds(2));
}

}  // namespace
}  // namespace sublet::http
