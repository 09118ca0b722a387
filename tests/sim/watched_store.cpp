// SPDX-License-Identifier: Apache-2.0
#include "watched_store.h"

#include "lease/describe.h"

#include <fmt/format.h>

namespace sublet::sim {

const core::Lease* WatchedStore::find(LeaseId id) const {
  const auto found = durable_.find(id);
  return found == durable_.end() ? nullptr : &found->second.lease;
}

void WatchedStore::apply(const Pending& batch, Rows& rows) {
  for (const core::Lease& lease : batch.changed) {
    Row& row = rows[lease.id];
    row.lease = lease;
    if (lease.ended() && !lease.had_process) row.settled = true;
  }
  for (const LeaseId id : batch.settled) {
    if (const auto found = rows.find(id); found != rows.end() && found->second.lease.ended()) {
      found->second.settled = true;
    }
  }
}

void WatchedStore::apply(const Pending& batch, CapabilityRows& rows) {
  for (const store::CapabilityRow& row : batch.rows) {
    if (row.data.empty()) rows.erase({row.kind, row.key});
    else rows[{row.kind, row.key}] = row.data;
  }
}

std::string WatchedStore::row(std::string_view kind, std::string_view key) const {
  const auto found = durable_rows_.find({std::string(kind), std::string(key)});
  return found == durable_rows_.end() ? std::string() : found->second;
}

std::uint64_t WatchedStore::intend(store::Batch batch) {
  seen_(batch);
  Pending pending{0,         batch.changed, batch.settled, batch.events.empty() ? 0 : batch.events.back()->number,
                  batch.now, batch.rows};
  for (const core::Lease& lease : batch.changed) highest_id_ = std::max(highest_id_, lease.id.number);
  last_time_ = std::max(last_time_, batch.now);
  for (const core::Reason& reason : batch.reasons) verdict_.mix(core::text_of(reason));
  pending.sequence = inner_.intend(std::move(batch));
  pending_.push_back(std::move(pending));
  return pending_.back().sequence;
}

void WatchedStore::note(const core::Lease& lease) {
  if (lease.ended()) ended_.insert(lease.id);
  if (lease.command.empty()) return;
  const LeaseId made = made_by_.emplace(lease.command, lease.id).first->second;
  verdict_.expect(made == lease.id, "submitted-twice", [&] {
    return fmt::format("{} has made {} and {}", lease.command, to_string(made), to_string(lease.id));
  });
}

void WatchedStore::committed(std::uint64_t sequence) {
  durable_sequence_ = std::max(durable_sequence_, sequence);
  for (; !pending_.empty() && pending_.front().sequence <= sequence; pending_.pop_front()) {
    const Pending& batch = pending_.front();
    apply(batch, durable_);
    apply(batch, durable_rows_);
    last_event_ = std::max(last_event_, batch.last_event);
    durable_time_ = std::max(durable_time_, batch.now);
    for (const core::Lease& lease : batch.changed) note(lease);
    for (const core::Lease& lease : batch.changed) {
      const auto row = durable_.find(lease.id);
      if (row != durable_.end() && row->second.settled) durable_.erase(row);
    }
    for (const LeaseId id : batch.settled) {
      const auto row = durable_.find(id);
      if (row != durable_.end() && row->second.settled) durable_.erase(row);
    }
  }
}

Result<store::Loaded> WatchedStore::open(store::Events events) {
  events_ = std::move(events);
  auto loaded = inner_.open({[this](std::uint64_t sequence) {
                               committed(sequence);
                               if (events_.committed) events_.committed(sequence);
                             },
                             [this](Error error) {
                               if (events_.failed) events_.failed(std::move(error));
                             }});
  if (loaded) {
    check_loaded(*loaded);
    if (opened_) opened_(loaded->last_time);
  }
  return loaded;
}

std::string WatchedStore::difference(const Rows& rows, const CapabilityRows& others, const store::Loaded& all) {
  const std::vector<core::Lease>& loaded = all.leases;
  std::size_t live = 0;
  for (const auto& [id, row] : rows) live += !row.settled;
  if (live != loaded.size()) return fmt::format("{} leases instead of {}", loaded.size(), live);
  for (const core::Lease& lease : loaded) {
    const auto row = rows.find(lease.id);
    if (row == rows.end() || row->second.settled) return to_string(lease.id) + " should not be there";
    if (lease == row->second.lease) continue;
    const std::string is = core::describe(lease), was = core::describe(row->second.lease);
    if (is != was) return fmt::format("'{}' instead of '{}'", is, was);
  }
  if (others.size() != all.rows.size())
    return fmt::format("{} rows of capabilities instead of {}", all.rows.size(), others.size());
  for (const store::CapabilityRow& row : all.rows) {
    const auto found = others.find({row.kind, row.key});
    if (found == others.end() || found->second != row.data)
      return fmt::format("{} {} is {}", row.kind, row.key, row.data);
  }
  return {};
}

// Everything that was told, and then all, some or nothing of the rest, in its order and each batch whole.
void WatchedStore::check_loaded(const store::Loaded& loaded) {
  Rows rows = durable_;
  CapabilityRows others = durable_rows_;
  std::string first = difference(rows, others, loaded), wrong = first;
  std::size_t kept = 0;
  while (!wrong.empty() && kept < pending_.size()) {
    apply(pending_[kept], others);
    apply(pending_[kept++], rows);
    wrong = difference(rows, others, loaded);
  }
  verdict_.expect(wrong.empty(), "store-prefix", [&] {
    return fmt::format("the store holds no prefix of what it was given: {} ({} batches were uncertain)", first,
                       pending_.size());
  });
  verdict_.expect(loaded.last_event >= last_event_, "events-lost", [&] {
    return fmt::format("event {} was durable, and the newest is {}", last_event_, loaded.last_event);
  });
  verdict_.expect(loaded.last_time >= durable_time_, "time-lost", [] { return std::string("time starts earlier"); });
  verdict_.expect(loaded.last_time <= last_time_, "time-from-nowhere", [] { return std::string("a later time"); });
  last_event_ = loaded.last_event;
  pending_.clear();
  durable_rows_ = std::move(others);
  durable_.clear();
  for (auto& [id, row] : rows) {
    note(row.lease);
    if (!row.settled) durable_.emplace(id, std::move(row));
  }
}

}  // namespace sublet::sim
