// SPDX-License-Identifier: Apache-2.0
#include "clients.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace sublet::sim {

using core::LeaseState;
using core::OwnerKind;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t calls_kept = 24;  // the store remembers more

// It is known to be the lease's, durably.
bool is_of(const core::Lease& lease, const Program& program) {
  return lease.owner.process == program.main ||
         std::ranges::find(lease.booked, program.main, &core::Booked::process) != lease.booked.end();
}

}  // namespace

void Clients::serve(Daemon* daemon) {
  daemon_ = daemon;
  for (auto& [lease, client] : clients_) client.session = 0, client.waiting = false;
}

Bytes Clients::some_bytes(Random& random) const {
  return random.between(1, 24) * 512 * MiB + random.between(0, 3) * 300 * KiB;
}

core::HostMemory Clients::host(LeaseId lease) const { return daemon_->engine().observer().host_memory(seen(lease)); }

// ------------------------------------------------------------------------------------------------ calls

void Clients::send(Client* client, core::Fact fact, bool keyed) {
  const LeaseId lease = client == nullptr ? LeaseId{} : client->lease;
  std::string key;
  if (keyed) {
    key = fmt::format("key-{}", ++last_key_);
    if (auto* submit = std::get_if<core::Submit>(&fact)) submit->lease.command = key;
    calls_.push_back({key, fact, std::nullopt});
    if (calls_.size() > calls_kept) calls_.pop_front();
  }
  if (client != nullptr) client->waiting = true;
  daemon_->call(fact, key, [this, lease, key](const Daemon::Answer& answer) { answered(lease, key, answer); });
}

void Clients::answered(LeaseId asker, const std::string& key, const Daemon::Answer& answer) {
  if (const auto client = clients_.find(asker); client != clients_.end()) client->second.waiting = false;
  verdict_.mix(answer.body);
  if (!asker && answer.lease && !clients_.contains(answer.lease)) clients_[answer.lease].lease = answer.lease;
  if (key.empty()) return;
  const auto call = std::find_if(calls_.begin(), calls_.end(), [&](const Call& had) { return had.key == key; });
  if (call == calls_.end()) return;
  check_answer(*call, answer);
  if (answer.durable && answer.status == 200) call->body = answer.body;
}

// Once it was told, it is what is told.
void Clients::check_answer(const Call& call, const Daemon::Answer& answer) {
  if (!call.body || answer.status == 503) return;
  verdict_.expect(answer.again && answer.body == *call.body, "answer-forgotten", [&] {
    return fmt::format("{} was answered '{}', and is now '{}'", call.key, *call.body, answer.body);
  });
}

void Clients::retry(Random& random) {
  if (daemon_ == nullptr || calls_.empty()) return;
  const Call call = random.pick(calls_);
  daemon_->call(call.fact, call.key,
                [this, key = call.key](const Daemon::Answer& answer) { answered({}, key, answer); });
}

// ------------------------------------------------------------------------------------------------ a new one

void Clients::submit(Random& random) {
  if (daemon_ == nullptr || daemon_->engine().state().leases.by_id.size() > 14) return;
  core::Submit submit;
  core::Lease& lease = submit.lease;
  const bool ana = random.chance(60);
  lease.uid = ana ? 1000 : 1001;
  lease.user = lease.tenant = ana ? "ana" : "ben";
  lease.consumer = random.chance(50) ? "train" : "infer";
  lease.vram = random.chance(3) ? 100 * GiB : some_bytes(random);
  lease.tier = static_cast<core::Tier>(random.chance(4) ? 4 : random.below(4));
  lease.priority = static_cast<int>(random.between(-3, 3));
  using P = core::Pausable;
  constexpr std::array others{P::no, P::cooperative, P::driver, P::interposer};
  if (random.chance(20)) lease.pausable = others[random.below(random.chance(10) ? 4 : 3)];
  if (lease.tier == core::Tier::spot && random.chance(config_.late_words))
    lease.pausable = random.chance(70) ? P::cooperative : P::automatic;
  const int named = random.chance(20) ? 1 : random.chance(15) ? static_cast<int>(random.between(2, 3)) : 0;
  for (int i = 0; i < named; ++i) {
    const std::size_t card = random.below(config_.cards.size());
    lease.wanted_devices.push_back(random.chance(20) ? fmt::format("gpu{}", card) : World::uuid_of(card));
  }
  if (named != 1 && random.chance(20)) lease.device_count = static_cast<int>(random.between(1, 3));
  if (random.chance(20)) lease.min_vram = Bytes{lease.vram.count / 2};
  if (random.chance(15)) lease.tag = fmt::format("tag{}", random.below(4));
  lease.owner.kind = random.chance(60) ? OwnerKind::connection : OwnerKind::token;
  if (lease.owner.kind == OwnerKind::token || random.chance(10)) lease.ttl = random.time(5s, 90s);
  submit.may_queue = random.chance(85);
  submit.held = random.chance(70);
  if (random.chance(5)) submit.preemption_request = core::PreemptionRequest{lease.uid, random.chance(50)};
  const bool stays = random.chance(85);
  const std::uint64_t before = daemon_->engine().state().leases.last_id;
  send(nullptr, submit, random.chance(60));
  const LeaseId made{daemon_->engine().state().leases.last_id};
  if (made.number == before) return;
  if (!submit.held) return;
  // As the edge does: the connection holds it from the moment on at which it was decided.
  Client& client = clients_[made];
  client.lease = made;
  if (stays) return hold(client, true);
  daemon_->engine().access().not_held(made);
  oracle_.held(made, false, daemon_->engine().now());
}

void Clients::hold(Client& client, bool hold) {
  if (hold == (client.session != 0)) return;
  const Time now = daemon_->engine().now();
  if (hold) {
    client.session = ++last_session_;
    oracle_.held(client.lease, true, now);
    daemon_->engine().access().hold(client.lease, client.session);
  } else {
    oracle_.held(client.lease, false, now);
    daemon_->engine().access().session_closed(std::exchange(client.session, 0));
  }
}

// ------------------------------------------------------------------------------------------------ what comes next

void Clients::act(Random& random) {
  if (daemon_ == nullptr || clients_.empty()) return;
  if (random.chance(1))
    return daemon_->grant(
        {random.chance(60) ? 1000U : 1001U, random.chance(50) ? "train" : "infer", random.chance(60)});
  if (random.chance(0.5)) return daemon_->change_tokens(random);
  auto at = std::next(clients_.begin(), static_cast<std::ptrdiff_t>(random.below(clients_.size())));
  Client& client = at->second;
  if (client.waiting) return;
  const core::Lease* lease = seen(client.lease);
  if (lease == nullptr || lease->ended()) {
    Program* program = world_.program_of(client.lease);
    if (program != nullptr && program->lives) return world_.end_program(*program, 0, false);
    if (disk_.store().ended(client.lease) || core::find(daemon_->engine().state(), client.lease) == nullptr)
      clients_.erase(at);
    return;
  }
  if (random.chance(10)) return hold(client, client.session == 0);
  if (client.session == 0 && lease->owner.kind == OwnerKind::connection && random.chance(60)) hold(client, true);
  switch (lease->state) {
    case LeaseState::queued:
      if (lease->held_back_at && random.chance(30)) send(&client, core::Resume{lease->id, 0}, random.chance(50));
      else if (random.chance(8)) send(&client, core::Release{.lease = lease->id}, random.chance(50));
      else if (random.chance(10)) preempt(client, random);
      return;
    case LeaseState::offered:
      if (random.chance(70)) send(&client, core::Claim{lease->id, lease->generation}, random.chance(50));
      return;
    case LeaseState::active: return act_active(client, *lease, random);
    case LeaseState::pausing:
    case LeaseState::paused:
    case LeaseState::resuming:
      // All processes of a lease that only its token holds may end.
      if (Program* its = world_.program_of(lease->id);
          lease->owner.kind == OwnerKind::token && its != nullptr && random.chance(60))
        return world_.end_program(*its, 0, false);
      if (random.chance(50)) send(&client, core::Resume{lease->id, 0}, random.chance(50));
      else if (random.chance(15))
        send(&client, core::Pause{lease->id, 0, {core::PauseCauseKind::owner_request}, host(lease->id)}, false);
      else if (random.chance(10)) leave(client, *lease, random);
      return;
    case LeaseState::poisoned:
      if (random.chance(20)) send(&client, core::Release{.lease = lease->id, .stop = true}, false);
      return;
    case LeaseState::ended: return;
  }
}

void Clients::preempt(Client& client, Random& random) {
  const core::Lease* lease = seen(client.lease);
  const std::uint32_t uid = lease == nullptr ? 1000 : lease->uid;
  send(&client, core::Preempt{client.lease, 0, {.uid = uid, .any_user = random.chance(50)}}, random.chance(30));
}

// True if the program may still register how it yields: it is only importing, or does not exist yet.
bool Clients::silent(Client& client, const core::Lease& lease, Random& random) {
  if (config_.late_words <= 0 || lease.tier != core::Tier::spot || lease.cooperation) return false;
  if (!client.speaks_after) client.speaks_after = random.time(0s, 2 * config_.rules.spot_unused_after);
  return daemon_->engine().now() < *lease.granted_at + *client.speaks_after;
}

void Clients::act_active(Client& client, const core::Lease& lease, Random& random) {
  const Program* program = world_.program_of(lease.id);
  const bool is_silent = silent(client, lease, random);
  const bool comes = lease.owner.kind == OwnerKind::connection || !is_silent;
  if (program == nullptr && comes && random.chance(70)) return attach(client, lease, random);
  const bool runs = program != nullptr && program->lives && is_of(lease, *program);
  const double speaks = client.speaks_after ? 100 : config_.cooperative / 2;
  if (runs && !is_silent && random.chance(lease.cooperation ? 2 : speaks))
    return cooperate(client, lease, *program, random);
  switch (random.below(12)) {
    case 0:
    case 1:
    case 2:
      if (lease.ttl) return send(&client, core::Renew{lease.id, lease.generation, {}}, random.chance(30));
      return;
    case 3:
    case 4: return resize(client, lease, random);
    case 5:
    case 6:
    case 7:
    case 8:
      return send(&client,
                  core::Pause{lease.id, lease.generation, {core::PauseCauseKind::owner_request}, host(lease.id)},
                  random.chance(50));
    case 9: return leave(client, lease, random);
    case 10: return declare(lease);
    default: return daemon_->declare({lease.id, core::PauseCauseKind::idle, std::nullopt});
  }
}

// Some leases are idle for any waiter; others may be paused in turn with those of their tier.
void Clients::declare(const core::Lease& lease) {
  core::Reclaim terms{.cause = core::PauseCauseKind::idle};
  const bool in_turn = lease.id.number % 2 == 0;
  if (in_turn) terms.taken = core::Reclaim::Taken::turn, terms.least = lease.tier;
  if (!in_turn || config_.rules.automatic) daemon_->declare({lease.id, terms.cause, std::move(terms)});
}

// Its program is held by its keeper until the answer is durable: it uses nothing before.
void Clients::attach(Client& client, const core::Lease& lease, Random& random) {
  if (random.chance(5)) return send(&client, core::ProgramFailed{lease.id, "no such file", 127}, false);
  std::vector<std::size_t> cards;
  for (const std::string& uuid : lease.devices) {
    if (const auto card = world_.card_of(uuid)) cards.push_back(*card);
  }
  Program& program = world_.start_program(lease.id, lease.uid, std::move(cards), Bytes{});
  program.deaf = random.chance(config_.deaf_programs);
  if (random.chance(config_.rude)) program.manners = static_cast<Manners>(1 + random.below(config_.honest ? 3 : 6));
  if (random.chance(config_.relapses)) program.manners = Manners::again;
  core::Attach attach{lease.id, lease.generation, {}, true, {}};
  attach.owner = {.kind = OwnerKind::process,
                  .process = program.main,
                  .keeper = random.chance(15) ? ProcessRef{} : program.keeper,  // some were started by others
                  .exit_record = fmt::format("/exits/{}", to_string(lease.id)),
                  .inode = 0};
  if (lease.owner.kind == OwnerKind::token && random.chance(config_.booked)) {
    attach.as_owner = false;  // its lease stays its token's
    attach.owner = {};
    attach.booked.process = program.main;
  }
  send(&client, attach, random.chance(50));
}

// Registers the program as cooperative, or now and then withdraws that.
void Clients::cooperate(Client& client, const core::Lease& lease, const Program& program, Random& random) {
  if (lease.cooperation) return send(&client, core::Cooperate{lease.id, lease.generation, {}}, random.chance(30));
  core::Cooperation how;
  how.way = random.chance(50) ? core::CooperationWay::poll : core::CooperationWay::webhook;
  how.residue = random.between(1, 8) * 64 * MiB;
  if (how.way == core::CooperationWay::poll) how.process = program.main;
  else how.address = "http://127.0.0.1/yield";
  send(&client, core::Cooperate{lease.id, lease.generation, how}, random.chance(30));
}

// Less than what its program holds it does not want, and what it gives back it uses no more.
void Clients::resize(Client& client, const core::Lease& lease, Random& random) {
  Bytes wanted = random.chance(50) ? some_bytes(random) : lease.vram + random.between(-3, 3) * 512 * MiB;
  Program* program = world_.program_of(lease.id);
  if (program != nullptr) {
    for (const std::size_t card : program->cards) wanted = std::max(wanted, world_.held_by(lease.id, card));
    program->within = std::min(program->within, wanted);
  }
  send(&client, core::Resize{lease.id, lease.generation, wanted, random.chance(80)}, random.chance(50));
}

void Clients::leave(Client& client, const core::Lease& lease, Random& random) {
  Program* program = world_.program_of(lease.id);
  if (program != nullptr && program->lives && random.chance(50)) {
    world_.end_program(*program, static_cast<int>(random.below(3)), random.chance(20));
    if (random.chance(50)) send(&client, core::ProgramEnded{lease.id, program->exit_status, program->by_signal}, false);
    return;
  }
  const bool revoke = random.chance(15);
  if (revoke) oracle_.revoked(lease.id);
  const core::Release release{.lease = lease.id,
                              .generation = random.chance(50) ? lease.generation : 0,
                              .force = random.chance(20),
                              .stop = random.chance(50),
                              .revoke = revoke};
  if (release.force && (release.stop || release.revoke)) world_.note_forced(lease.id);
  send(&client, release, random.chance(50));
}

void Clients::work(Random& random) {
  std::vector<Program*> living;
  for (const auto& [lease, program] : world_.programs()) {
    if (program.lives) living.push_back(world_.program_of(lease));
  }
  if (living.empty()) return;
  Program& program = *random.pick(living);
  const core::Lease* lease = seen(program.lease);
  const auto client = clients_.find(program.lease);
  const bool asks = client != clients_.end() && client->second.waiting;
  const bool owns = lease != nullptr && is_of(*lease, program) && !lease->ended();
  if (!owns || asks) return;  // its keeper holds it, or nobody does
  // A program that is being ended takes no more, though it may not have been told yet. Bytes that are measured gone
  // while a program lives on are not charged any longer.
  const core::Lease* decided = daemon_ == nullptr ? lease : core::find(daemon_->engine().state(), program.lease);
  if (decided == nullptr || decided->ended()) return;
  const bool active = lease->state == LeaseState::active;
  if (active) program.within = lease->vram;
  world_.let_work(program, random, random.chance(config_.over_use), active ? std::optional(lease->vram) : std::nullopt);
}

void Clients::lose_keeper(Random& random) {
  std::vector<Program*> living;
  for (const auto& [lease, program] : world_.programs()) {
    if (program.lives) living.push_back(world_.program_of(lease));
  }
  if (!living.empty()) random.pick(living)->keeper_alive = false;
}

// ------------------------------------------------------------------------------------------------ mistakes

core::Fact Clients::some_fact(LeaseId lease, std::uint64_t generation, Random& random) const {
  switch (random.below(9)) {
    case 0: return core::Claim{lease, generation};
    case 1: return core::Renew{lease, generation, random.time(1s, 60s)};
    case 2: return core::Pause{lease, generation, {core::PauseCauseKind::owner_request}, host(lease)};
    case 3: return core::Resume{lease, generation};
    case 4: return core::Resize{lease, generation, lease.number % 2 == 0 ? 100 * GiB : Bytes{0}, random.chance(50)};
    case 5: return core::Release{.lease = lease, .generation = generation, .force = random.chance(20)};
    case 6: return core::Attach{lease, generation == 0 ? 1 : generation, {}, true, {}};
    case 7: return core::Release{.lease = lease, .generation = generation, .stop = true};
    default: return core::Claim{lease, generation};
  }
}

// A wrong call: any lease in any state, often with a generation that is not its own.
void Clients::blunder(Random& random) {
  if (daemon_ == nullptr) return;
  const std::uint64_t last = daemon_->engine().state().leases.last_id;
  const LeaseId lease{last == 0 ? 1 : last - random.below(std::min<std::uint64_t>(last, 12))};
  const auto client = clients_.find(lease);
  if (client != clients_.end() && client->second.waiting) return;
  const core::Lease* now = core::find(daemon_->engine().state(), lease);
  const std::uint64_t generation = now == nullptr ? random.below(4) : now->generation;
  if (random.chance(60) && generation > 1) {  // an old one changes nothing, whatever it asks for
    const std::uint64_t intended = daemon_->engine().intended();
    const core::Fact fact = some_fact(lease, generation - 1, random);
    const bool releases = std::holds_alternative<core::Release>(fact);
    const bool was_over = now == nullptr || now->ended();
    daemon_->call(fact, {}, [this, releases, was_over, lease](const Daemon::Answer& answer) {
      // To release what has ended is no mistake, and it may have ended by itself in the same step.
      const core::Lease* its = core::find(daemon_->engine().state(), lease);
      const bool by_itself = its == nullptr || (its->ended() && its->end_reason != core::EndReason::released);
      verdict_.expect(answer.status >= 400 || (releases && (was_over || by_itself)), "old-generation",
                      [&] { return "a late call was obeyed: " + to_string(lease) + ": " + answer.body; });
    });
    (void)intended;
    return;
  }
  send(client == clients_.end() ? nullptr : &client->second, some_fact(lease, 0, random), random.chance(20));
}

// ------------------------------------------------------------------------------------------------ the end

void Clients::wind_down() {
  if (daemon_ == nullptr) return;
  std::vector<core::Lease> leases;
  for (const auto& [id, row] : disk_.store().durable()) leases.push_back(row.lease);
  for (const core::Lease& lease : leases) {
    Program* program = world_.program_of(lease.id);
    const bool lives = program != nullptr && program->lives;
    if (lease.ended()) {
      if (lives) world_.end_program(*program, 0, false);
      continue;
    }
    Client& client = clients_[lease.id];
    client.lease = lease.id;
    const bool in_vain =
        lease.state == LeaseState::resuming && !core::resume_failure(daemon_->engine().state(), lease.id).empty();
    const bool relapsed = (lease.state == LeaseState::paused || in_vain) && world_.took_again(lease.id);
    if (lease.parking && lives && (relapsed || world_.crowds_itself(lease.id) || world_.halved(lease.id))) {
      world_.end_program(*program, 0, false);
    } else if (lease.parking && lease.state != LeaseState::poisoned) {
      send(&client, core::Resume{lease.id, 0}, false);
    } else if (lives) {
      // The owner ends a program that Sublet did not start.
      const bool kept = static_cast<bool>(lease.owner.keeper);
      if (lease.state == LeaseState::poisoned && kept)
        send(&client, core::Release{.lease = lease.id, .stop = true}, false);
      else world_.end_program(*program, 0, false);
    } else if (!lives) {  // a poisoned lease of a token outlives its processes
      send(&client, core::Release{.lease = lease.id, .force = true}, false);
    }
  }
  for (const auto& [lease, program] : world_.programs()) {
    if (program.lives && seen(lease) == nullptr) world_.end_program(*world_.program_of(lease), 0, false);
  }
}

}  // namespace sublet::sim
