// SPDX-License-Identifier: Apache-2.0
#include "engine/ends.h"

#include "base/log.h"
#include "engine/engine.h"

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

Warning unkillable_warning(LeaseId id, const std::string& why, Time now) {
  const std::string reason =
      why.empty() ? "its keeper is gone, and nothing proves that the pids still belong to it" : why;
  return {"unkillable", fmt::format("the daemon cannot end the program of {}: {}", to_string(id), reason),
          fmt::format("'sublet ps -o id,pid' shows its pid; end it by hand, and '{}' ends with it", to_string(id)),
          now};
}

}  // namespace

Ends::Ends(Engine& engine, const Machine& machine)
    : engine_(engine), state_(engine.state()), programs_(*machine.programs), alarm_(machine.alarm()) {}

bool Ends::ends_program(const core::Fact& fact) const {
  const LeaseId id = ended_by(fact);
  const core::Lease* lease = id ? core::find(state_, id) : nullptr;
  return lease != nullptr && lease->owner.keeper;
}

Status Ends::may_take(const core::Fact& fact) const {
  Status may = engine_.may_decide();
  return !may && engine_.store_problem().empty() && ends_program(fact) ? Status() : may;
}

std::optional<Ends::Unstored> Ends::end_in(const core::Fact& fact, const core::Plan& plan, Time now) const {
  const LeaseId id = ended_by(fact);
  const core::SignalProgram* order = id && plan.outcome ? signal_for(id, plan) : nullptr;
  const core::Lease* lease = order != nullptr ? core::find(state_, id) : nullptr;
  if (lease == nullptr) return std::nullopt;
  // A program that was asked to end a while ago, and takes memory, has had its time. This end is a moment old by now.
  const bool was_asked = lease->stop_at && *lease->stop_at + commit_patience < now;
  const Duration patience = order->kill ? patience_to_kill : commit_patience;
  return Unstored{.fact = for_any_generation(fact),
                  .asked_by = order->asked_by.value_or(actor::the_daemon),
                  .signal = order->kill ? SIGKILL : SIGTERM,
                  .signal_at = was_asked || !engine_.store_problem().empty() ? now : now + patience,
                  .kill_at = now + core::stop_grace(*lease, engine_.rules())};
}

// Programs that nobody asked to end yet have their grace first.
std::map<LeaseId, Ends::Unstored> Ends::kills_in(const core::Plan& plan, Time now) const {
  std::map<LeaseId, Unstored> kills;
  for (const core::Action& action : plan.actions) {
    const auto* order = std::get_if<core::SignalProgram>(&action);
    if (order == nullptr || !order->kill || !asked_.contains(order->lease)) continue;
    if (unstored_.contains(order->lease)) continue;  // it has its time there
    kills[order->lease] = {.fact = core::Tick{},
                           .asked_by = order->asked_by.value_or(actor::the_daemon),
                           .signal = SIGKILL,
                           .signal_at = engine_.store_problem().empty() ? now + patience_to_kill : now,
                           .kill_at = now};
  }
  return kills;
}

void Ends::await(LeaseId lease, std::optional<Unstored> end) {
  if (!end) return;
  end->sequence = engine_.store_problem().empty() ? engine_.intended() : UINT64_MAX;
  unstored_[lease] = std::move(*end);
  send_due();
}

Result<LeaseId> Ends::decide(const core::Fact& fact, const Error& refusal) {
  if (!ends_program(fact) || engine_.store_problem().empty()) return refusal;
  std::optional<Unstored> end;  // only its signals are carried out
  const auto outcome = engine_.take(fact, [&](const core::Plan& plan) { end = end_in(fact, plan, engine_.now()); });
  if (!outcome) return outcome;
  if (!end && !has_unstored(*outcome)) return refusal;  // a repeated request gets the same answer
  await(*outcome, std::move(end));
  return outcome;
}

Error Ends::not_stored(LeaseId lease) const {
  const auto end = unstored_.find(lease);
  const bool is_killed = end == unstored_.end() || end->second.signal_at == Time::never();
  const std::string sent = is_killed ? "SIGKILL"
                                     : fmt::format("SIGTERM, and gets SIGKILL in {}",
                                                   format_duration(end->second.signal_at - engine_.now()));
  return unavailable(fmt::format("the program of {} got {}; its end is stored once the store works again: {}",
                                 to_string(lease), sent, engine_.store_problem()),
                     "free space on the disk or repair it; 'sublet status' shows when the store is back");
}

void Ends::send_due() {
  const Time now = engine_.now();
  Time next = Time::never();
  for (auto& [lease, end] : unstored_) {
    if (end.signal_at <= now) {
      const bool has_waited = end.signal == SIGTERM || end.sent != 0;
      if (!engine_.store_problem().empty() || has_waited)
        log::warn({.lease = lease}, "its program gets {}, and its end is not stored yet: {}",
                  end.signal == SIGKILL ? "SIGKILL" : "SIGTERM",
                  engine_.store_problem().empty() ? "the disk of the store is slow" : engine_.store_problem());
      if (!programs_.signal(lease, end.signal, end.asked_by)) not_killed(lease, programs_.why_not_signalled(lease));
      if (end.signal == SIGTERM) asked_[lease] = {true, now};
      end.sent = end.signal;
      end.signal_at = end.signal == SIGKILL ? Time::never() : std::max(end.kill_at, now);
      end.signal = SIGKILL;
    }
    next = std::min(next, end.signal_at);
  }
  if (next == Time::never()) return alarm_->cancel();
  alarm_->set(std::max(next - now, Duration::zero()), [this] { send_due(); });
}

// The signal did not wait for the commit of its order.
bool Ends::was_sent(const core::SignalProgram& order) const {
  const auto end = unstored_.find(order.lease);
  return end != unstored_.end() && (order.kill ? end->second.sent == SIGKILL : end->second.sent != 0);
}

Time Ends::asked_at(const core::Lease& lease) const {
  if (const auto asked = asked_.find(lease.id); asked != asked_.end()) return asked->second.at;
  return unstored_.contains(lease.id) ? Time::never() : lease.ended_at.value_or(Time::never());
}

bool Ends::has_signalled(LeaseId lease) const {
  const auto asked = asked_.find(lease);
  return asked != asked_.end() && asked->second.from_here;
}

void Ends::committed(std::uint64_t sequence) {
  if (std::erase_if(unstored_, [sequence](const auto& entry) { return entry.second.sequence <= sequence; }) > 0)
    send_due();
}

// No batch on its way will be told as durable any more.
void Ends::store_failed() {
  for (auto& [lease, end] : unstored_) {
    end.sequence = UINT64_MAX;
    if (end.signal == SIGTERM) end.signal_at = engine_.now();
  }
  send_due();
}

void Ends::decide_again() {
  for (auto& [lease, end] : std::exchange(unstored_, {})) {
    if (!engine_.take(end.fact)) continue;
    end.sequence = engine_.intended();
    unstored_.emplace(lease, std::move(end));
  }
  send_due();
}

// A living keeper sees the lease and stops its program itself. A keeper may hang, so SIGKILL is also sent from here.
void Ends::signal(const core::SignalProgram& order) {
  const bool keeper = programs_.keeper_alive(order.lease);
  const std::uint32_t asked_by = order.asked_by.value_or(actor::the_daemon);
  if (!order.kill) asked_.try_emplace(order.lease, Asked{!keeper, engine_.now()});
  if (keeper && !order.kill) return programs_.wake_keeper(order.lease, asked_by);
  if (was_sent(order)) return;
  if (programs_.signal(order.lease, order.kill ? SIGKILL : SIGTERM, asked_by)) return;
  not_killed(order.lease, programs_.why_not_signalled(order.lease));
}

void Ends::forget_others(const std::function<bool(LeaseId)>& keep) {
  std::erase_if(asked_, [&keep](const auto& entry) { return !keep(entry.first); });
}

void Ends::not_killed(LeaseId lease, const std::string& why) {
  if (!unkillable_.insert_or_assign(lease, why).second) return;  // SIGKILL is repeated, so it was logged already
  log::warn({.lease = lease}, "the daemon cannot end its program: {}",
            why.empty() ? "its keeper is gone, and nothing proves which process it is" : why);
}

std::vector<Warning> Ends::warnings(Time now) {
  std::erase_if(unkillable_, [this](const auto& entry) { return core::find(state_, entry.first) == nullptr; });
  std::vector<Warning> all;
  for (const auto& [id, why] : unkillable_) all.push_back(unkillable_warning(id, why, now));
  return all;
}

}  // namespace sublet::engine
