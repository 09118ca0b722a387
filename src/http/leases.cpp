// SPDX-License-Identifier: Apache-2.0
// Asking for a lease, reading leases, waiting for one.
#include "base/size_bounds.h"
#include "base/text.h"
#include "explain/dry_run.h"
#include "follow/follow.h"
#include "guard/guard.h"
#include "http/agents.h"
#include "http/asking.h"
#include "http/find_lease.h"
#include "http/programs.h"
#include "http/query.h"
#include "http/render.h"
#include "http/routes.h"
#include "http/starter.h"
#include "idle/idle.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

using core::Lease;
using core::LeaseState;

template <typename T>
Status take_word(Body& body, std::string_view field, std::optional<T> (*parse)(std::string_view), T& into,
                 std::span<const std::string_view> known) {
  const auto word = body.text(field);
  if (!word) return {};
  const auto value = parse(*word);
  if (!value) {
    return bad_request(fmt::format("{} '{}' is unknown{}", field, printable(*word), did_you_mean(*word, known)),
                       fmt::format("one of {}", fmt::join(known, ", ")));
  }
  into = *value;
  return {};
}

constexpr std::array<std::string_view, 5> tiers{"critical", "interactive", "standard", "batch", "spot"};
// The method interposer does not exist yet and is refused.
constexpr std::array<std::string_view, 4> pausables{"auto", "cooperative", "driver", "no"};
constexpr std::array<std::string_view, 8> states{"queued", "offered",  "active",   "pausing",
                                                 "paused", "resuming", "poisoned", "ended"};

std::optional<core::Pausable> parse_pausable(std::string_view text) {
  const auto parsed = core::parse_pausable(text);
  return parsed == core::Pausable::interposer ? std::nullopt : parsed;
}

Status take_names(Body& body, const OnBehalf& who, const engine::TenantRules& rules, Lease& lease) {
  lease.uid = who.user.uid;
  lease.user = who.user.user;
  const auto asked = body.name("tenant");
  const auto consumer = body.label("consumer");
  lease.consumer = consumer.value_or("unnamed");
  lease.nameless = !body.boolean("remember").value_or(consumer.has_value());
  lease.tag = body.label("tag", true).value_or("");
  lease.command = body.text("command", 4096).value_or("");
  // A tag is an argument of verbs: it must not look like a flag, a path or an id.
  if (lease.tag.starts_with('-') || lease.tag == "." || lease.tag == ".." || parse_lease_id(lease.tag)) {
    return bad_request(fmt::format("tag is \"{}\"; a tag must not look like a flag, a path or a lease's id", lease.tag),
                       "begin the tag with a letter");
  }
  if (!consumer && !lease.nameless)
    return bad_request("remember is true, but no consumer is given", "give a consumer, or leave remember out");
  auto tenant = tenant_of(who, rules, asked);
  if (!tenant) return tenant.error();
  lease.tenant = std::move(*tenant);
  return {};
}

// TooLarge if no device has as much memory as this ceiling.
Status check_ceiling(const engine::Engine& engine, Bytes ceiling) {
  Bytes most;
  for (const auto& [uuid, device] : engine.state().devices.by_uuid) {
    if (!device.read_at) return {};  // not every device is known yet
    most = std::max(most, device.reading.total);
  }
  if (ceiling <= most || most == Bytes{}) return {};
  return Error{Code::TooLarge,
               fmt::format("the ceiling {} is more than any device has; the most is {}", format_size(ceiling),
                           format_size(most)),
               "choose a smaller ceiling, or none",
               {{"asked_bytes", ceiling.count}, {"most_bytes", most.count}}};
}

Status take_limits(Body& body, const engine::Engine& engine, Bytes vram, Lease& lease) {
  lease.ceiling = {body.integer("memory_bytes", least_lease.count, 1LL << 62).value_or(0)};
  lease.soft_limit = {body.integer("soft_bytes", 1, 1LL << 62).value_or(0)};
  if (lease.ceiling > Bytes{} && lease.soft_limit >= lease.ceiling) {
    return bad_request(fmt::format("the soft limit {} is not below the ceiling {}", format_size(lease.soft_limit),
                                   format_size(lease.ceiling)),
                       "choose a soft limit below the ceiling");
  }
  if (lease.ceiling > Bytes{} && lease.ceiling < vram) {
    return bad_request(
        fmt::format("the ceiling {} is below the size {} of the lease", format_size(lease.ceiling), format_size(vram)),
        "choose a ceiling of the lease's size or more");
  }
  return check_ceiling(engine, lease.ceiling);
}

// The library in the program holds the share.
Status take_share(Body& body, Lease& lease) {
  const bool is_interposed = body.boolean("interposer").value_or(false);
  lease.share = static_cast<int>(body.integer("share", 1, 100).value_or(0));
  if (lease.share == 0 || is_interposed) return {};
  return bad_request("share is given without the interposer: the library in the program keeps the program to its share",
                     "give interposer: true, and start the program with the library");
}

// The keeper of a supervised program asks for the lease of a start.
Status take_program(Body& body, LeaseCall& asked) {
  const json* given = body.object("program");
  if (given == nullptr) return {};
  Body program(*given, "program.");
  const auto tag = program.label("tag");
  const auto number = program.integer("number", 1, INT64_MAX), start = program.integer("start", 1, INT64_MAX);
  if (auto finished = program.finish(); !finished) return finished;
  if (!tag || !number || !start)
    return bad_request("program has no tag, no number or no start", "give all three, or leave program out");
  asked.program = {*tag, static_cast<std::uint64_t>(*number), static_cast<std::uint64_t>(*start)};
  return {};
}

// The keeper of a session asks for the lease of a start.
Status take_session(Body& body, LeaseCall& asked) {
  const json* given = body.object("session");
  if (given == nullptr) return {};
  Body session(*given, "session.");
  const auto number = sessions::parse_id(session.text("id").value_or(""));
  const auto start = session.integer("start", 1, INT64_MAX);
  if (auto finished = session.finish(); !finished) return finished;
  if (!number || !start) return bad_request("session has no id or no start", "give both, or leave session out");
  asked.session = {*number, static_cast<std::uint64_t>(*start)};
  return {};
}

// The lease's own idle rule: seconds without work, 0 for off.
Status take_idle(Body& body, const Call& call, idle::Rule& rule) {
  const json* given = body.object("idle");
  if (given == nullptr) return {};
  Body parts(*given, "idle.");
  const auto take = [&parts](std::string_view name) -> std::optional<Duration> {
    const auto seconds = parts.integer(name, 0, 365LL * 86400);
    return seconds ? std::optional<Duration>(std::chrono::seconds(*seconds)) : std::nullopt;
  };
  rule = {take("warn_seconds"), take("pause_seconds"), take("end_seconds")};
  if (auto finished = parts.finish(); !finished) return finished;
  if (!rule.empty() && call.capabilities.idle == nullptr)
    return switched_off("idle rules are switched off", "idle.enabled");
  return {};
}

Status take_owner(Body& body, const OnBehalf& who, const Call& call, Lease& lease) {
  const engine::Peer& peer = call.request.peer;
  const engine::Engine& engine = call.engine;
  if (const auto ttl = body.integer("ttl_seconds", 1, 100LL * 366 * 86400)) lease.ttl = std::chrono::seconds(*ttl);
  lease.owner.kind = lease.ttl ? core::OwnerKind::token : core::OwnerKind::connection;
  const json* given = body.object("owner");
  if (given == nullptr) return {};
  Body owner(*given, "owner.");
  const auto pid = owner.integer("pid", 1, INT32_MAX);
  const bool connection = owner.boolean("connection").value_or(false);
  const auto cgroup = owner.text("cgroup", 4096);
  if (auto finished = owner.finish(); !finished) return finished;
  if (pid.has_value() + connection + cgroup.has_value() > 1)
    return bad_request("owner has more than one of pid, connection and cgroup", "give one of the three");
  if (connection) lease.owner.kind = core::OwnerKind::connection;
  if (cgroup) return take_group(*cgroup, who, call, lease);
  if (!pid) return {};
  if (auto here = may_name_processes(peer, *pid); !here) return here;
  if (auto same = engine.programs().check_pid_namespace(peer.pid); !same) return same;
  const bool any = (peer.role == engine::Role::admin && peer.uid == 0) || who.user.uid != peer.uid;
  const auto uid = any ? std::nullopt : std::optional(peer.uid);
  const auto process = engine.programs().identify(static_cast<std::int32_t>(*pid), uid);
  if (!process) return process.error();
  lease.owner.kind = core::OwnerKind::process;
  lease.owner.process = process->process;
  lease.owner.inode = process->inode;
  lease.had_process = true;
  return {};
}

// An admin may give a program a rank that its user may not choose: its starts keep that rank.
engine::Peer rank_of(const Call& call, const engine::Peer& peer) {
  const guard::Guard* guard = call.capabilities.guard;
  const json& body = call.request.body;
  if (guard == nullptr || !body.contains("program") || !body["program"].is_object()) return peer;
  const json& tag = body["program"].value("tag", json());
  const guard::Program* program = tag.is_string() ? guard->find(peer.uid, tag.get<std::string>()) : nullptr;
  if (program == nullptr) return peer;
  const auto same = [&](const char* field) {
    return body.value(field, json()) == program->manifest.request.value(field, json());
  };
  engine::Peer as_admin = peer;
  if (same("tier") && same("priority")) as_admin.role = engine::Role::admin;
  return as_admin;
}

struct DryRunWish {
  bool wanted = false;
  std::optional<int> count = {};  // of leases like this
};

Result<LeaseCall> read_request(Call& call, DryRunWish& dry_run) {
  Body body(call.request.body);
  LeaseCall asked;
  Lease& lease = asked.submit.lease;
  const engine::Peer& peer = call.request.peer;
  const auto vram = body.integer("vram_bytes", least_lease.count, 1LL << 62);
  const auto least = body.integer("min_vram_bytes", least_lease.count, 1LL << 62);
  lease.device_count = static_cast<int>(body.integer("devices", 1, 1024).value_or(1));
  asked.submit.may_queue = body.boolean("queue").value_or(true);
  asked.wait = std::chrono::seconds(body.integer("wait_seconds", 0, 3600).value_or(0));
  dry_run.wanted = body.boolean("dry_run").value_or(false);
  if (const auto count = body.integer("count", 1, most_planned)) dry_run.count = static_cast<int>(*count);
  const auto who = take_on_behalf(body, call);
  if (!who) return who.error();
  if (auto taken = take_names(body, *who, call.engine.options().tenants, lease); !taken) return taken.error();
  engine::Peer rank = rank_of(call, peer);
  if (who->by_agent) rank.role = engine::Role::admin;
  if (auto taken = take_rank(body, rank, lease); !taken) return taken.error();
  if (auto taken = take_device(body, call.engine, lease); !taken) return taken.error();
  if (auto taken = take_gpu_spec(body, call.engine, lease); !taken) return taken.error();
  if (auto taken = take_owner(body, *who, call, lease); !taken) return taken.error();
  if (auto taken = take_limits(body, call.engine, {vram.value_or(0)}, lease); !taken) return taken.error();
  if (auto taken = take_program(body, asked); !taken) return taken.error();
  if (auto taken = take_session(body, asked); !taken) return taken.error();
  if (auto taken = take_idle(body, call, asked.idle); !taken) return taken.error();
  if (auto taken = take_share(body, lease); !taken) return taken.error();
  // The daemon itself looks after what it started.
  asked.keep_running = body.boolean("keep_running").value_or(false) || asked.program || asked.session;
  if (auto finished = body.finish(); !finished) return finished.error();
  if (!vram) return bad_request("vram_bytes is missing", "give the VRAM that the program needs, in bytes");
  if (dry_run.count && !dry_run.wanted)
    return bad_request("count is given without dry_run", "leave count out: a request asks for one lease");
  lease.vram = {*vram};
  lease.min_vram = {least.value_or(0)};
  asked.token = new_secret(call.request);
  lease.token = store::hash_secret(asked.token.text);
  asked.submit.held = true;
  asked.submit.waiter = peer.pid;
  return asked;
}

Response lease_response(const Call& call, const Lease& lease, int status = 200) {
  return as_json(status, render_lease(lease, call.engine, call.request.peer, true));
}

int status_of(const Lease& lease) { return lease.state == LeaseState::queued ? 202 : 201; }

std::string with_fields(std::string text, const std::string& more) {
  if (!more.empty()) text.back() = ',', text += more + "}";
  return text;
}

std::string location_of(LeaseId id) { return "/v1/leases/" + to_string(id); }

WaitForLease wait_for_grant(const Call& call, LeaseId id, bool by_connection, Duration at_most, std::string token,
                            std::string more = {}) {
  return {.lease = id,
          .since = LeaseState::queued,
          .hold = true,
          .release_hold = !by_connection,
          .submitted = true,
          .at_most = at_most,
          .answer = [&engine = call.engine, peer = call.request.peer, token = std::move(token),
                     more = std::move(more)](const Lease& lease) {
            std::string shown = with_fields(render_lease(lease, engine, peer, true), more);
            return as_json(status_of(lease), with_field(std::move(shown), "token", token), location_of(lease.id));
          }};
}

}  // namespace

Status take_rank(Body& body, const engine::Peer& peer, Lease& lease) {
  if (auto taken = take_word(body, "tier", core::parse_tier, lease.tier, tiers); !taken) return taken;
  if (auto taken = take_word(body, "pausable", parse_pausable, lease.pausable, pausables); !taken) return taken;
  lease.priority =
      static_cast<int>(body.integer("priority", -core::admin_priority_limit, core::admin_priority_limit).value_or(0));
  if (peer.role == engine::Role::admin) return {};
  if (std::abs(lease.priority) > core::tenant_priority_limit) {
    return denied(fmt::format("priority {} is not between -{} and {}", lease.priority, core::tenant_priority_limit,
                              core::tenant_priority_limit),
                  "only admins may use higher values");
  }
  if (lease.tier == core::Tier::critical)
    return denied("only admins may use the tier critical", "your highest tier is interactive");
  return {};
}

Status check_lease_request(Call& call, const json& body) {
  const auto asked = read_lease_request(call, body);
  if (!asked) return asked.error();
  const Status may = explain::refusal(call.engine.state(), call.engine.rules(), asked->submit, call.engine.now());
  if (!may && (may.error().code == Code::TooLarge || may.error().code == Code::BadRequest)) return may.error();
  return {};
}

Result<LeaseCall> read_lease_request(Call& call, const json& body) {
  Request request = call.request;
  request.body = body;
  Call again{request, call.engine, {}, {}, call.capabilities};
  DryRunWish dry_run;
  return read_request(again, dry_run);
}

Reply submit(Call& call, LeaseCall asked) {
  engine::Engine& engine = call.engine;
  const engine::Peer peer = call.request.peer;
  const Starter starter(call, asked);
  if (auto may = starter.may_submit(); !may) return problem(may.error());
  asked.submit.successor_of = starter.predecessor();
  auto made = submit_with_token(engine, asked.submit, call.remember, asked.token, [&](const Lease& lease) {
    starter.submitted(lease);
    if (call.capabilities.follow != nullptr) call.capabilities.follow->submitted(lease, asked.keep_running);
    if (call.capabilities.idle != nullptr)
      call.capabilities.idle->submitted(lease, asked.idle, asked.session.has_value());
    return std::pair(status_of(lease), with_fields(render_lease(lease, engine, peer, true), asked.more));
  });
  if (!made) {
    starter.refused(made.error());
    return problem(made.error());
  }
  auto& [id, response] = *made;
  const bool by_connection = asked.submit.lease.owner.kind == core::OwnerKind::connection;
  if (by_connection) engine.access().hold(id, call.request.session, peer.pid);
  if (asked.wait <= Duration::zero() || response.status == 201) {
    if (!by_connection) engine.access().not_held(id);
    response.location = location_of(id);
    return std::move(response);
  }
  return wait_for_grant(call, id, by_connection, asked.wait, asked.token.text, asked.more);
}

namespace {

Reply post_lease(Call& call) {
  DryRunWish dry_run;
  auto asked = read_request(call, dry_run);
  if (!asked) return problem(asked.error());
  const Lease& lease = asked->submit.lease;
  // A group has one lease: the call was repeated, or another process of the group asks.
  const auto owned = lease_of_group(call, lease);
  if (!owned) return problem(owned.error());
  if (*owned != nullptr && !dry_run.wanted) return lease_response(call, **owned);
  engine::Peer user = call.request.peer;
  user.uid = lease.uid, user.user = lease.user;
  if (auto more = check_lease_limit(call.engine, user, dry_run.count.value_or(1)); !more) return problem(more.error());
  if (auto apart = check_nesting(call, *asked); !apart) return problem(apart.error());
  return dry_run.wanted ? Reply(dry_run_of(call, *asked, dry_run.count)) : submit(call, std::move(*asked));
}

}  // namespace

// A retry of a call that made a lease: the same answer, and the same consequences for the connection it came on.
Reply replay_lease(Call& call, const store::Remembered& answer) {
  json body = json::parse(answer.body, nullptr, false);
  const auto id = body.is_object() ? parse_lease_id(body.value("id", "")) : parse_lease_id("");
  if (!id)
    return problem(
        unavailable("the stored answer to this Idempotency-Key cannot be read", "use a new Idempotency-Key"));
  unseal(body, call.request);
  const std::string token = body.value("token", "");
  Response same{answer.status, std::move(body), location_of(*id)};
  const Lease* lease = call.engine.find(*id);
  if (lease == nullptr || lease->ended()) return same;
  const bool by_connection = lease->owner.kind == core::OwnerKind::connection;
  if (by_connection) {
    call.engine.access().hold(*id, call.request.session, call.request.peer.pid);
    lease = call.engine.find(*id);  // a moment has passed for it, which may have been its last
    if (lease == nullptr || lease->ended()) return same;
  }
  Body fields(call.request.body);
  const Duration wait = std::chrono::seconds(fields.integer("wait_seconds", 0, 3600).value_or(0));
  if (wait <= Duration::zero() || lease->state != LeaseState::queued) return same;
  return wait_for_grant(call, *id, by_connection, wait, token);
}

namespace {

Reply get_lease(Call& call) {
  Duration wait{};
  if (const auto given = call.request.query.find("wait"); given != call.request.query.end()) {
    const auto parsed = parse_duration(given->second);
    if (!parsed) return problem(parsed.error());
    wait = std::min<Duration>(*parsed, std::chrono::hours(1));
  }
  std::optional<LeaseState> since;
  if (const auto given = call.request.query.find("since"); given != call.request.query.end()) {
    since = core::parse_lease_state(given->second);
    if (!since)
      return problem(bad_request(fmt::format("since={} is not a lease's state{}", printable(given->second),
                                             did_you_mean(given->second, states)),
                                 fmt::format("one of {}", fmt::join(states, ", "))));
  }
  // A caller that has not been told of a stop yet must not wait for the next change: the stop may lie between two
  // waits.
  const auto knows = query_flag(call.request, "stopping");
  if (!knows) return problem(knows.error());
  const bool unaware = !knows->value_or(true);
  const std::string token = call.request.lease_token;
  return with_lease(
      call, call.args[0],
      [&engine = call.engine, request = call.request, wait, since, unaware, token](const Lease& found) -> Reply {
        const LeaseId id = found.id;
        Call again{request, engine, {to_string(id)}, {}};
        const bool owner = !token.empty() && store::is_secret(token, found.token);
        if (!token.empty() && !owner) {
          return problem(
              denied(fmt::format("the token is not the token of {}", to_string(id)),
                     "send the token from the reply that created the lease; reading the lease needs no token"));
        }
        const bool by_connection = found.owner.kind == core::OwnerKind::connection;
        const Lease* now = &found;
        if (owner && by_connection && !found.ended()) {
          engine.access().hold(id, request.session, request.peer.pid);
          now = engine.find(id);  // a moment has passed for it: if that was its last, `found` is gone
          if (now == nullptr) return get_lease(again);
        }
        const Lease& lease = *now;
        const bool news = (since && lease.state != *since) || (unaware && lease.stop_requested);
        if (wait <= Duration::zero() || lease.ended() || news) {
          return lease_response(again, lease);
        }
        return WaitForLease{.lease = lease.id,
                            .since = lease.state,
                            .was_stopping = lease.stop_requested,
                            .hold = owner,
                            .release_hold = !by_connection,
                            .at_most = wait,
                            .answer = [&engine, peer = request.peer](const Lease& later) {
                              return as_json(200, render_lease(later, engine, peer, true));
                            }};
      });
}

constexpr Route table[] = {
    Route{Method::post, "/v1/leases", Role::user, Scope::submit, post_lease, "LeaseRequest", "SubmittedLease"}
        .granting(Grants::requested)
        .replayed_by(replay_lease),
    Route{Method::get, "/v1/leases/{id}", Role::user, Scope::read, get_lease, "wait,since,stopping", "Lease"},
};

}  // namespace

const std::span<const Route> lease_routes = table;

}  // namespace sublet::http
