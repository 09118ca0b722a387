// SPDX-License-Identifier: Apache-2.0
// Actions on a lease: claim, attach, renew, resize, touch, release, pause, resume.
#include "base/log.h"
#include "base/size_bounds.h"
#include "base/text.h"
#include "guard/guard.h"
#include "http/agents.h"
#include "http/body.h"
#include "http/find_lease.h"
#include "http/render.h"
#include "http/routes.h"
#include "idle/idle.h"
#include "machine/user_directory.h"
#include "sessions/sessions.h"
#include "stacks/stacks.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

using core::Lease;
using core::LeaseState;

std::uint64_t take_generation(Body& body) {
  return static_cast<std::uint64_t>(body.integer("generation", 1, INT64_MAX).value_or(0));
}

// 202: what was asked for is still to come, or did not come.
int status_after(const core::Fact& asked, const Lease& now) {
  const bool waits = (std::holds_alternative<core::Resize>(asked) && now.resize) ||
                     (std::holds_alternative<core::Pause>(asked) && !now.parked() && !now.held_back_at) ||
                     (std::holds_alternative<core::Resume>(asked) && now.state != LeaseState::active);
  return waits ? 202 : 200;
}

using Ask = std::function<Result<core::Fact>(Body&, const Lease&, const Request&, engine::Engine&)>;

// A call of the owner that counts as activity of the lease.
void note_touch(const core::Fact& fact, const Request& request, const Lease& lease, engine::Engine& engine) {
  const bool counts = std::holds_alternative<core::Renew>(fact) || std::holds_alternative<core::Resize>(fact) ||
                      std::holds_alternative<core::Attach>(fact) || std::holds_alternative<core::Resume>(fact);
  if (counts && is_owner(request, lease)) engine.observer().touch(lease.id);
}

using After = std::function<Reply(engine::Answered, LeaseId)>;

// Finds the lease, checks the right, makes the fact and answers with the lease as it then is, or with what `after`
// makes of that.
Reply act(Call& call, Ask ask, After after = {}) {
  return with_lease(
      call, call.args[0],
      [&engine = call.engine, request = call.request, remember = call.remember, ask = std::move(ask),
       after = std::move(after)](const Lease& lease) -> Reply {
        if (auto allowed = may_act(request, lease); !allowed) return problem(allowed.error());
        Body body(request.body);
        auto asked = ask(body, lease, request, engine);
        if (!asked) return problem(asked.error());
        if (auto finished = body.finish(); !finished) return problem(finished.error());
        if (core::find(engine.state(), lease.id) == nullptr) {  // ended and measured gone: nothing is left to decide
          if (!std::holds_alternative<core::Pause>(*asked) && !std::holds_alternative<core::Resume>(*asked) &&
              !std::holds_alternative<core::Claim>(*asked) && !std::holds_alternative<core::Attach>(*asked) &&
              !std::holds_alternative<core::Renew>(*asked) && !std::holds_alternative<core::Resize>(*asked))
            return as_json(200, render_lease(lease, engine, request.peer, false));
          return problem({Code::Stale,
                          fmt::format("{} has ended: {}", to_string(lease.id), core::to_string(lease.end_reason)),
                          "ask for a new lease"});
        }
        const LeaseId id = lease.id;
        auto answered = engine.request(*asked, remember, [&](const Lease& now) {
          return engine::Answered{status_after(*asked, now), render_lease(now, engine, request.peer, true)};
        });
        if (!answered) return problem(answered.error());
        if (const Lease* now = engine.find(id)) note_touch(*asked, request, *now, engine);
        if (after) return after(std::move(*answered), id);
        return as_json(std::move(*answered));
      });
}

// Answers at once, or with `wait_seconds` when the lease is no longer as it was after the decision: another state, or
// no wish to grow any more.
Reply act_and_wait(Call& call, Ask ask) {
  struct Kept {
    Duration wait{};
    std::optional<core::Fact> asked;
  };
  const auto kept = std::make_shared<Kept>();
  return act(
      call,
      [kept, ask = std::move(ask)](Body& body, const Lease& lease, const Request& request,
                                   engine::Engine& engine) -> Result<core::Fact> {
        kept->wait = std::chrono::seconds(body.integer("wait_seconds", 0, 3600).value_or(0));
        auto asked = ask(body, lease, request, engine);
        if (asked) kept->asked = *asked;
        return asked;
      },
      [kept, &engine = call.engine, peer = call.request.peer](engine::Answered answered, LeaseId id) -> Reply {
        const Lease* lease = engine.find(id);
        if (answered.status != 202 || lease == nullptr || kept->wait <= Duration::zero())
          return as_json(std::move(answered));
        return WaitForLease{.lease = id,
                            .since = lease->state,
                            .resizing = lease->resize.has_value(),
                            .at_most = kept->wait,
                            .answer = [kept, &engine, peer](const Lease& later) {
                              return as_json(status_after(*kept->asked, later),
                                             render_lease(later, engine, peer, true));
                            }};
      });
}

std::optional<std::uint32_t> uid_to_check(const Request& request) {
  return request.peer.uid == 0 ? std::nullopt : std::optional(request.peer.uid);
}

// "…/sublet_7_0a1b2c3d.slice" of lease-7. Only the one who starts a container chooses the name of its group.
bool names_lease(std::string_view directory, const Lease& lease) {
  const auto name = directory.substr(directory.rfind('/') + 1);
  return name.starts_with(fmt::format("sublet_{}_", lease.id.number)) && name.ends_with(".slice");
}

// An admin may book any group. A link to the group of others has a name, too: the group itself decides.
Result<proc::CgroupRef> group_to_book(const std::string& directory, const Lease& lease, const Request& request,
                                      const engine::Engine& engine) {
  const auto refused = denied("only an admin may book a whole cgroup", "attach single processes by pid");
  const bool admin = request.peer.role == engine::Role::admin;
  if (!admin && !names_lease(directory, lease)) return refused;
  auto group = engine.programs().check_cgroup(directory);
  if (!group || admin) return group;
  const bool own = group->uid == 0 || group->uid == lease.uid;
  return own && names_lease(group->path, lease) ? group : refused;
}

// Where the keeper leaves the exit status. "": nowhere, so that an end without the daemon has none.
std::string exit_record_of(const Lease& lease, std::int64_t pid, const std::string& exit_dir) {
  const Status made = machine::make_user_directory(exit_dir, lease.uid);
  if (made) return fmt::format("{}/{}-{}.json", machine::user_directory(exit_dir, lease.uid), to_string(lease.id), pid);
  log::warn({.lease = lease.id}, "its program leaves no exit record: {}", made.error().detail);
  return {};
}

Result<core::Fact> attach_process(Body& body, std::int64_t pid, const Lease& lease, const Request& request,
                                  engine::Engine& engine) {
  const auto keeper_pid = body.integer("keeper_pid", 1, INT32_MAX);
  const bool as_owner = body.boolean("owner").value_or(lease.owner.kind == core::OwnerKind::connection);
  if (auto here = may_name_processes(request.peer, pid); !here) return here.error();
  if (auto same = engine.programs().check_pid_namespace(request.peer.pid); !same) return same.error();
  auto process = engine.programs().identify(static_cast<std::int32_t>(pid), uid_to_check(request),
                                            static_cast<std::int32_t>(keeper_pid.value_or(0)));
  if (!process) return process.error();
  core::Attach attach{
      .lease = lease.id, .generation = take_generation(body), .owner = lease.owner, .as_owner = as_owner, .booked = {}};
  if (!as_owner) {
    attach.booked.process = process->process;
    return core::Fact(attach);
  }
  attach.owner = {.kind = core::OwnerKind::process,
                  .process = process->process,
                  .keeper = {},
                  .exit_record = {},
                  .inode = process->inode};
  if (keeper_pid) {
    auto keeper = engine.programs().identify(static_cast<std::int32_t>(*keeper_pid), uid_to_check(request));
    if (!keeper) return keeper.error();
    attach.owner.keeper = keeper->process;
    attach.owner.exit_record = exit_record_of(lease, pid, engine.options().exit_dir);
  }
  return core::Fact(attach);
}

Reply post_claim(Call& call) {
  return act(call, [](Body& body, const Lease& lease, const Request&, engine::Engine&) -> Result<core::Fact> {
    return core::Fact(core::Claim{lease.id, take_generation(body)});
  });
}

Reply post_attach(Call& call) {
  return act(call,
             [](Body& body, const Lease& lease, const Request& request, engine::Engine& engine) -> Result<core::Fact> {
               const auto pid = body.integer("pid", 1, INT32_MAX);
               const auto cgroup = body.text("cgroup", 4096);
               if (pid.has_value() == cgroup.has_value()) {
                 return bad_request("attach takes either pid or cgroup, and exactly one of them",
                                    "for example {\"pid\": 4711}");
               }
               if (lease.ended()) return Error{Code::Stale, to_string(lease.id) + " has ended", "ask for a new lease"};
               if (pid) return attach_process(body, *pid, lease, request, engine);
               if (auto here = may_name_processes(request.peer); !here) return here.error();
               auto group = group_to_book(*cgroup, lease, request, engine);
               if (!group) return group.error();
               return core::Fact(core::Attach{.lease = lease.id,
                                              .generation = take_generation(body),
                                              .owner = lease.owner,
                                              .as_owner = false,
                                              .booked = {{}, group->path}});
             });
}

Reply post_renew(Call& call) {
  return act(call, [](Body& body, const Lease& lease, const Request&, engine::Engine&) -> Result<core::Fact> {
    core::Renew renew{lease.id, take_generation(body), std::nullopt};
    if (const auto ttl = body.integer("ttl_seconds", 1, 100LL * 366 * 86400)) renew.ttl = std::chrono::seconds(*ttl);
    return core::Fact(renew);
  });
}

// An idle rule may have paused the lease: then the touch brings it back.
Reply post_touch(Call& call) {
  return with_lease(
      call, call.args[0],
      [&engine = call.engine, request = call.request, remember = call.remember](const Lease& lease) -> Reply {
        if (auto allowed = may_act(request, lease); !allowed) return problem(allowed.error());
        if (auto finished = Body(request.body).finish(); !finished) return problem(finished.error());
        if (lease.ended())
          return problem({Code::Stale,
                          fmt::format("{} has ended: {}", to_string(lease.id), core::to_string(lease.end_reason)),
                          "ask for a new lease"});
        engine.observer().touch(lease.id);
        const auto answer = [&](const Lease& now) {
          const bool waits = idle::Idle::has_paused(now);
          return engine::Answered{waits ? 202 : 200, render_lease(now, engine, request.peer, true)};
        };
        const bool returns = idle::Idle::has_paused(lease) && !lease.parking->resume_requested;
        auto answered = returns ? engine.request(core::Resume{lease.id}, remember, answer)
                                : engine.store_rows("answered", remember, [&] { return answer(lease); });
        if (!answered) return problem(answered.error());
        return as_json(std::move(*answered));
      });
}

// The engine that asked for the lease of a control group has counted its size.
static Status may_change_size(const Request& request, const engine::Engine& engine, const Lease& lease) {
  if (lease.owner.kind != core::OwnerKind::group) return {};
  const auto agent = is_agent(request.peer, engine.options().agents);
  if (!agent) return agent.error();
  if (*agent) return {};
  return denied(fmt::format("the size of {} was given by the agent that asked for it", to_string(lease.id)),
                "ask the cluster engine for a job of another size");
}

Reply post_resize(Call& call) {
  return act_and_wait(
      call, [](Body& body, const Lease& lease, const Request& request, engine::Engine& engine) -> Result<core::Fact> {
        if (auto may = may_change_size(request, engine, lease); !may) return may.error();
        const auto vram = body.integer("vram_bytes", least_lease.count, 1LL << 62);
        const bool may_queue = body.boolean("queue").value_or(true);
        const auto generation = take_generation(body);
        if (auto finished = body.finish(); !finished) return finished.error();
        if (!vram) return bad_request("vram_bytes is missing", "give the lease's new size in bytes");
        return core::Fact(core::Resize{lease.id, generation, {*vram}, may_queue});
      });
}

// The lease of a session's program ends with the session: after a release the program would run on without a lease.
Status check_no_session(const sessions::Sessions* sessions, const Lease& lease) {
  const bool has_program = !lease.ended() && lease.owner.kind == core::OwnerKind::process;
  const sessions::Session* session = sessions == nullptr || !has_program ? nullptr : sessions->find(lease.id);
  if (session == nullptr || !session->has_command()) return {};
  return Error{Code::InUse, fmt::format("{} belongs to {}", to_string(lease.id), session->id()),
               fmt::format("close the session: sublet session close {}", session->id())};
}

// The containers of a stack would be brought down with its lease, and not run on without it.
Status check_no_stack(const stacks::Stacks* stacks, const Lease& lease) {
  const stacks::Entry* entry = stacks == nullptr ? nullptr : stacks->find(lease.id);
  if (entry == nullptr || !entry->stack.is_up()) return {};
  const std::string name = printable(entry->stack.name);
  return Error{Code::InUse, fmt::format("{} belongs to stack {}, which is up", to_string(lease.id), name),
               fmt::format("sublet stack release {0} gives the stack back, and sublet stack release {0} --down brings "
                           "it down; --force ends the lease, and brings it down, too",
                           name)};
}

// The session that is closed instead of a stop of its lease, so that its checkpoint command runs first. Another stop
// ends its program at once.
const sessions::Session* saves_first(const sessions::Sessions* sessions, const Lease& lease) {
  const sessions::Session* session =
      sessions == nullptr || lease.state != LeaseState::active ? nullptr : sessions->find(lease.id);
  return session == nullptr || session->has_ended() || session->request.checkpoint.empty() ? nullptr : session;
}

Reply post_release(Call& call) {
  return act(call,
             [guard = call.capabilities.guard, sessions = call.capabilities.sessions, all = call.capabilities](
                 Body& body, const Lease& lease, const Request& request, engine::Engine& engine) -> Result<core::Fact> {
               const auto generation = take_generation(body);
               const bool force = body.boolean("force").value_or(false);
               const bool stop = body.boolean("stop").value_or(false);
               const auto exit_status = body.integer("exit_status", 0, 255);
               const auto signal = body.integer("signal", 1, 64);
               const bool forwarded = body.boolean("forwarded").value_or(false);
               const auto failed = body.text("failed", 1024);
               const bool reported = failed || exit_status || signal;
               if (reported && generation != 0 && generation != lease.generation && !lease.ended()) {
                 return Error{Code::Stale,
                              fmt::format("{} is at generation {}, but the report is for generation {}",
                                          to_string(lease.id), lease.generation, generation),
                              "read the lease again: it may have another owner now"};
               }
               if (failed) {
                 return core::Fact(core::ProgramFailed{lease.id, *failed, static_cast<int>(exit_status.value_or(125))});
               }
               if (exit_status || signal) {
                 if (!lease.ended() && lease.owner.kind != core::OwnerKind::process) {
                   return bad_request(fmt::format("{} has no program, so no exit can be reported", to_string(lease.id)),
                                      "leave exit_status and signal out to release the lease");
                 }
                 const int status = signal ? 128 + static_cast<int>(*signal) : static_cast<int>(*exit_status);
                 return core::Fact(core::ProgramEnded{lease.id, status, signal.has_value(), forwarded});
               }
               if (auto may = stop ? Status() : check_no_session(sessions, lease); !may) return may.error();
               if (auto may = force ? Status() : check_no_stack(all.stacks, lease); !may) return may.error();
               if (stop && !lease.ended() && lease.owner.keeper && !lease.stop_requested &&
                   !engine.programs().can_signal(lease.id)) {
                 const std::string why = engine.programs().why_not_signalled(lease.id);
                 return Error{
                     Code::Unkillable,
                     fmt::format("the daemon cannot end the program of {} (pid {}): its keeper is gone, and {}",
                                 to_string(lease.id), lease.owner.process.pid,
                                 why.empty() ? "nothing proves that the pid still belongs to the program" : why),
                     fmt::format("check the process and end it by hand (kill {}): the lease ends with it",
                                 lease.owner.process.pid)};
               }
               if (stop && lease.ended() && guard != nullptr) guard->stop_after_end(lease.id);
               const bool by_token = has_token(request, lease);
               const sessions::Session* session = force || !stop ? nullptr : saves_first(sessions, lease);
               if (session != nullptr && (generation == 0 || generation == lease.generation)) {
                 if (auto finished = body.finish(); !finished) return finished.error();
                 const std::uint32_t by = by_token ? lease.uid : request.peer.uid;
                 if (auto closed = sessions->close(*session, {.park = false, .force = true, .by = by}); !closed)
                   return closed.error();
                 return core::Fact(core::Amend{.lease = lease.id});  // nothing more
               }
               return core::Fact(core::Release{.lease = lease.id,
                                               .generation = generation,
                                               .force = force,
                                               .stop = stop,
                                               .revoke = request.peer.uid != lease.uid && !by_token,
                                               // A caller with the lease's token speaks for its owner.
                                               .asked_by = by_token ? lease.uid : request.peer.uid});
             });
}

Reply post_pause(Call& call) {
  return act_and_wait(
      call, [](Body& body, const Lease& lease, const Request& request, engine::Engine& engine) -> Result<core::Fact> {
        const bool own = request.peer.uid == lease.uid || has_token(request, lease);
        return core::Fact(core::Pause{lease.id,
                                      take_generation(body),
                                      {own ? core::PauseCauseKind::owner_request : core::PauseCauseKind::admin_request},
                                      engine.observer().host_memory(&lease)});
      });
}

Reply post_resume(Call& call) {
  return act_and_wait(call, [](Body& body, const Lease& lease, const Request&, engine::Engine&) -> Result<core::Fact> {
    return core::Fact(core::Resume{lease.id, take_generation(body)});
  });
}

constexpr Route table[] = {
    Route{Method::post, "/v1/leases/{id}/claim", Role::user, Scope::submit, post_claim, "generation", "Lease"},
    Route{Method::post, "/v1/leases/{id}/attach", Role::user, Scope::submit, post_attach,
          "pid,keeper_pid,owner,cgroup,generation", "Lease"},
    Route{Method::post, "/v1/leases/{id}/renew", Role::user, Scope::submit, post_renew, "ttl_seconds,generation",
          "Lease"},
    Route{Method::post, "/v1/leases/{id}/touch", Role::user, Scope::submit, post_touch, "", "Lease"},
    Route{Method::post, "/v1/leases/{id}/resize", Role::user, Scope::submit, post_resize,
          "vram_bytes,queue,wait_seconds,generation", "Lease"}
        .granting(Grants::always),
    Route{Method::post, "/v1/leases/{id}/release", Role::user, Scope::submit, post_release,
          "force,stop,exit_status,signal,forwarded,failed,generation", "Lease"}
        .granting(Grants::to_waiters)
        .stopping(),
    Route{Method::post, "/v1/leases/{id}/pause", Role::user, Scope::submit, post_pause, "wait_seconds,generation",
          "Lease"},
    Route{Method::post, "/v1/leases/{id}/resume", Role::user, Scope::submit, post_resume, "wait_seconds,generation",
          "Lease"},
};

}  // namespace

const std::span<const Route> action_routes = table;

}  // namespace sublet::http
