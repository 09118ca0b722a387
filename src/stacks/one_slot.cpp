// SPDX-License-Identifier: Apache-2.0
#include "stacks/one_slot.h"

#include "base/log.h"
#include "base/text.h"
#include "compose/private_file.h"
#include "stacks/mirror.h"
#include "store/secret.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

namespace sublet::stacks {
namespace {

constexpr std::string_view row_kind = "stack-slot";
constexpr std::string_view row_key = "slot";
constexpr std::string_view unreadable_text =
    "the stored queue of the compatible service is unreadable: restore the store, or remove its row stack-slot";

}  // namespace

OneSlot::OneSlot(engine::Engine& engine, Stacks& stacks, OneSlotOptions options)
    : engine_(engine),
      stacks_(stacks),
      options_(std::move(options)),
      rows_(engine, "stack_changed", [this](const std::string& key) {
        return store::CapabilityRow{std::string(row_kind), key, slot_.to_json()};
      }) {}

std::uint64_t OneSlot::acquire(SlotCall call, Done done) {
  const engine::Engine::Transaction transaction(engine_);
  const Status known = stacks_.known();
  if (unreadable_ || !known) {
    done({SlotAnswer::Kind::unavailable, {}, unreadable_ ? std::string(unreadable_text) : known.error().detail});
    return 0;
  }
  if (stacks_.find(call.ask.target) == nullptr || !stacks_.find(call.ask.target)->found) {
    done({SlotAnswer::Kind::unknown_target, {}, fmt::format("unknown target: {}", printable(call.ask.target))});
    return 0;
  }
  if (!call.wrong_ttl.empty()) {
    done({SlotAnswer::Kind::invalid, {}, call.wrong_ttl});
    return 0;
  }
  const Time now = engine_.now();
  const Time until = now + call.wait;
  open_.push_back({std::move(call), {}, until, std::move(done), ++last_number_});
  Open& open = open_.back();
  open.token = open.call.ask.token;
  if (open.call.wait_turn && !open.call.ask.priority && open.token.empty()) open.call.ask.priority = 0;
  open.call.ask.unnamed = open.call.wait_turn && open.token.empty();
  const std::uint64_t number = open.number;
  follow_clock();
  const bool answered = answer(open, now);
  if (answered) open_.pop_back();
  store();
  engine_.call_capabilities();
  return answered ? 0 : number;
}

void OneSlot::cancel(std::uint64_t number) {
  const engine::Engine::Transaction transaction(engine_);
  const auto found = std::ranges::find(open_, number, &Open::number);
  if (found == open_.end()) return;
  const std::string starts = found->starter ? found->token : "";
  if (found->call.ask.unnamed) slot_.leave(found->token, options_.claim_window, engine_.now());
  open_.erase(found);
  if (!starts.empty() && slot_.holder() && slot_.holder()->token == starts && !is_granted())
    give_up(After::down, engine_.now());
  store();
  engine_.call_capabilities();
}

Status OneSlot::release(const std::string& token, bool force) {
  const engine::Engine::Transaction transaction(engine_);
  if (unreadable_) return unavailable(std::string(unreadable_text));
  follow_clock();
  const std::optional<Holder> before = slot_.holder();
  if (const Status done = slot_.release(token, force, options_.claim_window, engine_.now()); !done) return done;
  if (before) give_back(*before);
  store();
  engine_.call_capabilities();
  return {};
}

// -------------------------------------------------------------------------------- rows

void OneSlot::loaded(const store::Loaded& rows, Time now) {
  slot_ = Slot();
  rows_.clear();
  has_row_ = false;
  stored_changes_ = 0;
  mirrored_changes_.reset();
  unreadable_ = false;
  start_by_ = now + stacks_.options().ready_timeout;
  wish_ends_ = now + engine_.rules().reconnect;
  for (const store::CapabilityRow& row : rows.rows) {
    if (row.kind != row_kind) continue;
    auto slot = Slot::from_json(row.data);
    if (!slot) {
      log::error("{}", slot.error().detail);
      unreadable_ = true;
      continue;
    }
    slot_ = std::move(*slot);
    has_row_ = true;
  }
  forgiven_ = engine_.clock().time_asleep();
  follow_clock();
  slot_.forgive(engine_.rules().reconnect, now);
  slot_.leave_unnamed(options_.claim_window, now);
  if (!has_row_ && !unreadable_) take_over_service(now);
}

// An existing state.json is taken once: later starts have the slot in the store.
void OneSlot::take_over_service(Time now) {
  if (options_.mirror.empty()) return;
  std::ifstream file(options_.mirror, std::ios::binary);
  if (!file) return;
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  auto slot = read_service_state(options_.mirror, text, now);
  if (!slot) {
    log::warn("{}; {}", slot.error().detail, slot.error().hint);
    return;
  }
  slot_ = std::move(*slot);
  wish_ends_ = start_by_;
  imported_ = true;
  log::info("{} is taken over: {} callers wait", options_.mirror, slot_.queue().size());
}

void OneSlot::store() {
  if (unreadable_ || slot_.changes() == stored_changes_ || (!has_row_ && is_unused())) return;
  stored_changes_ = slot_.changes();
  has_row_ = true;
  rows_.store(std::string(row_key));
}

// Writes the mirror once the slot is durable.
void OneSlot::mirror() {
  if (options_.mirror.empty() || !has_row_ || mirrored_changes_ == slot_.changes()) return;
  if (!rows_.is_durable(std::string(row_key))) return;
  mirrored_changes_ = slot_.changes();
  // The old service's file has the tokens: it is kept beside the mirror.
  if (std::exchange(imported_, false)) std::rename(options_.mirror.c_str(), (options_.mirror + ".imported").c_str());
  const Status written = compose::replace_file(
      options_.mirror, mirror_text(slot_, options_.mirror_tokens, engine_.now()), options_.mirror_tokens ? 0600 : 0644);
  const std::string problem = written ? "" : written.error().detail;
  if (problem == mirror_problem_) return;
  if (!problem.empty()) log::warn("{}", problem);
  mirror_problem_ = problem;
  mirror_problem_since_ = engine_.now();
}

std::vector<engine::Warning> OneSlot::warnings(Time now) const {
  if (unreadable_) return {{"stacks-slot", std::string(unreadable_text), "its callers get 503 until then", now}};
  if (mirror_problem_.empty()) return {};
  return {
      {"stacks-mirror", mirror_problem_, "free space there, or choose another GPU_RUNTIME_DIR", mirror_problem_since_}};
}

// -------------------------------------------------------------------------------- the holder

// The holder's time to live stands still with the lease of its stack.
void OneSlot::follow_clock() {
  const Entry* entry = slot_.holder() && holds_stack(*slot_.holder()) ? stacks_.find(slot_.holder()->target) : nullptr;
  slot_.stand_since(entry != nullptr ? stacks_.parked_since(entry->stack) : std::nullopt);
}

void OneSlot::happened(const core::Plan& plan, Time) {
  if (plan.resumed.empty() || !slot_.holder() || !holds_stack(*slot_.holder())) return;
  const LeaseId its = stacks_.find(slot_.holder()->target)->stack.use.lease;
  for (const core::Resumed& lease : plan.resumed)
    if (lease.lease == its) slot_.stand_still(lease.stood_still);
  store();
}

Time OneSlot::due(Time now) {
  (void)rows_.due(now);
  follow_clock();
  if (const Duration asleep = engine_.clock().time_asleep() - forgiven_; asleep > Duration{}) {
    forgiven_ = forgiven_ + asleep;
    if (!slot_.stands_still()) slot_.stand_still(asleep);
  }
  const std::optional<Holder> before = slot_.holder();
  Time next = slot_.tick(options_.claim_window, now);
  if (before && !slot_.holder()) give_back(*before);  // its time to live is over
  next = std::min(next, follow_holder(now));
  next = std::min(next, answer_calls(now));
  store();
  mirror();
  return next;
}

bool OneSlot::holds_stack(const Holder& holder) const {
  const Entry* entry = stacks_.find(holder.target);
  return entry != nullptr && entry->stack.acquired() && entry->stack.use.token_hash == store::hash_secret(holder.token);
}

// A stack whose release is refused is released by its own time to live.
void OneSlot::give_back(const Holder& holder) {
  if (holds_stack(holder)) (void)stacks_.release(holder.target, After::up);
}

bool OneSlot::is_granted() const {
  return holds_stack(*slot_.holder()) && stacks_.find(slot_.holder()->target)->stack.phase != Phase::queued;
}

// Frees the slot, and gives the holder's stack back.
void OneSlot::give_up(After after, Time now) {
  const Holder holder = *slot_.holder();
  const bool has_stack = holds_stack(holder);
  slot_.failed(holder.token, options_.claim_window, now);
  if (has_stack) (void)stacks_.release(holder.target, after);
  store();
}

// Keeps the holder and its stack in agreement.
Time OneSlot::follow_holder(Time now) {
  if (!slot_.holder()) return Time::never();
  const Holder holder = *slot_.holder();
  const Entry* entry = stacks_.find(holder.target);
  const bool has_stack = holds_stack(holder);
  if (!has_stack && slot_.is_begun()) {
    if (entry != nullptr && entry->reads_lines()) return now + std::chrono::seconds(1);  // for the caller's answer
    std::string why = entry == nullptr ? "the stack is gone" : entry->stack.why;
    end_holder(SlotAnswer::Kind::failed, why.empty() ? "the stack was brought down" : why,
               entry == nullptr ? std::nullopt : entry->last_health, now);
    return Time::never();
  }
  const bool asks = starter(holder.token) != nullptr;  // not after a restart of the daemon
  const Time gives_up = is_granted() ? start_by_ : std::min(start_by_, wish_ends_);
  if (!holder.expires_at && !asks && now >= gives_up) {
    give_up(After::down, now);
    return Time::never();
  }
  if (!has_stack && !begin(holder, now)) return slot_.holder() ? (asks ? start_by_ : gives_up) : Time::never();
  entry = stacks_.find(holder.target);
  const Stack& stack = entry->stack;
  if (stack.phase == Phase::queued) (void)stacks_.claim(holder.target);
  if (stack.phase == Phase::starting) slot_.started(holder.token, now);
  if (stack.phase == Phase::ready && !holder.expires_at) {
    slot_.started(holder.token, now);
    slot_.ready(holder.token, now);
    store();
  }
  if (slot_.stands_still()) return Time::never();
  const Time next = asks ? start_by_ : gives_up;
  return slot_.holder()->expires_at.value_or(next > now ? next : Time::never());
}

// Acquires the holder's stack. False: it is not to be had yet, or never.
bool OneSlot::begin(const Holder& holder, Time now) {
  const engine::Peer charged{.uid = options_.uid, .user = options_.user};
  const auto tenant = engine::tenant_for(engine_.options().tenants, charged);
  const Wish wish{.uid = options_.uid,
                  .user = options_.user,
                  .tenant = tenant ? *tenant : "",
                  .owner = printable(holder.owner),
                  .token_hash = store::hash_secret(holder.token),
                  .ttl = holder.ttl,
                  .priority = priority_};
  const Entry* entry = stacks_.find(holder.target);
  if (entry != nullptr && entry->stack.phase == Phase::released && tenant) {
    // One commit has the slot and the lease. Nothing is started, so `at` stays.
    const Slot before = slot_;
    slot_.begin();
    if (stacks_.is_usable(*entry)) slot_.ready(holder.token, now);
    if (stacks_.take_over(holder.target, wish)) return true;
    slot_.take_back(before);
    return false;
  }
  if (!stacks_.has_looked()) return false;
  const auto asked = tenant ? stacks_.request(holder.target, wish) : Result<core::Submit>(tenant.error());
  if (!asked) {
    const bool is_taken = entry != nullptr && (entry->stack.acquired() || entry->stack.phase == Phase::stopping);
    if (asked.error().code == Code::InUse && is_taken) return false;
    const bool passing = asked.error().code == Code::Unavailable;
    if (passing && starter(holder.token) == nullptr) return false;  // taken over or restored: the engine may come back
    end_holder(passing ? SlotAnswer::Kind::unavailable : SlotAnswer::Kind::failed, asked.error().detail,
               entry == nullptr ? std::nullopt : stacks_.label_fault(*entry), now);
    return false;
  }
  const auto made = engine_.decide(*asked);
  if (made) {
    stacks_.submitted(holder.target, wish, *engine_.find(*made));
    slot_.begin();
    return true;
  }
  end_holder(SlotAnswer::Kind::failed, made.error().detail, std::nullopt, now);
  return false;
}

OneSlot::Open* OneSlot::starter(const std::string& token) {
  const auto found = std::ranges::find_if(open_, [&](const Open& open) { return open.starter && open.token == token; });
  return found == open_.end() ? nullptr : &*found;
}

// Frees the slot. The call that started the stack gets this answer.
void OneSlot::end_holder(SlotAnswer::Kind kind, const std::string& detail, std::optional<Health> health, Time now) {
  const std::string token = slot_.holder()->token;
  slot_.failed(token, options_.claim_window, now);
  if (Open* open = starter(token)) open->ended = {kind, {}, detail, health};
  store();
}

}  // namespace sublet::stacks
