// SPDX-License-Identifier: Apache-2.0
// Acquiring, renewing and releasing stacks.
#include "base/text.h"
#include "explain/dry_run.h"
#include "http/asking.h"
#include "http/routes.h"
#include "http/secrets.h"
#include "http/stacks.h"
#include "store/secret.h"

#include <fmt/format.h>

#include <cstdlib>

namespace sublet::http {
namespace {

using stacks::Entry;
using stacks::Phase;
using stacks::Stacks;

constexpr Duration look_at_most = std::chrono::seconds(10);  // then the Compose file counts as it was last read
constexpr std::int64_t longest_ttl = 100LL * 366 * 86400;    // seconds
constexpr std::int64_t longest_wait = 3600;                  // seconds

// A call that acquires a stack. It outlives the request.
struct Asked {
  engine::Engine& engine;
  Capabilities capabilities;
  engine::Peer peer;
  engine::Remember remember;
  std::string name;
  stacks::Wish wish;
  Secret token;        // of the acquisition; with an earlier token it has no salt
  bool again = false;  // the caller has the token already
  bool queue = true;
  bool wait_ready = true;
  std::string since{};  // answer once the state is another; "": only when it is final
  Time deadline{};

  Stacks& stacks() const { return *capabilities.stacks; }
  Duration left() const { return std::max(deadline - engine.now(), Duration::zero()); }
  const Entry* mine() const {
    const Entry* entry = stacks().find(name);
    return entry != nullptr && is_token_of(token.text, *entry) ? entry : nullptr;
  }
};
using Shared = std::shared_ptr<Asked>;

bool is_done(const Asked& asked, const Entry& entry) {
  if (asked.stacks().is_away(entry)) return false;
  const Phase phase = entry.stack.phase;
  return phase == Phase::ready || (!asked.wait_ready && phase == Phase::starting);
}

bool is_taken(const Entry& entry) { return entry.stack.acquired() || entry.stack.phase == Phase::stopping; }

// The acquisition is over before it came to anything.
Response over(const Asked& asked) {
  const Entry* entry = asked.stacks().find(asked.name);
  const std::string why = entry != nullptr ? entry->stack.why : "";
  const std::string name = printable(asked.name);
  return problem(Error{Code::Stale,
                       fmt::format("stack {} is not acquired any more{}", name, why.empty() ? "" : ": " + why),
                       fmt::format("sublet stack status {} shows its state", name)});
}

Reply answer(const Asked& asked) {
  const Entry* entry = asked.mine();
  if (entry == nullptr) return over(asked);
  json shown = render_stack(*entry, asked.stacks(), asked.engine, true);
  shown["token"] = asked.token.text;
  return Response{is_done(asked, *entry) ? 200 : 202, std::move(shown), {}};
}

bool is_offered(const Asked& asked, const Entry& entry) {
  const core::Lease* lease = asked.engine.find(entry.stack.use.lease);
  return lease != nullptr && lease->state == core::LeaseState::offered;
}

Reply wait_for_stack(const Shared& asked);

// The caller still waits: it takes an offer, and waits for the rest.
Reply after_wait(const Shared& asked) {
  const engine::Engine::Transaction transaction(asked->engine);
  const Entry* entry = asked->mine();
  if (entry == nullptr || !is_offered(*asked, *entry)) return answer(*asked);
  if (const Status done = asked->stacks().claim(asked->name); !done) return problem(done.error());
  return wait_for_stack(asked);
}

// Waits until the stack is ready, in another state, or not the caller's any more.
Reply wait_for_stack(const Shared& asked) {
  const Entry* entry = asked->mine();
  if (entry == nullptr) return over(*asked);
  const LeaseId lease = entry->stack.use.lease;
  if (asked->left() <= Duration::zero() || is_done(*asked, *entry)) {
    asked->engine.access().not_held(lease);
    return answer(*asked);
  }
  const auto news = [asked] {
    const Entry* now = asked->mine();
    if (now == nullptr || is_done(*asked, *now) || is_offered(*asked, *now)) return true;
    return !asked->since.empty() && now->state() != asked->since;
  };
  return WaitForNews{
      .news = news, .at_most = asked->left(), .hold = lease, .answer = [asked] { return after_wait(asked); }};
}

// Stores the change of an acquisition that needs no new lease, and waits until its stack can be used.
Reply stored(const Shared& asked) {
  const Entry* entry = asked->mine();
  if (entry == nullptr) return over(*asked);
  std::string shown;
  auto done = asked->engine.store_rows("stack_changed", asked->remember, [&] {
    shown = render_stack(*entry, asked->stacks(), asked->engine, true).dump();
    return engine::Answered{is_done(*asked, *entry) ? 200 : 202, sealed(shown, asked->token)};
  });
  if (!done) return problem(done.error());
  if (done->status == 202 && asked->left() > Duration::zero()) return wait_for_stack(asked);
  return as_json(done->status, with_field(std::move(shown), "token", asked->token.text));
}

Reply acquire(const Shared& asked);

Reply wait_until_free(const Shared& asked) {
  const auto news = [asked] {
    const Entry* entry = asked->stacks().find(asked->name);
    return entry == nullptr || !is_taken(*entry);
  };
  return WaitForNews{.news = news, .at_most = asked->left(), .hold = {}, .answer = [asked] { return acquire(asked); }};
}

Reply submit_stack(const Shared& asked) {
  auto submit = asked->stacks().request(asked->name, asked->wish);
  if (!submit) return problem(submit.error());
  if (auto more = check_lease_limit(asked->engine, asked->peer); !more) return problem(more.error());
  submit->waiter = asked->peer.pid;
  if (!asked->queue) {  // it may still make room by itself, by a released stack that is brought down for it too
    const engine::Engine& engine = asked->engine;
    const auto found = explain::dry_run(engine.state(), engine.rules(), *submit, engine.now());
    submit->may_queue = found && found->would == explain::Would::preempt;
  }
  auto made = submit_with_token(asked->engine, *submit, asked->remember, asked->token, [&](const core::Lease& lease) {
    asked->stacks().submitted(asked->name, asked->wish, lease);
    const Entry& entry = *asked->stacks().find(asked->name);
    return std::pair(202, render_stack(entry, asked->stacks(), asked->engine, true).dump());
  });
  if (!made) return problem(made.error());
  if (asked->left() > Duration::zero()) return wait_for_stack(asked);
  asked->engine.access().not_held(made->lease);
  return std::move(made->response);
}

Reply acquire(const Shared& asked) {
  const engine::Engine::Transaction transaction(asked->engine);
  const auto found = find_stack(asked->capabilities, asked->name);
  if (!found) return problem(found.error());
  const Entry& entry = **found;
  if (const Status may = asked->engine.may_decide(); !may) return problem(may.error());
  if (is_taken(entry) && asked->queue && asked->left() > Duration::zero()) return wait_until_free(asked);
  if (entry.stack.phase != Phase::released) return submit_stack(asked);
  const Status done = asked->stacks().take_over(asked->name, asked->wish);
  if (done) return stored(asked);
  if (is_taken(entry) && asked->queue && asked->left() > Duration::zero()) return wait_until_free(asked);
  return problem(done.error());
}

// The caller has acquired the stack before: it renews that, and goes on waiting.
Reply go_on(const Shared& asked, const engine::Peer& peer) {
  const engine::Engine::Transaction transaction(asked->engine);
  const auto found = find_stack(asked->capabilities, asked->name);
  if (!found) return problem(found.error());
  if (const Status may = may_use_stack(peer, asked->token.text, **found); !may) return problem(may.error());
  if (const Status may = asked->engine.may_decide(); !may) return problem(may.error());
  if (const Status done = asked->stacks().claim(asked->name); !done) return problem(done.error());
  if (!is_done(*asked, **found) && (*found)->stack.phase != Phase::ready) return wait_for_stack(asked);
  if (const Status done = asked->stacks().renew(asked->name, asked->wish.ttl); !done) return problem(done.error());
  return stored(asked);
}

Status take_priority(Body& body, const engine::Peer& peer, int& into) {
  into =
      static_cast<int>(body.integer("priority", -core::admin_priority_limit, core::admin_priority_limit).value_or(0));
  if (peer.role == engine::Role::admin || std::abs(into) <= core::tenant_priority_limit) return {};
  return denied(fmt::format("priority {} is not between -{} and {}", into, core::tenant_priority_limit,
                            core::tenant_priority_limit),
                "only admins may use higher values");
}

Result<Shared> read_acquire(const Call& call) {
  const auto stacks = stacks_of(call.capabilities);
  if (!stacks) return stacks.error();
  const engine::Peer& peer = call.request.peer;
  auto asked = std::make_shared<Asked>(Asked{.engine = call.engine,
                                             .capabilities = call.capabilities,
                                             .peer = peer,
                                             .remember = call.remember,
                                             .name = call.args[0],
                                             .wish = {},
                                             .token = {}});
  Body body(call.request.body);
  if (const auto ttl = body.integer("ttl_seconds", 1, longest_ttl)) asked->wish.ttl = std::chrono::seconds(*ttl);
  asked->deadline = call.engine.now() + std::chrono::seconds(body.integer("wait_seconds", 0, longest_wait).value_or(0));
  asked->queue = body.boolean("queue").value_or(true);
  asked->wait_ready = body.boolean("wait_ready").value_or(true);
  asked->since = body.text("since").value_or("");
  asked->wish.owner = body.text("owner").value_or("");
  if (const Status taken = take_priority(body, peer, asked->wish.priority); !taken) return taken.error();
  if (auto finished = body.finish(); !finished) return finished.error();
  asked->wish.uid = peer.uid;
  asked->wish.user = peer.user;
  asked->again = !call.request.lease_token.empty();
  asked->token = asked->again ? Secret{call.request.lease_token, {}} : new_secret(call.request);
  asked->wish.token_hash = store::hash_secret(asked->token.text);
  return asked;
}

Reply post_stack_acquire(Call& call) {
  const auto asked = read_acquire(call);
  if (!asked) return problem(asked.error());
  if ((*asked)->again) return go_on(*asked, call.request.peer);
  auto tenant = engine::tenant_for(call.engine.options().tenants, call.request.peer);
  if (!tenant) return problem(tenant.error());
  (*asked)->wish.tenant = std::move(*tenant);
  const Entry* entry = (*asked)->stacks().find((*asked)->name);
  const bool stays_up =
      entry != nullptr && entry->stack.phase == Phase::released && !stacks::is_final(entry->readiness.health);
  if (stays_up) return acquire(*asked);  // no file is read for it
  return Later{[asked = *asked](std::function<void(Reply)> done) {
    const bool reading = true;  // its memory must be free by a new reading
    asked->stacks().refresh(
        look_at_most, [asked, done = std::move(done)] { done(acquire(asked)); }, reading);
  }};
}

// A retry of an acquisition: the same token, and the wait goes on.
Reply replay_stack(Call& call, const store::Remembered& remembered) {
  json body = json::parse(remembered.body, nullptr, false);
  if (!body.is_object())
    return problem(
        unavailable("the stored answer to this Idempotency-Key cannot be read", "use a new Idempotency-Key"));
  unseal(body, call.request);
  const auto asked = read_acquire(call);
  if (!asked) return problem(asked.error());
  (*asked)->token = {body.value("token", ""), {}};
  if ((*asked)->mine() == nullptr || (*asked)->left() <= Duration::zero())
    return Response{remembered.status, std::move(body), {}};
  return wait_for_stack(*asked);
}

// A call that changes an acquired stack. It outlives the request.
struct Change {
  engine::Engine& engine;
  Capabilities capabilities;
  engine::Peer peer;
  engine::Remember remember;
  std::string name;
  std::string token;
  std::optional<Duration> ttl{};
  Duration wait{};
};

// The stack, if the caller may change it now.
Result<const Entry*> to_change(const Change& asked) {
  const auto entry = find_stack(asked.capabilities, asked.name);
  if (!entry) return entry.error();
  if (const Status may = may_use_stack(asked.peer, asked.token, **entry); !may) return may.error();
  if (const Status may = asked.engine.may_decide(); !may) return may.error();
  return &**entry;
}

// The body may have `ttl_seconds`, if `takes_ttl`, and `wait_seconds`.
Result<Change> read_change(Call& call, bool takes_ttl) {
  const auto entry = find_stack(call.capabilities, call.args[0]);
  if (!entry) return entry.error();
  Change asked{.engine = call.engine,
               .capabilities = call.capabilities,
               .peer = call.request.peer,
               .remember = call.remember,
               .name = call.args[0],
               .token = call.request.lease_token};
  Body body(call.request.body);
  if (takes_ttl)
    if (const auto seconds = body.integer("ttl_seconds", 1, longest_ttl)) asked.ttl = std::chrono::seconds(*seconds);
  asked.wait = std::chrono::seconds(body.integer("wait_seconds", 0, longest_wait).value_or(0));
  if (auto finished = body.finish(); !finished) return finished.error();
  if (const auto may = to_change(asked); !may) return may.error();
  return asked;
}

// Makes the change, and waits until the stack can be used.
Reply change_and_wait(const Change& asked, const std::function<Status(Stacks&)>& change) {
  const engine::Engine::Transaction transaction(asked.engine);
  const auto entry = to_change(asked);
  if (!entry) return problem(entry.error());
  Stacks& stacks = *asked.capabilities.stacks;
  if (const Status done = change(stacks); !done) return problem(done.error());
  const auto is_over = [&stacks](const Entry& now) {
    return !now.stack.acquired() || (now.stack.phase == Phase::ready && !stacks.is_away(now));
  };
  Reply stored =
      store_stack(asked.engine, asked.remember, 200, [&] { return render_stack(**entry, stacks, asked.engine, true); });
  if (asked.wait == Duration{} || is_over(**entry)) return stored;
  const auto find = [capabilities = asked.capabilities, name = asked.name] { return find_stack(capabilities, name); };
  const auto news = [find, is_over] {
    const auto now = find();
    return !now || is_over(**now);
  };
  const auto shown = [find, &stacks, &engine = asked.engine]() -> Reply {
    const auto now = find();
    if (!now) return problem(now.error());
    return Response{200, render_stack(**now, stacks, engine, true), {}};
  };
  return WaitForNews{.news = news, .at_most = asked.wait, .hold = {}, .answer = shown};
}

Reply post_stack_renew(Call& call) {
  const auto asked = read_change(call, true);
  if (!asked) return problem(asked.error());
  return change_and_wait(*asked, [&](Stacks& stacks) { return stacks.renew(asked->name, asked->ttl); });
}

// By the files as they are now.
Reply post_stack_restart(Call& call) {
  const auto asked = read_change(call, false);
  if (!asked) return problem(asked.error());
  return Later{[asked = *asked](const std::function<void(Reply)>& done) {
    asked.capabilities.stacks->refresh(look_at_most, [asked, done] {
      done(change_and_wait(asked, [&](Stacks& stacks) { return stacks.restart(asked.name); }));
    });
  }};
}

Reply post_stack_release(Call& call) {
  const auto entry = find_stack(call.capabilities, call.args[0]);
  if (!entry) return problem(entry.error());
  Body body(call.request.body);
  const bool down = body.boolean("down").value_or(false);
  if (auto finished = body.finish(); !finished) return problem(finished.error());
  if (const Status may = may_use_stack(call.request.peer, call.request.lease_token, **entry); !may)
    return problem(may.error());
  if (const Status may = call.engine.may_decide(); !may) return problem(may.error());
  Stacks& stacks = *call.capabilities.stacks;
  const bool revoke = call.request.lease_token.empty() && call.request.peer.uid != (*entry)->stack.use.uid;
  const auto after = down ? stacks::After::down : stacks::After::up_if_ready;
  if (const Status done = stacks.release(call.args[0], after, revoke); !done) return problem(done.error());
  return store_stack(call.engine, call.remember, 200, [&] { return render_stack(**entry, stacks, call.engine, true); });
}

constexpr Route table[] = {
    Route{Method::post, "/v1/stacks/{name}/acquire", Role::user, Scope::submit, post_stack_acquire,
          "ttl_seconds,wait_seconds,wait_ready,queue,since,owner,priority", "AcquiredStack"}
        .replayed_by(replay_stack),
    Route{Method::post, "/v1/stacks/{name}/renew", Role::user, Scope::submit, post_stack_renew,
          "ttl_seconds,wait_seconds", "WholeStack"},
    Route{Method::post, "/v1/stacks/{name}/restart", Role::user, Scope::submit, post_stack_restart, "wait_seconds",
          "WholeStack"},
    Route{Method::post, "/v1/stacks/{name}/release", Role::user, Scope::submit, post_stack_release, "down",
          "WholeStack"}
        .granting(Grants::to_waiters),
};

}  // namespace

const std::span<const Route> stack_acquire_routes = table;

}  // namespace sublet::http
