// SPDX-License-Identifier: Apache-2.0
#include "store/memory_store.h"

#include "base/mutants.h"
#include "store/failed_reader.h"
#include "store/history.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <set>

namespace sublet::store {

MemoryStore::MemoryStore(Limits limits, std::function<void()> wake) : limits_(limits), wake_(std::move(wake)) {}

// ------------------------------------------------------------------------------------------------ the store

Result<Loaded> MemoryStore::open(Events events) {
  close();
  events_ = std::move(events);
  open_ = true;
  return tables_.load();
}

void MemoryStore::close() {
  pump();
  open_ = false;
}

void MemoryStore::crash() {
  open_ = false;
  queue_.clear();
  reads_.clear();
}

std::uint64_t MemoryStore::intend(Batch batch) {
  const std::uint64_t sequence = ++last_sequence_;
  if (!open_) return sequence;
  queue_.push_back(std::move(batch));
  if (wake_) wake_();
  return sequence;
}

Backlog MemoryStore::backlog() const { return {queue_.size(), limits_.queued_batches}; }

void MemoryStore::read(std::function<void(Reader&)> work) {
  if (!open_) {
    FailedReader reader(unavailable("the store is closed"));
    work(reader);
    return;
  }
  reads_.push_back(std::move(work));
  if (wake_) wake_();
}

bool MemoryStore::maybe_remembered(std::uint32_t uid, std::string_view key) const {
  if (tables_.answers.contains({uid, std::string(key)})) return true;
  return std::ranges::any_of(queue_, [&](const Batch& batch) {
    return batch.remembered && batch.remembered->uid == uid && batch.remembered->key == key;
  });
}

void MemoryStore::pump(std::size_t at_most) {
  if (!open_ || at_most == 0) return;
  const std::size_t count = std::min(at_most, queue_.size());
  if (count != 0) {
    for (std::size_t i = 0; i < count; ++i) tables_.put(queue_[i], limits_);
    queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(count));
    tables_.prune(limits_);
    if (events_.committed)
      events_.committed(last_sequence_ - (mutant(Mutant::commits_are_told_early) ? 0 : queue_.size()));
  }
  if (!queue_.empty()) return;
  std::vector<std::function<void(Reader&)>> reads;
  reads.swap(reads_);
  for (auto& work : reads) work(tables_);
}

// ------------------------------------------------------------------------------------------------ the tables

void MemoryStore::Tables::put(const Batch& batch, const Limits& limits) {
  for (const core::Lease& lease : batch.changed) {
    assert(lease.id && "a lease without an id");
    if (mutant(Mutant::torn_batches) && &lease != &batch.changed.front()) break;
    Row& row = leases[lease.id];
    row.lease = lease;
    if (lease.ended() && !lease.had_process) row.settled = true;
    last_id = std::max(last_id, lease.id.number);
  }
  for (const LeaseId id : batch.settled) {
    if (const auto found = leases.find(id); found != leases.end() && found->second.lease.ended()) {
      found->second.settled = !mutant(Mutant::settled_comes_back);
    }
  }
  for (const core::Reason& reason : batch.reasons) {
    auto& reasons = reasons_of[reason.lease];
    reasons.push_back(reason);
    if (reasons.size() > limits.reasons_per_lease) reasons.pop_front();
  }
  if (batch.remembered) {
    const AnswerKey key(batch.remembered->uid, batch.remembered->key);
    if (answers.emplace(key, *batch.remembered).second) answers_by_age.push_back(key);
  }
  if (batch.boot_id) boot_id = *batch.boot_id;
  if (batch.clock_offset_ns) clock_offset_ns = batch.clock_offset_ns;
  if (batch.life) life = *batch.life;
  for (const AccessToken& token : batch.tokens) {
    tokens[token.number] = token;
    last_token = std::max(last_token, token.number);
  }
  for (const std::uint64_t number : batch.revoked) tokens.erase(number);
  for (const core::Grant& grant : batch.grants) {
    if (grant.given) grants.emplace(grant.uid, grant.consumer);
    else grants.erase({grant.uid, grant.consumer});
  }
  for (const CapabilityRow& row : batch.rows) {
    if (row.data.empty()) rows.erase({row.kind, row.key});
    else rows[{row.kind, row.key}] = row.data;
  }
  for (const core::LearnedRecord& learned : batch.records) {
    if (learned.record.tries > 0) records[{learned.consumer, learned.method}] = learned;
    else records.erase({learned.consumer, learned.method});
  }
  for (const core::LearnedMove& learned : batch.learned) {
    moves.push_back(learned);
    const auto same = [&](const core::LearnedMove& other) {
      return other.consumer == learned.consumer && other.device == learned.device && other.method == learned.method &&
             other.move == learned.move;
    };
    if (std::ranges::count_if(moves, same) > static_cast<std::ptrdiff_t>(core::moves_kept))
      moves.erase(std::ranges::find_if(moves, same));
  }
  for (const auto& event : batch.events) {
    logged.push_back(*event);
    last_event = std::max(last_event, event->number);
  }
  while (logged.size() > limits.events) logged.pop_front();
  last_time = std::max(last_time, batch.now);
}

void MemoryStore::Tables::forget(LeaseId id) {
  latest_forgotten = std::max(latest_forgotten, leases.at(id).lease.ended_at.value_or(Time{}));
  leases.erase(id);
  reasons_of.erase(id);
}

void MemoryStore::Tables::prune_users(const Limits& limits) {
  std::map<std::uint32_t, std::size_t> ended;
  for (const auto& [id, row] : leases)
    if (row.lease.ended()) ++ended[row.lease.uid];
  for (auto& [uid, left] : ended) {
    if (left <= limits.ended_per_user) continue;
    std::set<std::pair<Time, LeaseId>> oldest;  // leases that ended first come first
    for (const auto& [id, row] : leases)
      if (row.settled && row.lease.uid == uid) oldest.emplace(row.lease.ended_at.value_or(Time{}), id);
    for (; left > limits.ended_per_user && !oldest.empty(); --left) {
      const LeaseId id = oldest.begin()->second;
      oldest.erase(oldest.begin());
      forget(id);
    }
  }
}

void MemoryStore::Tables::prune(const Limits& limits) {
  for (auto entry = leases.begin(); entry != leases.end();) {
    const auto& [id, row] = *entry++;
    if (row.settled && row.lease.ended_at && *row.lease.ended_at < last_time - limits.keep_ended) forget(id);
  }
  prune_users(limits);
  while (!answers_by_age.empty() && (answers_by_age.size() > limits.remembered_rows ||
                                     answers.at(answers_by_age.front()).at < last_time - limits.keep_remembered)) {
    answers.erase(answers_by_age.front());
    answers_by_age.pop_front();
  }
}

Loaded MemoryStore::Tables::load() const {
  Loaded loaded;
  loaded.last_id = last_id;
  loaded.last_time = last_time;
  loaded.boot_id = boot_id;
  loaded.clock_offset_ns = clock_offset_ns;
  loaded.last_event = last_event;
  loaded.life = life;
  for (const auto& [number, token] : tokens) loaded.tokens.push_back(token);
  loaded.last_token = last_token;
  for (const auto& [uid, consumer] : grants) loaded.grants.push_back({.uid = uid, .consumer = consumer});
  for (const auto& [key, data] : rows) loaded.rows.push_back({key.first, key.second, data});
  loaded.moves = moves;
  for (const auto& [key, record] : records) loaded.records.push_back(record);
  std::vector<const core::Lease*> ended;
  for (const auto& [id, row] : leases) {
    if (!row.settled) loaded.leases.push_back(row.lease);
    if (row.lease.ended() && !row.lease.consumer.empty() && !row.lease.nameless) ended.push_back(&row.lease);
  }
  std::ranges::stable_sort(ended, {}, [](const core::Lease* lease) { return lease->ended_at; });
  for (const core::Lease* lease : ended) {
    const auto run = run_of(*lease);
    if (!teaches(lease->peak_used, run)) continue;
    learn(loaded.history[lease->whose()], lease->peak_used, run, lease->ended_at.value_or(Time{}));
  }
  return loaded;
}

Result<std::optional<core::Lease>> MemoryStore::Tables::lease(LeaseId id) {
  const auto found = leases.find(id);
  if (found == leases.end()) return std::optional<core::Lease>();
  return std::optional(found->second.lease);
}

Result<std::optional<core::Lease>> MemoryStore::Tables::by_tag(std::string_view tag, std::optional<std::uint32_t> uid) {
  for (auto row = leases.rbegin(); row != leases.rend() && !tag.empty(); ++row) {
    const core::Lease& lease = row->second.lease;
    if (lease.tag == tag && (!uid || lease.uid == *uid)) return std::optional(lease);
  }
  return std::optional<core::Lease>();
}

Result<std::vector<core::Lease>> MemoryStore::Tables::ended(std::size_t limit, std::optional<std::uint32_t> uid,
                                                            std::optional<EndedBefore> before) {
  std::vector<core::Lease> found;
  for (const auto& [id, row] : leases) {
    const auto place = std::pair(row.lease.ended_at.value_or(Time{}), id);
    if (before && place >= std::pair(before->ended_at, before->lease)) continue;
    if (row.lease.ended() && (!uid || row.lease.uid == *uid)) found.push_back(row.lease);
  }
  std::ranges::stable_sort(found, [](const core::Lease& a, const core::Lease& b) {
    return std::pair(a.ended_at, a.id) > std::pair(b.ended_at, b.id);
  });
  if (found.size() > limit) found.resize(limit);
  return found;
}

Result<std::vector<core::Reason>> MemoryStore::Tables::reasons(LeaseId id) {
  const auto found = reasons_of.find(id);
  if (found == reasons_of.end()) return std::vector<core::Reason>();
  return std::vector<core::Reason>(found->second.begin(), found->second.end());
}

Result<std::optional<Remembered>> MemoryStore::Tables::remembered(std::uint32_t uid, std::string_view key) {
  const auto found = answers.find({uid, std::string(key)});
  if (found == answers.end()) return std::optional<Remembered>();
  return std::optional(found->second);
}

Result<Time> MemoryStore::Tables::forgotten() { return latest_forgotten; }

Result<std::vector<LoggedEvent>> MemoryStore::Tables::events(std::uint64_t after, std::size_t limit) {
  std::vector<LoggedEvent> found;
  for (const LoggedEvent& event : logged) {
    if (event.number > after && found.size() < limit) found.push_back(event);
  }
  return found;
}

}  // namespace sublet::store
