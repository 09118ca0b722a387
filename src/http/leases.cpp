// SPDX-License-Identifier: Apache-2.0
// Asking for a lease, reading leases, waiting for one.
#include "base/text.h"
#include "http/body.h"
#include "http/find_lease.h"
#include "http/render.h"
#include "http/resources.h"

#include <sys/random.h>

namespace sublet::http {
namespace {

using core::Lease;
using core::LeaseState;

// A queue longer than this is listed without estimates beyond it: each costs a walk.
constexpr std::size_t detailed_limit = 100;
constexpr std::size_t list_limit = 1000;

std::string new_token() {
  std::array<unsigned char, 16> bytes{};
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const auto got = ::getrandom(bytes.data() + filled, bytes.size() - filled, 0);
    if (got > 0) filled += static_cast<std::size_t>(got);
  }
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

// A name that is put on a command line, in a column, in a label: short, no spaces, no surprises.
bool plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-' || c == '/' || c == ':' || c == '+';
  });
}

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
constexpr std::array<std::string_view, 5> pausables{"auto", "cooperative", "interposer", "driver", "no"};

Status take_names(Body& body, const engine::Peer& peer, Lease& lease) {
  lease.uid = peer.uid;
  lease.user = peer.user;
  lease.tenant = body.text("tenant").value_or(peer.user);
  lease.consumer = body.text("consumer").value_or("unnamed");
  lease.tag = body.text("tag").value_or("");
  lease.command = body.text("command", 4096).value_or("");
  for (const auto& [what, name] :
       {std::pair("tenant", &lease.tenant), std::pair("consumer", &lease.consumer), std::pair("tag", &lease.tag)}) {
    if (name->empty() && name == &lease.tag) continue;
    if (!plain_name(*name)) {
      return bad_request(fmt::format("{} '{}' is not a name", what, printable(*name)),
                         "use 1 to 64 letters, digits and . _ - / : +");
    }
  }
  if (!lease.tag.empty() && parse_lease_id(lease.tag)) {
    return bad_request(fmt::format("tag '{}' reads like a lease's id", lease.tag), "use a name with a letter in it");
  }
  if (lease.tenant != peer.user && peer.role != engine::Role::admin) {
    return denied(fmt::format("user {} may not be charged to tenant {}", peer.user, lease.tenant),
                  "leave the tenant out, or ask an admin");
  }
  return {};
}

Status take_rank(Body& body, const engine::Peer& peer, Lease& lease) {
  if (auto taken = take_word(body, "tier", core::parse_tier, lease.tier, tiers); !taken) return taken;
  if (auto taken = take_word(body, "pausable", core::parse_pausable, lease.pausable, pausables); !taken) return taken;
  lease.priority =
      static_cast<int>(body.integer("priority", -core::admin_priority_limit, core::admin_priority_limit).value_or(0));
  if (peer.role == engine::Role::admin) return {};
  if (std::abs(lease.priority) > core::tenant_priority_limit) {
    return denied(fmt::format("priority {} is outside of -{} … {}", lease.priority, core::tenant_priority_limit,
                              core::tenant_priority_limit),
                  "more is for admins");
  }
  if (lease.tier == core::Tier::critical)
    return denied("tier critical is for admins", "the highest for you: interactive");
  return {};
}

// A device is asked for as gpu0, 0, a uuid or the beginning of one.
Status take_device(Body& body, const core::State& state, Lease& lease) {
  const auto wanted = body.text("device");
  if (!wanted || wanted->empty() || *wanted == "any") return {};
  std::vector<std::string> names;
  std::vector<std::string> matches;
  for (const auto& [uuid, device] : state.devices()) {
    const std::string id = fmt::format("gpu{}", device.reading.index);
    names.push_back(id);
    if (*wanted == id || *wanted == std::to_string(device.reading.index) || *wanted == uuid) {
      matches = {uuid};
      break;
    }
    if (wanted->size() >= 8 && uuid.starts_with(*wanted)) matches.push_back(uuid);
  }
  if (matches.size() == 1) {
    lease.wanted_device = matches[0];
    return {};
  }
  if (matches.size() > 1) return bad_request(fmt::format("device '{}' fits {} devices", *wanted, matches.size()));
  return not_found(fmt::format("there is no device '{}'", printable(*wanted)),
                   names.empty() ? "no GPU has been read yet" : fmt::format("there is {}", fmt::join(names, ", ")));
}

Status take_owner(Body& body, const engine::Peer& peer, const engine::Engine& engine, Lease& lease) {
  if (const auto ttl = body.integer("ttl_seconds", 1, 100LL * 366 * 86400)) lease.ttl = std::chrono::seconds(*ttl);
  lease.owner.kind = lease.ttl ? core::OwnerKind::token : core::OwnerKind::connection;
  const json* given = body.object("owner");
  if (given == nullptr) return {};
  Body owner(*given, "owner.");
  const auto pid = owner.integer("pid", 1, INT32_MAX);
  const bool connection = owner.boolean("connection").value_or(false);
  if (auto finished = owner.finish(); !finished) return finished;
  if (pid && connection) return bad_request("owner has both a pid and a connection", "give one of them");
  if (connection) lease.owner.kind = core::OwnerKind::connection;
  if (!pid) return {};
  if (auto same = engine.programs().check_pid_namespace(peer.pid); !same) return same;
  const auto uid = peer.role == engine::Role::admin && peer.uid == 0 ? std::nullopt : std::optional(peer.uid);
  const auto process = engine.programs().identify(static_cast<std::int32_t>(*pid), uid);
  if (!process) return process.error();
  lease.owner.kind = core::OwnerKind::process;
  lease.owner.process = process->process;
  lease.owner.inode = process->inode;
  lease.had_process = true;
  return {};
}

struct Asked {
  core::Submit submit;
  Duration wait{};
};

Result<Asked> read_request(Call& call) {
  Body body(call.request.body);
  Asked asked;
  Lease& lease = asked.submit.lease;
  const engine::Peer& peer = call.request.peer;
  const auto vram = body.integer("vram_bytes", 1, 1LL << 62);
  const auto least = body.integer("min_vram_bytes", 1, 1LL << 62);
  lease.device_count = static_cast<int>(body.integer("devices", 1, 1024).value_or(1));
  asked.submit.may_queue = body.boolean("queue").value_or(true);
  asked.wait = std::chrono::seconds(body.integer("wait_seconds", 0, 3600).value_or(0));
  if (auto taken = take_names(body, peer, lease); !taken) return taken.error();
  if (auto taken = take_rank(body, peer, lease); !taken) return taken.error();
  if (auto taken = take_device(body, call.engine.state(), lease); !taken) return taken.error();
  if (auto taken = take_owner(body, peer, call.engine, lease); !taken) return taken.error();
  if (auto finished = body.finish(); !finished) return finished.error();
  if (!vram) return bad_request("vram_bytes is missing", "say how much VRAM the program needs, in bytes");
  lease.vram = {*vram};
  lease.min_vram = {least.value_or(0)};
  lease.token = new_token();
  asked.submit.held = true;
  return asked;
}

Response lease_response(const Call& call, const Lease& lease, int status = 200) {
  return {status, render_lease(lease, call.engine, call.request.peer, true), {}};
}

// What the caller was given when it submitted: the token belongs to this reply alone.
engine::Answered submitted(engine::Engine& engine, const engine::Peer& peer, const Lease& lease) {
  engine::Answered answered{lease.state == LeaseState::queued ? 202 : 201, render_lease(lease, engine, peer, true)};
  answered.body["token"] = lease.token;
  return answered;
}

json live_leases(const engine::Engine& engine, const engine::Peer& viewer) {
  std::vector<const Lease*> live;
  for (const auto& [id, lease] : engine.state().leases()) {
    if (!lease.ended()) live.push_back(&lease);
  }
  std::sort(live.begin(), live.end(), [](const Lease* a, const Lease* b) { return a->id < b->id; });
  json leases = json::array();
  std::size_t detailed = 0;
  for (const Lease* lease : live) {
    const bool queued = lease->state == LeaseState::queued;
    leases.push_back(render_lease(*lease, engine, viewer, queued && detailed++ < detailed_limit));
  }
  return leases;
}

std::string location_of(LeaseId id) { return "/v1/leases/" + to_string(id); }

WaitForLease wait_for_grant(const Call& call, LeaseId id, bool by_connection, Duration at_most) {
  return {.lease = id,
          .since = LeaseState::queued,
          .hold = true,
          .release_hold = !by_connection,
          .submitted = true,
          .at_most = at_most,
          .answer = [&engine = call.engine, peer = call.request.peer](const Lease& lease) {
            auto late = submitted(engine, peer, lease);
            return Response{late.status, std::move(late.body), location_of(lease.id)};
          }};
}

}  // namespace

Reply post_lease(Call& call) {
  auto asked = read_request(call);
  if (!asked) return problem(asked.error());
  engine::Engine& engine = call.engine;
  const engine::Peer peer = call.request.peer;
  LeaseId id;
  auto answered = engine.request(asked->submit, call.remember, [&](const Lease& lease) {
    id = lease.id;
    return submitted(engine, peer, lease);
  });
  if (!answered) return problem(answered.error());
  const bool by_connection = asked->submit.lease.owner.kind == core::OwnerKind::connection;
  if (by_connection) engine.hold(id, call.request.session);
  if (asked->wait <= Duration::zero() || answered->status == 201) {
    if (!by_connection) engine.not_held(id);
    return Response{answered->status, std::move(answered->body), location_of(id)};
  }
  return wait_for_grant(call, id, by_connection, asked->wait);
}

// A retry of a call that made a lease: the same answer, and the same consequences for the connection it came on.
Reply replay_lease(Call& call, const store::Remembered& answer) {
  json body = json::parse(answer.body, nullptr, false);
  const auto id = body.is_object() ? parse_lease_id(body.value("id", "")) : parse_lease_id("");
  if (!id) return problem(unavailable("the stored answer cannot be read", "use a new Idempotency-Key"));
  Response same{answer.status, std::move(body), location_of(*id)};
  const Lease* lease = call.engine.find(*id);
  if (lease == nullptr || lease->ended()) return same;
  const bool by_connection = lease->owner.kind == core::OwnerKind::connection;
  if (by_connection) call.engine.hold(*id, call.request.session);
  Body fields(call.request.body);
  const Duration wait = std::chrono::seconds(fields.integer("wait_seconds", 0, 3600).value_or(0));
  if (wait <= Duration::zero() || lease->state != LeaseState::queued) return same;
  return wait_for_grant(call, *id, by_connection, wait);
}

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
    if (!since) return problem(bad_request(fmt::format("since={} is not a state", printable(given->second))));
  }
  // A caller that has not been told of a stop yet must not wait for the next change: the stop may lie between two
  // waits.
  const auto knows = call.request.query.find("stopping");
  const bool unaware = knows != call.request.query.end() && knows->second == "false";
  const std::string token = call.request.lease_token;
  return with_lease(
      call, call.args[0],
      [&engine = call.engine, request = call.request, wait, since, unaware, token](const Lease& lease) -> Reply {
        Call again{request, engine, {}, {}};
        const bool owner = !token.empty() && token == lease.token;
        if (!token.empty() && !owner) {
          return problem(denied(fmt::format("that is not the token of {}", to_string(lease.id))));
        }
        const bool by_connection = lease.owner.kind == core::OwnerKind::connection;
        if (owner && by_connection && !lease.ended()) engine.hold(lease.id, request.session);
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
                              return Response{200, render_lease(later, engine, peer, true), {}};
                            }};
      });
}

Reply get_leases(Call& call) {
  const auto all = call.request.query.find("all");
  if (all == call.request.query.end() || all->second == "false") {
    return Response{200, {{"leases", live_leases(call.engine, call.request.peer)}}, {}};
  }
  return Later{[&engine = call.engine, peer = call.request.peer](std::function<void(Reply)> done) {
    engine.read_store([&engine, peer, done](store::Reader& reader) {
      return [&engine, peer, done, ended = reader.ended(list_limit, std::nullopt)] {
        if (!ended) return done(problem(ended.error()));
        json leases = live_leases(engine, peer);  // only now, so that what ended meanwhile is not listed twice
        for (const Lease& lease : *ended) leases.push_back(render_lease(lease, engine, peer, false));
        done(Response{200, {{"leases", std::move(leases)}}, {}});
      };
    });
  }};
}

Reply get_queue(Call& call) {
  json queue = json::array();
  std::size_t detailed = 0;
  for (const LeaseId id : call.engine.state().queue().in_order()) {
    queue.push_back(render_lease(*call.engine.find(id), call.engine, call.request.peer, detailed++ < detailed_limit));
  }
  return Response{200, {{"queue", std::move(queue)}}, {}};
}

Reply get_why(Call& call) {
  return with_lease(call, call.args[0], [&engine = call.engine, peer = call.request.peer](const Lease& lease) -> Reply {
    json body = {{"lease", render_lease(lease, engine, peer, true)}, {"helps", json::array()}};
    body["queue"] = body["lease"]["queue"];
    for (const std::string& help : core::what_would_help(engine.state(), engine.rules(), lease, engine.now())) {
      body["helps"].push_back(help);
    }
    return Later{[&engine, body, id = lease.id](std::function<void(Reply)> done) {
      engine.read_store([body, id, done](store::Reader& reader) {
        return [body, done, reasons = reader.reasons(id)]() mutable {
          if (!reasons) return done(problem(reasons.error()));
          body["reasons"] = json::array();
          for (const core::Reason& reason : *reasons) {
            body["reasons"].push_back(
                {{"at", format_rfc3339(reason.at)}, {"code", reason.code}, {"text", reason.text}});
          }
          done(Response{200, std::move(body), {}});
        };
      });
    }};
  });
}

}  // namespace sublet::http
