// SPDX-License-Identifier: Apache-2.0
// Ends of programs that are not stored yet. A signal that keeps memory safe for others must not wait for a disk that is
// full or hangs: it is sent after a moment, and its end is decided again once the store works.
#include "engine/engine.h"

#include "base/log.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace sublet::engine {
namespace {

// A signal waits for its commit for this long, SIGKILL for a shorter time. A disk that works needs some milliseconds.
constexpr Duration commit_patience = std::chrono::milliseconds(250);
constexpr Duration patience_to_kill = std::chrono::milliseconds(50);

struct EndOf {
  LeaseId operator()(const core::End& fact) const { return fact.lease; }
  LeaseId operator()(const core::Release& fact) const { return fact.stop || fact.revoke ? fact.lease : LeaseId{}; }
  LeaseId operator()(const auto&) const { return {}; }
};

// The lease whose program the fact ends; none: another fact.
LeaseId ended_by(const core::Fact& fact) { return std::visit(EndOf{}, fact); }

// The order to signal that program, with the strongest signal. Null: there is none.
const core::SignalProgram* signal_for(LeaseId lease, const core::Plan& plan) {
  const core::SignalProgram* found = nullptr;
  for (const core::Action& action : plan.actions) {
    const auto* order = std::get_if<core::SignalProgram>(&action);
    if (order != nullptr && order->lease == lease && (found == nullptr || order->kill)) found = order;
  }
  return found;
}

// The lease may have changed when the fact is decided again.
core::Fact for_any_generation(core::Fact fact) {
  if (auto* release = std::get_if<core::Release>(&fact)) release->generation = 0;
  return fact;
}

}  // namespace

bool Engine::ends_program(const core::Fact& fact) const {
  const LeaseId id = ended_by(fact);
  const core::Lease* lease = id ? core::find(state_, id) : nullptr;
  return lease != nullptr && lease->owner.keeper;
}

// Many changes that wait for a slow disk refuse no end of a program.
Status Engine::may_take(const core::Fact& fact) const {
  Status may = may_decide();
  return !may && store_problem_.empty() && ends_program(fact) ? Status() : may;
}

// The plan of such a fact, before it is handed to the store.
std::optional<Engine::UnstoredEnd> Engine::end_in(const core::Fact& fact, const core::Plan& plan, Time now) const {
  const LeaseId id = ended_by(fact);
  const core::SignalProgram* order = id && plan.outcome ? signal_for(id, plan) : nullptr;
  const core::Lease* lease = order != nullptr ? core::find(state_, id) : nullptr;
  if (lease == nullptr) return std::nullopt;
  // A program that was asked to end, and takes memory, has had its time.
  const bool was_asked = lease->stop_at && *lease->stop_at < now;
  const Duration patience = order->kill ? patience_to_kill : commit_patience;
  return UnstoredEnd{.fact = for_any_generation(fact),
                     .asked_by = order->asked_by.value_or(actor::the_daemon),
                     .signal = order->kill ? SIGKILL : SIGTERM,
                     .signal_at = was_asked || !store_problem_.empty() ? now : now + patience,
                     .kill_at = now + core::stop_grace(*lease, options_.rules)};
}

// The kills at the end of a grace that no request brings. Programs that nobody asked to end yet have their grace first.
std::map<LeaseId, Engine::UnstoredEnd> Engine::kills_in(const core::Plan& plan, Time now) const {
  std::map<LeaseId, UnstoredEnd> kills;
  for (const core::Action& action : plan.actions) {
    const auto* order = std::get_if<core::SignalProgram>(&action);
    if (order == nullptr || !order->kill || !asked_to_end_.contains(order->lease)) continue;
    if (unstored_ends_.contains(order->lease)) continue;  // it has its time there
    kills[order->lease] = {.fact = core::Tick{},
                           .asked_by = order->asked_by.value_or(actor::the_daemon),
                           .signal = SIGKILL,
                           .signal_at = store_problem_.empty() ? now + patience_to_kill : now,
                           .kill_at = now};
  }
  return kills;
}

void Engine::await_end(LeaseId lease, std::optional<UnstoredEnd> end) {
  if (!end) return;
  end->sequence = store_problem_.empty() ? intended() : UINT64_MAX;
  unstored_ends_[lease] = std::move(*end);
  send_unstored_signals();
}

Result<LeaseId> Engine::decide_end(const core::Fact& fact, const Error& refusal) {
  if (!ends_program(fact) || store_problem_.empty()) return refusal;
  const Time now = notice();
  const core::Plan plan = core::step(state_, options_.rules, fact, now);  // only its signals are carried out
  if (!plan.outcome) return plan.outcome;
  auto end = end_in(fact, plan, now);
  if (!end && !has_unstored_end(*plan.outcome)) return refusal;  // a repeated request gets the same answer
  await_end(*plan.outcome, std::move(end));
  return plan.outcome;
}

Error Engine::not_stored(LeaseId lease) const {
  const auto end = unstored_ends_.find(lease);
  const bool is_killed = end == unstored_ends_.end() || end->second.signal_at == Time::never();
  const std::string sent =
      is_killed ? "SIGKILL"
                : fmt::format("SIGTERM, and gets SIGKILL in {}", format_duration(end->second.signal_at - clock_.now()));
  return unavailable(fmt::format("the program of {} got {}; its end is stored once the store works again: {}",
                                 to_string(lease), sent, store_problem_),
                     "free space on the disk or repair it; 'sublet status' shows when the store is back");
}

void Engine::send_unstored_signals() {
  const Time now = clock_.now();
  Time next = Time::never();
  for (auto& [lease, end] : unstored_ends_) {
    if (end.signal_at <= now) {
      const bool has_waited = end.signal == SIGTERM || end.sent != 0;
      if (!store_problem_.empty() || has_waited)
        log::warn({.lease = lease}, "its program gets {}, and its end is not stored yet: {}",
                  end.signal == SIGKILL ? "SIGKILL" : "SIGTERM",
                  store_problem_.empty() ? "the disk of the store is slow" : store_problem_);
      if (!programs_.signal(lease, end.signal, end.asked_by)) not_killed(lease, programs_.why_not_signalled(lease));
      if (end.signal == SIGTERM) asked_to_end_[lease] = {true, now};
      end.sent = end.signal;
      end.signal_at = end.signal == SIGKILL ? Time::never() : std::max(end.kill_at, now);
      end.signal = SIGKILL;
    }
    next = std::min(next, end.signal_at);
  }
  if (next == Time::never()) return signals_alarm_->cancel();
  signals_alarm_->set(std::max(next - now, Duration::zero()), [this] { send_unstored_signals(); });
}

// The signal did not wait for the commit of its order.
bool Engine::was_sent(const core::SignalProgram& order) const {
  const auto end = unstored_ends_.find(order.lease);
  return end != unstored_ends_.end() && (order.kill ? end->second.sent == SIGKILL : end->second.sent != 0);
}

Time Engine::asked_to_end_at(const core::Lease& lease) const {
  if (const auto asked = asked_to_end_.find(lease.id); asked != asked_to_end_.end()) return asked->second.at;
  return unstored_ends_.contains(lease.id) ? Time::never() : lease.ended_at.value_or(Time::never());
}

bool Engine::has_signalled(LeaseId lease) const {
  const auto asked = asked_to_end_.find(lease);
  return asked != asked_to_end_.end() && asked->second.from_here;
}

void Engine::end_is_stored(std::uint64_t sequence) {
  if (std::erase_if(unstored_ends_, [sequence](const auto& entry) { return entry.second.sequence <= sequence; }) > 0)
    send_unstored_signals();
}

// No batch on its way will be told as durable any more.
void Engine::ends_were_not_stored() {
  for (auto& [lease, end] : unstored_ends_) {
    end.sequence = UINT64_MAX;
    if (end.signal == SIGTERM) end.signal_at = clock_.now();
  }
  send_unstored_signals();
}

// The store is back, with its leases as they were. Their ends come before any news of their programs.
void Engine::decide_ends_again(Time now) {
  for (auto& [lease, end] : std::exchange(unstored_ends_, {})) {
    core::Plan plan = core::step(state_, options_.rules, end.fact, now);
    const bool is_decided = plan.outcome.has_value();
    intend(std::move(plan), now);
    if (!is_decided) continue;
    end.sequence = intended();
    unstored_ends_.emplace(lease, std::move(end));
  }
  send_unstored_signals();
}

}  // namespace sublet::engine
