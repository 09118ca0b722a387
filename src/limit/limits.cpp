// SPDX-License-Identifier: Apache-2.0
#include "limit/limits.h"

#include "base/log.h"
#include "limit/member.h"
#include "proc/pidfd.h"
#include "state/format.h"

#include <algorithm>
#include <utility>

namespace sublet::limit {
namespace {

// A question may wait for so long until the card shows that the bytes of an ended process are gone. The library waits
// longer.
constexpr Duration most_wait = std::chrono::seconds(3);
// Beyond this, a question is refused.
constexpr std::size_t most_questions = 2048;

}  // namespace

Limits::Limits(boost::asio::io_context& io, engine::Engine& engine, Options options, credit::Shares* shares)
    : engine_(engine),
      options_(options),
      shares_(shares),
      questions_(io, engine.programs().root(), [this](Asked asked) { on_question(std::move(asked)); }),
      rows_(engine, "", [this](ProcessRef process) { return row_of(process); }),
      context_rows_(engine, "", [this](const std::string& uuid) {
        return to_row(StoredContext{uuid, contexts_[uuid].driver(), contexts_[uuid].bytes()});
      }) {}

Status Limits::start(const std::string& path) { return questions_.start(path); }

// -------------------------------------------------------------------------------- rows

store::CapabilityRow Limits::row_of(ProcessRef process) const {
  StoredCredit stored{process, {}, engine_.options().boot_id, {}};
  const auto known = processes_.find(process);
  if (known == processes_.end()) return to_row(stored);
  const LeaseLimit& limit = limits_.at(stored.lease = known->second.lease);
  const auto credits = limit.desk.credits(process);
  for (std::size_t device = 0; device < credits.size(); ++device) stored.each[limit.devices[device]] = credits[device];
  return to_row(stored);
}

std::set<ProcessRef> Limits::store_changes(LeaseLimit& limit, const std::function<void()>& change) {
  std::map<ProcessRef, std::vector<Bytes>> before;
  for (const ProcessRef process : limit.members) before[process] = limit.desk.credits(process);
  change();
  std::set<ProcessRef> changed;
  for (const auto& [process, credits] : before)
    if (limit.desk.credits(process) != credits) changed.insert(process);
  for (const ProcessRef process : changed) rows_.store(process);
  return changed;
}

void Limits::loaded(const store::Loaded& rows, Time now) {
  rows_.clear(), context_rows_.clear(), stale_.clear();
  std::map<ProcessRef, StoredCredit> credits;
  for (const store::CapabilityRow& row : rows.rows) {
    if (row.kind == credit_kind) {
      const auto stored = from_row(row);
      if (stored) credits[stored->process] = *stored;
      else log::error("{}", stored.error().detail);
    } else if (row.kind == context_kind) {
      const auto stored = context_from_row(row);
      if (!stored) log::error("{}", stored.error().detail);
      else contexts_[stored->uuid].set(stored->bytes, stored->driver);
    }
  }
  // After a failure of the store: the pages of processes stay, and get what is stored.
  std::vector<LeaseId> over;
  for (auto& [id, limit] : limits_) {
    refuse_all(limit);
    const core::Lease* lease = core::find(engine_.state(), id);
    if (!is_limited(lease)) {
      over.push_back(id);
      continue;
    }
    for (const ProcessRef process : limit.members) {
      if (!credits.contains(process)) limit.desk.restore(process, {});
      if (processes_.at(process).ended) limit.desk.end(process);
    }
  }
  for (const LeaseId id : over) drop(id);
  for (const auto& [process, stored] : credits) restore(stored);
  for (auto& [id, limit] : limits_) {
    resize(limit, core::find(engine_.state(), id)->vram);
    see_ends(limit, now);
  }
}

void Limits::restore(const StoredCredit& stored) {
  const core::Lease* lease = core::find(engine_.state(), stored.lease);
  LeaseLimit* limit = is_limited(lease) && stored.boot_id == engine_.options().boot_id ? limit_of(*lease) : nullptr;
  if (limit == nullptr) {
    stale_.insert(stored.process);
    return;
  }
  std::vector<Bytes> credits;
  for (const std::string& uuid : limit->devices) {
    const auto each = stored.each.find(uuid);
    credits.push_back(each == stored.each.end() ? Bytes{} : each->second);
  }
  limit->desk.restore(stored.process, credits);
  limit->members.insert(stored.process);
  const auto [process, is_new] = processes_.try_emplace(stored.process);
  process->second.lease = stored.lease;
  if (process->second.ended) limit->desk.end(stored.process);
  if (!is_new) return;
  process->second.is_earlier = true;
  auto pidfd = proc::open_pidfd(engine_.programs().root(), stored.process);
  if (pidfd) process->second.pidfd = std::move(*pidfd);
}

// -------------------------------------------------------------------------------- questions

void Limits::on_question(Asked asked) {
  const engine::Engine::Transaction transaction(engine_);
  if (asked.question.kind == SUBLET_CREDIT_BEGIN) {
    if (early_.size() >= most_questions || !is_early(asked.question.sender)) return begin(asked);
    early_.push_back({std::move(asked), engine_.now() + most_wait});
    return engine_.call_capabilities();
  }
  const ProcessRef sender = asked.question.sender.process;
  const auto process = processes_.find(sender);
  if (process == processes_.end()) return answer(asked, SUBLET_CREDIT_UNKNOWN);
  LeaseLimit& limit = limits_.at(process->second.lease);
  if (!limit.desk.knows(sender)) return answer(asked, SUBLET_CREDIT_UNKNOWN);
  if (limit.waiting.size() >= most_questions) return answer(asked, SUBLET_CREDIT_REFUSED);
  const Time now = engine_.now();
  limit.waiting.push_back({std::move(asked), now + most_wait});
  answer_waiting(limit, now);
}

// -------------------------------------------------------------------------------- credit

// Credit is stored before a process gets it, so that no later daemon gives it to another. Questions that come meanwhile
// wait, and are answered together.
void Limits::answer_waiting(LeaseLimit& limit, Time now) {
  if (!finish_round(limit) || limit.waiting.empty()) return;
  see_ends(limit, now);
  const core::Lease* lease = core::find(engine_.state(), limit.lease);
  const bool may_store = lease != nullptr && engine_.commits().may_decide();
  std::vector<Waiting> rest;
  const auto changed = store_changes(limit, [&] {
    for (Waiting& waiting : std::exchange(limit.waiting, {})) {
      const credit::Question& question = waiting.asked.question;
      const ProcessRef process = question.sender.process;
      const bool may =
          may_store && !has_to_wait(*lease, process) && limit.desk.ask(process, question.device, question.needed);
      if (may) limit.granted.push_back(std::move(waiting));
      else rest.push_back(std::move(waiting));
    }
  });
  if (!limit.granted.empty()) limit.being_stored = changed;
  const bool waits = may_store && !rest.empty() && waits_for_card(limit);
  for (Waiting& waiting : rest) {
    const bool is_held = lease != nullptr && has_to_wait(*lease, waiting.asked.question.sender.process);
    if ((waits || is_held) && now < waiting.until) limit.waiting.push_back(std::move(waiting));
    else answer_late(waiting.asked, limit.lease);
  }
  if (waits && !limit.waiting.empty()) engine_.observer().take_snapshot();
  if (limit.being_stored.empty()) finish_round(limit);
}

// False: the credits of the round are not durable yet.
bool Limits::finish_round(LeaseLimit& limit) {
  for (const ProcessRef process : limit.being_stored)
    if (!rows_.is_durable(process)) return false;
  for (const ProcessRef process : std::exchange(limit.being_stored, {})) limit.desk.publish(process);
  for (const Waiting& waiting : std::exchange(limit.granted, {})) {
    limit.desk.publish(waiting.asked.question.sender.process);
    answer(waiting.asked, SUBLET_CREDIT_GRANTED);
  }
  return true;
}

void Limits::refuse_all(LeaseLimit& limit) {
  for (const Waiting& waiting : std::exchange(limit.waiting, {})) answer(waiting.asked, SUBLET_CREDIT_REFUSED);
  for (const Waiting& waiting : std::exchange(limit.granted, {})) answer(waiting.asked, SUBLET_CREDIT_REFUSED);
  limit.being_stored.clear();
}

// Memory of a parked lease is promised to others. A process that begins while its lease is being paused is not among
// those that are paused, and waits too.
bool Limits::has_to_wait(const core::Lease& lease, ProcessRef process) const {
  const bool is_pausing =
      lease.state == core::LeaseState::pausing && processes_.at(process).begun > lease.parking->since;
  return lease.parked() || is_pausing;
}

// A process that begins in a paused lease waits for its memory, as a queued program does. A poisoned one stays so.
void Limits::answer_late(const Asked& asked, LeaseId id) const {
  const core::Lease* lease = core::find(engine_.state(), id);
  const bool comes_back = lease != nullptr && lease->state != core::LeaseState::poisoned &&
                          has_to_wait(*lease, asked.question.sender.process);
  answer(asked, comes_back ? SUBLET_CREDIT_PAUSED : SUBLET_CREDIT_REFUSED);
}

// Credit that is stored later is the process's own then.
Time Limits::refuse_late(Time now) {
  Time next = Time::never();
  for (auto& [id, limit] : limits_)
    for (auto* questions : {&limit.waiting, &limit.granted})
      std::erase_if(*questions, [&](const Waiting& waiting) {
        if (now < waiting.until) return next = std::min(next, waiting.until), false;
        answer_late(waiting.asked, id);
        return true;
      });
  return next;
}

// Whether an ended process of the lease has credit that the next reading may give back.
bool Limits::waits_for_card(const LeaseLimit& limit) const {
  const auto has_ended = [&](ProcessRef process) { return processes_.at(process).ended.has_value(); };
  return std::ranges::any_of(limit.members, has_ended);
}

void Limits::resize(LeaseLimit& limit, Bytes size) {
  (void)store_changes(limit, [&] {
    for (std::size_t device = 0; device < limit.devices.size(); ++device) limit.desk.resize(device, size);
  });
}

void Limits::happened(const core::Plan& plan, Time) {
  for (const core::Lease& lease : plan.changed) {
    const auto known = limits_.find(lease.id);
    if (known == limits_.end()) continue;
    if (!is_limited(&lease)) drop(lease.id);
    else if (known->second.desk.devices().front().limit != lease.vram) resize(known->second, lease.vram);
  }
}

// The lease has ended. Its processes may live on, and keep what they have.
void Limits::drop(LeaseId lease) {
  LeaseLimit& limit = limits_.at(lease);
  refuse_all(limit);
  limit.desk.retire();
  for (const ProcessRef process : limit.members) {
    count(limit, process);
    rows_.store(process);
    processes_.erase(process);
  }
  limits_.erase(lease);
}

// -------------------------------------------------------------------------------- ends and readings

void Limits::see_ends(LeaseLimit& limit, Time now) {
  for (const ProcessRef ref : limit.members) {
    Process& process = processes_.at(ref);
    const bool lives = process.pidfd ? !proc::is_dead(process.pidfd.get()) : engine_.programs().lives(ref);
    if (process.ended || lives) continue;
    process.ended = now;
    process.pidfd.reset();
    limit.desk.end(ref);
  }
}

// A reading of each device that began after its end does not list it.
bool Limits::is_gone(const LeaseLimit& limit, ProcessRef process, Time ended) const {
  return std::ranges::all_of(limit.devices, [&](const std::string& uuid) {
    const core::Device* device = core::find_device(engine_.state(), uuid);
    if (device == nullptr || !device->read_at || *device->read_at <= ended || !device->problem.empty() || device->lost)
      return false;
    return std::ranges::none_of(device->reading.processes,
                                [&](const core::ProcessUse& use) { return use.process == process; });
  });
}

void Limits::forget_ended(LeaseLimit& limit) {
  std::erase_if(limit.members, [&](ProcessRef ref) {
    const auto process = processes_.find(ref);
    if (!process->second.ended || !is_gone(limit, ref, *process->second.ended)) return false;
    count(limit, ref);
    limit.desk.forget(ref);
    rows_.store(ref);
    processes_.erase(process);
    return true;
  });
}

void Limits::learn(LeaseLimit& limit) {
  for (std::size_t at = 0; at < limit.devices.size(); ++at) {
    const std::string& uuid = limit.devices[at];
    const core::Device* device = core::find_device(engine_.state(), uuid);
    if (device == nullptr || !device->problem.empty()) continue;
    ContextSize& context = contexts_[uuid];
    context.check_driver(engine_.machine().probe->driver_version());
    for (const core::ProcessUse& use : device->reading.processes) {
      const auto known = processes_.find(use.process);
      if (!use.used || known == processes_.end() || known->second.lease != limit.lease || known->second.given.empty())
        continue;
      const Sight sight{limit.desk.charged_by(use.process, at), *use.used};
      const auto size = context.learn(known->second.last[at], sight, known->second.given[at]);
      if (!size) continue;
      log::info("a context takes {} on {}", format_size(*size), device->reading.id());
      context_rows_.store(uuid);
      for (auto& [id, other] : limits_)
        for (std::size_t i = 0; i < other.devices.size(); ++i)
          if (other.devices[i] == uuid) other.desk.set_context(i, *size);
    }
  }
}

void Limits::measured(Time now) {
  count_all();
  for (auto& [id, limit] : limits_) {
    see_ends(limit, now);
    forget_ended(limit);
    learn(limit);
    take_back_unseen(limit, now);
  }
  std::erase_if(limits_, [](const auto& entry) {
    const LeaseLimit& limit = entry.second;
    return limit.members.empty() && limit.waiting.empty() && limit.granted.empty();
  });
  look_for_escapes();
  for (auto& [id, limit] : limits_) {
    const auto size = limit.desk.devices().front().limit;
    if (limit.desk.ledger(0).excess() > Bytes{}) resize(limit, size);
    limit.desk.tell_others();
    answer_waiting(limit, now);
  }
}

Time Limits::due(Time now) {
  (void)rows_.due(now), (void)context_rows_.due(now);
  for (const ProcessRef process : std::exchange(stale_, {})) rows_.store(process);
  for (auto& [id, limit] : limits_) answer_waiting(limit, now);
  const Time next = begin_early(now);
  return std::min(next, refuse_late(now));
}

}  // namespace sublet::limit
