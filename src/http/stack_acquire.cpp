// SPDX-License-Identifier: Apache-2.0
// Acquiring, renewing and releasing stacks.
#include "base/text.h"
#include "core/rehearse.h"
#include "http/asking.h"
#include "http/resources.h"
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
    asked->engine.not_held(lease);
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

// Stores the change of an acquisition that needs no new lease.
Reply stored(const Shared& asked) {
  const Entry* entry = asked->mine();
  if (entry == nullptr) return over(*asked);
  const json shown = render_stack(*entry, asked->stacks(), asked->engine, true);
  auto done = asked->engine.store_rows("stack_changed", asked->remember, {200, sealed(shown.dump(), asked->token)});
  if (!done) return problem(done.error());
  return as_json(200, with_field(shown.dump(), "token", asked->token.text));
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
  if (!asked->queue) {  // it may still make room by itself: a released stack is brought down for it
    const engine::Engine& engine = asked->engine;
    const auto found = core::rehearse(engine.state(), engine.rules(), *submit, engine.host_memory(), engine.now());
    submit->may_queue =
        found && (found->would == core::Would::preempt || asked->stacks().makes_room_for(submit->lease));
  }
  LeaseId id;
  std::string made;
  auto answered = asked->engine.request(*submit, asked->remember, [&](const core::Lease& lease) {
    id = lease.id;
    asked->stacks().submitted(asked->name, asked->wish, lease);
    const Entry& entry = *asked->stacks().find(asked->name);
    made = render_stack(entry, asked->stacks(), asked->engine, true).dump();
    return engine::Answered{202, sealed(made, asked->token)};
  });
  if (!answered) return problem(answered.error());
  if (asked->left() > Duration::zero()) return wait_for_stack(asked);
  asked->engine.not_held(id);
  return as_json(202, with_field(std::move(made), "token", asked->token.text));
}

Reply acquire(const Shared& asked) {
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
  const auto found = find_stack(asked->capabilities, asked->name);
  if (!found) return problem(found.error());
  if (const Status may = may_use_stack(peer, asked->token.text, **found); !may) return problem(may.error());
  if (const Status may = asked->engine.may_decide(); !may) return problem(may.error());
  if (const Status done = asked->stacks().claim(asked->name); !done) return problem(done.error());
  if (!is_done(*asked, **found)) return wait_for_stack(asked);
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
  asked->deadline = call.engine.now() + std::chrono::seconds(body.integer("wait_seconds", 0, 3600).value_or(0));
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

}  // namespace

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

Reply post_stack_renew(Call& call) {
  const auto entry = find_stack(call.capabilities, call.args[0]);
  if (!entry) return problem(entry.error());
  Body body(call.request.body);
  std::optional<Duration> ttl;
  if (const auto seconds = body.integer("ttl_seconds", 1, longest_ttl)) ttl = std::chrono::seconds(*seconds);
  if (auto finished = body.finish(); !finished) return problem(finished.error());
  if (const Status may = may_use_stack(call.request.peer, call.request.lease_token, **entry); !may)
    return problem(may.error());
  if (const Status may = call.engine.may_decide(); !may) return problem(may.error());
  Stacks& stacks = *call.capabilities.stacks;
  if (const Status done = stacks.renew(call.args[0], ttl); !done) return problem(done.error());
  return store_stack(call.engine, call.remember, 200, render_stack(**entry, stacks, call.engine, true));
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
  if (const Status done = stacks.release(call.args[0], down, revoke); !done) return problem(done.error());
  return store_stack(call.engine, call.remember, 200, render_stack(**entry, stacks, call.engine, true));
}

}  // namespace sublet::http
