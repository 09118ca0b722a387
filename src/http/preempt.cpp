// SPDX-License-Identifier: Apache-2.0
// Preemption requests: for a waiting lease, and for a program without a lease.
#include "base/size_bounds.h"
#include "explain/dry_run.h"
#include "explain/explain.h"
#include "http/asking.h"
#include "http/find_lease.h"
#include "http/render.h"
#include "http/routes.h"
#include "state/format.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

using core::Lease;
using core::LeaseState;

constexpr std::int64_t longest_hold = 7 * 86400;  // seconds

// An admin may preempt any program; other callers those of the lease's user, as far as they may act for the lease.
core::PreemptionRequest requested_by(const engine::Peer& peer, std::uint32_t own) {
  const bool admin = peer.role == engine::Role::admin;
  return {admin ? peer.uid : own, admin};
}

std::string preview_with_lease(const core::VictimPlan& plan, const Lease& lease, const engine::Engine& engine,
                               const engine::Peer& peer) {
  JsonText out;
  out.begin_object();
  write_preview(out, plan, engine.state());
  out.key("lease");
  write_lease(out, lease, engine, peer, true);
  return out.end_object().take();
}

struct Wish {
  std::string lease;
  std::uint64_t generation = 0;
  bool preview = false;
};

Result<Wish> read_wish(const Request& request) {
  Body body(request.body);
  Wish wish;
  wish.lease = body.text("lease").value_or("");
  wish.generation = static_cast<std::uint64_t>(body.integer("generation", 1, INT64_MAX).value_or(0));
  wish.preview = body.boolean("preview").value_or(false);
  if (auto finished = body.finish(); !finished) return finished.error();
  if (wish.lease.empty()) return bad_request("lease is missing", "name the waiting lease by its id or tag");
  return wish;
}

Reply preempt_for(engine::Engine& engine, const Request& request, const engine::Remember& remember, const Wish& wish,
                  const Lease& lease) {
  if (auto allowed = may_act(request, lease); !allowed) return problem(allowed.error());
  const engine::Peer& peer = request.peer;
  const bool waits = engine.state().queue.contains(lease.id);
  const bool there = lease.state == LeaseState::active || lease.state == LeaseState::offered;
  if (!waits && !there) {
    return problem({Code::Stale,
                    fmt::format("memory is freed for waiting leases only; {} {} {}", to_string(lease.id),
                                lease.ended() ? "has" : "is", core::to_string(lease.state)),
                    lease.parked()  ? core::back_hint(engine.state(), lease)
                    : lease.ended() ? "ask for a new lease"
                                    : fmt::format("`sublet why {}` shows its progress", to_string(lease.id))});
  }
  const core::PreemptionRequest by = requested_by(peer, lease.uid);
  core::VictimPlan plan;
  plan.found = true;  // it has its memory already
  plan.devices = lease.devices;
  if (waits) plan = explain::victim_plan(engine.state(), engine.rules(), lease, by, engine.now());
  if (wish.preview) {
    explain::limit_to_host(plan, engine.state(), engine.rules(), lease.uid);
    return as_json(200, preview_with_lease(plan, lease, engine, peer));
  }
  auto answered = engine.request(core::Preempt{lease.id, wish.generation, by}, remember, [&](const Lease& now) {
    const int status = engine.state().queue.contains(now.id) ? 202 : 200;
    return engine::Answered{status, preview_with_lease(plan, now, engine, peer)};
  });
  if (!answered) {
    Error error = answered.error();
    if (error.code == Code::CannotPreempt && error.hint.empty()) error.hint = plan.hint;
    return problem(error);
  }
  return as_json(std::move(*answered));
}

struct FreeWish {
  LeaseCall asked;
  bool preview = false;
};

// A reservation for a program without a lease is a lease that no program uses.
Result<FreeWish> read_free(Call& call) {
  Body body(call.request.body);
  const engine::Peer& peer = call.request.peer;
  FreeWish wish;
  Lease& lease = wish.asked.submit.lease;
  const auto vram = body.integer("vram_bytes", least_lease.count, 1LL << 62);
  lease.ttl = std::chrono::seconds(body.integer("hold_seconds", 1, longest_hold).value_or(60));
  wish.asked.wait = std::chrono::seconds(body.integer("wait_seconds", 0, 3600).value_or(0));
  wish.preview = body.boolean("preview").value_or(false);
  if (auto taken = take_device(body, call.engine, lease); !taken) return taken.error();
  if (auto finished = body.finish(); !finished) return finished.error();
  if (!vram) return bad_request("vram_bytes is missing", "give the VRAM to free, in bytes");
  lease.vram = {*vram};
  lease.uid = peer.uid;
  lease.user = peer.user;
  auto tenant = engine::tenant_for(call.engine.options().tenants, peer);
  if (!tenant) return tenant.error();
  lease.tenant = std::move(*tenant);
  lease.consumer = "free";
  lease.nameless = true;
  lease.pausable = core::Pausable::no;
  lease.owner.kind = core::OwnerKind::token;
  wish.asked.token = new_secret(call.request);
  lease.token = store::hash_secret(wish.asked.token.text);
  wish.asked.submit.held = true;
  wish.asked.submit.waiter = call.request.peer.pid;
  wish.asked.submit.preemption_request = requested_by(peer, peer.uid);
  return wish;
}

Error cannot_free(const Lease& lease, const core::VictimPlan& plan, const core::State& state) {
  std::string text = fmt::format("{} cannot be freed: {}", format_size(lease.vram), plan.why_not);
  for (const core::Ineligible& ineligible : plan.ineligible) {
    const Lease* other = core::find(state, ineligible.lease);
    text += fmt::format("; {} ({}, {}): {}", to_string(ineligible.lease), other->consumer, other->user, ineligible.why);
  }
  return {Code::CannotPreempt, std::move(text), plan.hint};
}

Reply post_preempt(Call& call) {
  const auto wish = read_wish(call.request);
  if (!wish) return problem(wish.error());
  return with_lease(call, wish->lease,
                    [&engine = call.engine, request = call.request, remember = call.remember,
                     wish = *wish](const Lease& lease) { return preempt_for(engine, request, remember, wish, lease); });
}

Reply post_free(Call& call) {
  auto wish = read_free(call);
  if (!wish) return problem(wish.error());
  const engine::Engine& engine = call.engine;
  if (auto more = check_lease_limit(engine, call.request.peer); !more) return problem(more.error());
  auto found = explain::dry_run(engine.state(), engine.rules(), wish->asked.submit, engine.now());
  if (!found) return problem(found.error());
  if (wish->preview) explain::limit_to_host(found->room, engine.state(), engine.rules(), call.request.peer.uid);
  JsonText preview;
  preview.begin_object();
  write_preview(preview, found->room, engine.state());
  preview.end_object();
  if (wish->preview) return as_json(200, preview.take());
  if (found->would == explain::Would::wait && !found->room.found)
    return problem(cannot_free(wish->asked.submit.lease, found->room, engine.state()));
  wish->asked.more = "\"preemption\":" + std::string(preview.text());
  return submit(call, std::move(wish->asked));
}

constexpr Route table[] = {
    Route{Method::post, "/v1/preempt", Role::user, Scope::submit, post_preempt, "lease,preview,generation",
          "PreemptionForLease"},
    Route{Method::post, "/v1/free", Role::user, Scope::submit, post_free,
          "vram_bytes,device,hold_seconds,wait_seconds,preview", "PreemptionPreview,FreedLease"}
        .granting(Grants::requested)
        .replayed_by(replay_lease),
};

}  // namespace

const std::span<const Route> preempt_routes = table;

}  // namespace sublet::http
