// SPDX-License-Identifier: Apache-2.0
#include "store/tables.h"

#include "base/mutants.h"
#include "store/lease_row.h"
#include "store/reason_column.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <iterator>

namespace sublet::store {
namespace {

constexpr std::size_t last_reasons_kept = 16384;  // 1 MiB at most

std::string select_leases(std::string_view where) { return fmt::format("SELECT document FROM leases WHERE {}", where); }

std::int64_t number(std::uint64_t value) { return static_cast<std::int64_t>(value); }

}  // namespace

// SQL texts have placeholders only: no value ever becomes part of an SQL text.
Tables::Tables(std::unique_ptr<Database> database, const Limits& limits)
    : database_(std::move(database)),
      limits_(limits),
      begin_(*database_, "BEGIN IMMEDIATE"),
      commit_(*database_, "COMMIT"),
      put_lease_(*database_, upsert_lease_sql()),
      update_living_(*database_, update_living_sql()),
      settle_(*database_, "UPDATE leases SET settled = 1 WHERE id = ? AND state = 'ended'"),
      last_reason_(*database_, "SELECT coalesce(max(seq), 0) FROM reasons WHERE lease = ?"),
      put_reason_(*database_, "INSERT INTO reasons VALUES (?, ?, ?, ?, ?)"),
      trim_reasons_(*database_, "DELETE FROM reasons WHERE lease = ? AND seq <= ?"),
      put_answer_(*database_,
                  "INSERT INTO remembered (uid, key, fingerprint, status, body, at) VALUES (?, ?, ?, ?, ?, ?) "
                  "ON CONFLICT (uid, key) DO NOTHING"),
      max_meta_(*database_,
                "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = max(value, excluded.value)"),
      set_meta_(*database_, "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"),
      old_leases_(*database_,
                  "SELECT id, uid, ended_at FROM leases WHERE state = 'ended' AND settled = 1 AND ended_at < ? "
                  "ORDER BY ended_at LIMIT ?"),
      count_ended_(*database_,
                   "SELECT count(*) FROM leases INDEXED BY leases_by_user_and_end WHERE state = 'ended' AND uid = ?"),
      oldest_of_user_(
          *database_,
          "SELECT id, ended_at FROM leases INDEXED BY leases_by_user_and_end WHERE state = 'ended' AND uid = ? AND "
          "settled = 1 ORDER BY ended_at LIMIT ?"),
      drop_lease_(*database_, "DELETE FROM leases WHERE id = ?"),
      drop_reasons_(*database_, "DELETE FROM reasons WHERE lease = ?"),
      old_answers_(*database_, "SELECT number, uid, key, at FROM remembered ORDER BY number LIMIT ?"),
      drop_answer_(*database_, "DELETE FROM remembered WHERE number = ?"),
      answer_bounds_(*database_,
                     "SELECT coalesce((SELECT max(number) FROM remembered) - "
                     "(SELECT min(number) FROM remembered) + 1, 0)"),
      lease_by_id_(*database_, select_leases("id = ?")),
      lease_by_tag_(*database_, select_leases("tag = ? AND tag <> '' ORDER BY id DESC LIMIT 1")),
      lease_by_tag_and_user_(*database_, select_leases("tag = ? AND tag <> '' AND uid = ? ORDER BY id DESC LIMIT 1")),
      ended_(*database_,
             select_leases("state = 'ended' AND (ended_at, id) < (?, ?) ORDER BY ended_at DESC, id DESC LIMIT ?")),
      ended_of_user_(*database_, select_leases("state = 'ended' AND uid = ? AND (ended_at, id) < (?, ?) "
                                               "ORDER BY ended_at DESC, id DESC LIMIT ?")),
      reasons_(*database_, "SELECT at, kind, args FROM reasons WHERE lease = ? ORDER BY seq"),
      answer_(*database_, "SELECT fingerprint, status, body, at FROM remembered WHERE uid = ? AND key = ?"),
      forgotten_(*database_, "SELECT coalesce((SELECT value FROM meta WHERE key = 'forgotten'), 0)"),
      put_event_(*database_, "INSERT OR REPLACE INTO events (number, type, lease, data) VALUES (?, ?, ?, ?)"),
      drop_events_(*database_, "DELETE FROM events WHERE number < ?"),
      events_(*database_, "SELECT number, type, lease, data FROM events WHERE number > ? ORDER BY number LIMIT ?"),
      first_event_(*database_, "SELECT coalesce(min(number), 0) FROM events") {}

// ------------------------------------------------------------------------------------------------ writing

Status Tables::begin() { return begin_.run(); }

Status Tables::put(const Batch& batch, std::vector<AnswerKey>& dropped) {
  for (const core::Lease& lease : batch.changed) {
    assert(lease.id && "a lease without an id");
    if (mutant(Mutant::torn_batches) && &lease != &batch.changed.front()) break;
    if (auto done = put_lease(lease); !done) return done;
    if (lease.ended()) ++counts_[lease.uid].at_most;
  }
  for (const LeaseId id : batch.settled) {
    settle_ << (mutant(Mutant::settled_comes_back) ? 0 : number(id.number));
    if (auto done = settle_.run(); !done) return done;
  }
  for (const core::Reason& reason : batch.reasons) {
    if (auto done = put_reason(reason); !done) return done;
  }
  if (batch.remembered) {
    if (auto done = put_answer(*batch.remembered, dropped); !done) return done;
  }
  if (!batch.events.empty()) {
    if (auto done = put_events(batch); !done) return done;
  }
  if (!batch.learned.empty()) {
    if (auto done = put_moves(batch); !done) return done;
  }
  if (!batch.tokens.empty() || !batch.revoked.empty()) {
    if (auto done = put_tokens(batch); !done) return done;
  }
  if (!batch.records.empty()) {
    if (auto done = put_records(batch); !done) return done;
  }
  if (!batch.rows.empty()) {
    if (auto done = put_rows(batch); !done) return done;
  }
  if (!batch.grants.empty()) {
    if (auto done = put_grants(batch); !done) return done;
  }
  return put_meta(batch);
}

// Updates a living lease that has a row. All other leases use the general statement.
Status Tables::put_lease(const core::Lease& lease) {
  if (!lease.ended() && lease.id.number <= newest_id_) {
    bind_lease(update_living_, lease);
    if (auto done = update_living_.run(); !done || database_->changed_rows() > 0) return done;
  }
  newest_id_ = std::max(newest_id_, lease.id.number);
  bind_lease(put_lease_, lease);
  return put_lease_.run();
}

Status Tables::put_events(const Batch& batch) {
  for (const auto& event : batch.events) {
    put_event_ << number(event->number) << event->type << number(event->lease.number) << event->data;
    if (auto done = put_event_.run(); !done) return done;
  }
  if (oldest_event_ == 0) {
    if (const auto row = first_event_.step(); !row) return row.error();
    oldest_event_ = static_cast<std::uint64_t>(first_event_.integer());
    first_event_.reset();
  }
  // Many events are deleted at a time, because each deletion costs a search.
  const std::uint64_t newest = batch.events.back()->number;
  if (newest - oldest_event_ < limits_.events + limits_.events / 8) return {};
  oldest_event_ = newest - limits_.events + 1;
  drop_events_ << number(oldest_event_);
  return drop_events_.run();
}

// A statement of its own. If the INSERT read its own table, SQLite would use a temporary table and allocate 100 KiB
// each time. This would cost more than the rest of a transition.
Result<std::int64_t> Tables::last_reason(std::int64_t lease) {
  if (const auto known = last_reasons_.find(lease); known != last_reasons_.end()) return known->second;
  last_reason_ << lease;
  if (const auto row = last_reason_.step(); !row) return row.error();
  const std::int64_t last = last_reason_.integer();
  last_reason_.reset();
  return last;
}

Status Tables::put_reason(const core::Reason& reason) {
  const std::int64_t lease = number(reason.lease.number);
  const auto last = last_reason(lease);
  if (!last) return last.error();
  const std::int64_t seq = *last + 1;
  if (last_reasons_.size() >= last_reasons_kept) last_reasons_.clear();
  last_reasons_[lease] = seq;
  put_reason_ << number(reason.lease.number) << seq << reason.at.ns << to_string(reason.kind);
  put_reason_.copy(encode_args(reason.args));
  if (auto done = put_reason_.run(); !done) return done;
  const auto kept = static_cast<std::int64_t>(limits_.reasons_per_lease);
  if (seq <= kept) return {};
  trim_reasons_ << number(reason.lease.number) << seq - kept;
  return trim_reasons_.run();
}

Status Tables::put_answer(const Remembered& answer, std::vector<AnswerKey>& dropped) {
  put_answer_ << std::int64_t{answer.uid} << answer.key << answer.fingerprint << std::int64_t{answer.status}
              << answer.body << answer.at.ns;
  if (auto done = put_answer_.run(); !done) return done;
  if (database_->changed_rows() == 0) dropped.emplace_back(answer.uid, answer.key);
  return {};
}

// commit() writes the highest number and time of a transaction once.
Status Tables::put_meta(const Batch& batch) {
  for (const core::Lease& lease : batch.changed) last_id_ = std::max(last_id_, lease.id.number);
  last_time_ = std::max(last_time_.value_or(batch.now), batch.now);
  if (batch.boot_id) {
    set_meta_ << "boot_id" << *batch.boot_id;
    if (auto done = set_meta_.run(); !done) return done;
  }
  if (batch.clock_offset_ns) {
    set_meta_ << "clock_offset" << *batch.clock_offset_ns;
    if (auto done = set_meta_.run(); !done) return done;
  }
  if (!batch.life) return {};
  set_meta_ << "life" << *batch.life;
  return set_meta_.run();
}

Status Tables::commit() {
  if (last_id_ != 0) {
    max_meta_ << "last_id" << number(last_id_);
    if (auto done = max_meta_.run(); !done) return done;
  }
  if (last_time_) {
    max_meta_ << "last_time" << last_time_->ns;
    if (auto done = max_meta_.run(); !done) return done;
  }
  last_id_ = 0;
  last_time_.reset();
  return commit_.run();
}

// ------------------------------------------------------------------------------------------------ pruning

Result<bool> Tables::prune(Time now, std::size_t slice, std::vector<AnswerKey>& dropped) {
  auto leases = prune_leases(now - limits_.keep_ended, slice);
  if (!leases) return leases;
  auto many = prune_users(slice);
  if (!many) return many;
  auto answers = prune_answers(now - limits_.keep_remembered, slice, dropped);
  if (!answers) return answers;
  return *leases || *many || *answers;
}

Result<bool> Tables::prune_leases(Time before, std::size_t slice) {
  Dropping old;
  old_leases_ << before.ns << number(slice);
  for (;;) {
    const auto row = old_leases_.step();
    if (!row) return row.error();
    if (!*row) break;
    old.ids.push_back(old_leases_.integer());
    Ended& of_user = counts_[static_cast<std::uint32_t>(old_leases_.integer())];
    old.latest_end = old_leases_.integer();  // leases come in the order of their ends
    if (of_user.at_most > 0) --of_user.at_most;
    if (of_user.too_many > 0) --of_user.too_many;
  }
  return drop_leases(old);
}

Result<bool> Tables::drop_leases(const Dropping& dropping) {
  for (const std::int64_t id : dropping.ids) {
    drop_lease_ << id;
    if (auto done = drop_lease_.run(); !done) return done.error();
    last_reasons_.erase(id);
    drop_reasons_ << id;
    if (auto done = drop_reasons_.run(); !done) return done.error();
  }
  if (dropping.ids.empty()) return false;
  max_meta_ << "forgotten" << dropping.latest_end;
  if (auto done = max_meta_.run(); !done) return done.error();
  return true;
}

// A lease may be written more than once after its end, so the counter is an upper bound. When it is an eighth too high,
// the table is counted, which walks over all leases of the user. The next count comes after the surplus was removed.
Status Tables::count_ended(std::uint32_t uid, Ended& of_user) {
  if (of_user.too_many > 0 || of_user.at_most <= limits_.ended_per_user + limits_.ended_per_user / 8) return {};
  count_ended_ << std::int64_t{uid};
  if (const auto row = count_ended_.step(); !row) return row.error();
  of_user.at_most = static_cast<std::size_t>(count_ended_.integer());
  count_ended_.reset();
  of_user.too_many = of_user.at_most - std::min(of_user.at_most, limits_.ended_per_user);
  return {};
}

Result<bool> Tables::prune_users(std::size_t slice) {
  std::size_t left = slice;
  for (auto& [uid, of_user] : counts_) {
    if (left == 0) break;
    if (auto counted = count_ended(uid, of_user); !counted) return counted.error();
    if (of_user.too_many == 0) continue;
    const std::size_t wanted = std::min(of_user.too_many, left);
    Dropping oldest;
    oldest_of_user_ << std::int64_t{uid} << number(wanted);
    for (;;) {
      const auto row = oldest_of_user_.step();
      if (!row) return row.error();
      if (!*row) break;
      oldest.ids.push_back(oldest_of_user_.integer());
      oldest.latest_end = oldest_of_user_.integer();
    }
    if (auto dropped = drop_leases(oldest); !dropped) return dropped;
    const std::size_t gone = oldest.ids.size();
    left -= gone;
    of_user.at_most -= gone;
    of_user.too_many -= gone;
    // Unsettled leases stay. The next count comes after another eighth.
    if (gone < wanted) of_user = {limits_.ended_per_user, 0};
  }
  return left < slice;
}

Result<bool> Tables::prune_answers(Time before, std::size_t slice, std::vector<AnswerKey>& dropped) {
  // Numbers grow by one, and the oldest go first. So the difference of the ends is the count.
  const auto bounds = answer_bounds_.step();
  if (!bounds) return bounds.error();
  const std::int64_t excess = answer_bounds_.integer() - number(limits_.remembered_rows);
  answer_bounds_.reset();

  std::vector<std::int64_t> numbers;
  old_answers_ << number(slice);
  for (;;) {
    const auto row = old_answers_.step();
    if (!row) return row.error();
    if (!*row) break;
    const std::int64_t answer = old_answers_.integer();
    const auto uid = static_cast<std::uint32_t>(old_answers_.integer());
    AnswerKey key(uid, old_answers_.text());
    const bool too_old = old_answers_.integer() < before.ns;
    if (!too_old && std::ssize(numbers) >= excess) {
      old_answers_.reset();
      break;
    }
    numbers.push_back(answer);
    dropped.push_back(std::move(key));
  }
  for (const std::int64_t answer : numbers) {
    drop_answer_ << answer;
    if (auto done = drop_answer_.run(); !done) return done.error();
  }
  return !numbers.empty();
}

// ------------------------------------------------------------------------------------------------ loading

Result<Loaded> Tables::load() {
  Loaded loaded;
  Statement unsettled(*database_, select_leases("settled = 0 ORDER BY id"));
  auto found = leases(unsettled);
  if (!found) return found.error();
  loaded.leases = std::move(*found);
  const auto not_later = [](const core::Lease& before, const core::Lease& lease) { return before.id >= lease.id; };
  if (const auto wrong = std::ranges::adjacent_find(loaded.leases, not_later); wrong != loaded.leases.end())
    return database_->fail_undecodable(
        fmt::format("the table 'leases' has {} under another number", to_string(std::next(wrong)->id)));
  if (auto done = load_history(loaded); !done) return done.error();
  if (auto done = load_moves(loaded); !done) return done.error();
  if (auto done = load_records(loaded); !done) return done.error();
  if (auto done = load_counts(); !done) return done.error();
  if (auto done = load_meta(loaded); !done) return done.error();
  if (auto done = load_last_event(loaded); !done) return done.error();
  if (auto done = load_tokens(loaded); !done) return done.error();
  if (auto done = load_grants(loaded); !done) return done.error();
  if (auto done = load_rows(loaded); !done) return done.error();
  for (const core::Lease& lease : loaded.leases) loaded.last_id = std::max(loaded.last_id, lease.id.number);
  return loaded;
}

Status Tables::load_meta(Loaded& loaded) {
  Statement rows(*database_, "SELECT key, value FROM meta");
  for (;;) {
    const auto row = rows.step();
    if (!row) return row.error();
    if (!*row) return {};
    const std::string key = rows.text();
    if (key == "last_id" && !mutant(Mutant::last_id_of_the_living))
      newest_id_ = loaded.last_id = static_cast<std::uint64_t>(rows.integer());
    else if (key == "last_time" && !mutant(Mutant::times_are_not_kept)) loaded.last_time.ns = rows.integer();
    else if (key == "boot_id") loaded.boot_id = rows.text();
    else if (key == "clock_offset") loaded.clock_offset_ns = rows.integer();
    else if (key == "life") loaded.life = rows.text();
    else if (key == "last_token") loaded.last_token = static_cast<std::uint64_t>(rows.integer());
  }
}

Status Tables::load_last_event(Loaded& loaded) {
  Statement newest(*database_, "SELECT coalesce(max(number), 0) FROM events");
  const auto row = newest.step();
  if (!row) return row.error();
  loaded.last_event = mutant(Mutant::events_count_anew) ? 0 : static_cast<std::uint64_t>(newest.integer());
  return {};
}

Status Tables::each_answer_key(const std::function<void(std::uint32_t, std::string_view)>& visit) {
  Statement rows(*database_, "SELECT uid, key FROM remembered INDEXED BY remembered_by_key");
  for (;;) {
    const auto row = rows.step();
    if (!row) return row.error();
    if (!*row) return {};
    const auto uid = static_cast<std::uint32_t>(rows.integer());
    visit(uid, rows.text());
  }
}

// ------------------------------------------------------------------------------------------------ reading

Result<std::vector<core::Lease>> Tables::leases(Statement& rows) {
  std::vector<core::Lease> found;
  for (;;) {
    const auto row = rows.step();
    if (!row) return row.error();
    if (!*row) return found;
    auto lease = read_lease(rows);
    if (!lease) {
      rows.reset();
      return database_->fail_undecodable(fmt::format("row {} of the table 'leases' is invalid", found.size() + 1));
    }
    found.push_back(std::move(*lease));
  }
}

Result<std::optional<core::Lease>> Tables::one_lease(Statement& rows) {
  auto found = leases(rows);
  if (!found) return found.error();
  if (found->empty()) return std::optional<core::Lease>();
  return std::optional(std::move(found->front()));
}

Result<std::optional<core::Lease>> Tables::lease(LeaseId id) {
  lease_by_id_ << number(id.number);
  return one_lease(lease_by_id_);
}

Result<std::optional<core::Lease>> Tables::by_tag(std::string_view tag, std::optional<std::uint32_t> uid) {
  if (!uid) {
    lease_by_tag_ << tag;
    return one_lease(lease_by_tag_);
  }
  lease_by_tag_and_user_ << tag << std::int64_t{*uid};
  return one_lease(lease_by_tag_and_user_);
}

Result<std::vector<core::Lease>> Tables::ended(std::size_t limit, std::optional<std::uint32_t> uid,
                                               std::optional<EndedBefore> before) {
  const EndedBefore place = before.value_or(EndedBefore{Time::never(), LeaseId{INT64_MAX}});
  if (!uid) {
    ended_ << place.ended_at.ns << number(place.lease.number) << number(limit);
    return leases(ended_);
  }
  ended_of_user_ << std::int64_t{*uid} << place.ended_at.ns << number(place.lease.number) << number(limit);
  return leases(ended_of_user_);
}

Result<std::vector<core::Reason>> Tables::reasons(LeaseId id) {
  std::vector<core::Reason> found;
  reasons_ << number(id.number);
  for (;;) {
    const auto row = reasons_.step();
    if (!row) return row.error();
    if (!*row) return found;
    const Time at{reasons_.integer()};
    const std::string kind = reasons_.text(), args = reasons_.text();
    auto reason = decode_reason(kind, args);
    if (!reason) return database_->fail_undecodable(fmt::format("a reason of {} makes no sense", to_string(id)));
    reason->lease = id;
    reason->at = at;
    found.push_back(std::move(*reason));
  }
}

Result<std::optional<Remembered>> Tables::remembered(std::uint32_t uid, std::string_view key) {
  answer_ << std::int64_t{uid} << key;
  const auto row = answer_.step();
  if (!row) return row.error();
  if (!*row) return std::optional<Remembered>();
  Remembered found;
  found.uid = uid;
  found.key = key;
  found.fingerprint = answer_.text();
  found.status = static_cast<int>(answer_.integer());
  found.body = answer_.text();
  found.at.ns = answer_.integer();
  answer_.reset();
  return std::optional(std::move(found));
}

Result<Time> Tables::forgotten() {
  if (const auto row = forgotten_.step(); !row) return row.error();
  const Time latest{forgotten_.integer()};
  forgotten_.reset();
  return latest;
}

Result<std::vector<LoggedEvent>> Tables::events(std::uint64_t after, std::size_t limit) {
  std::vector<LoggedEvent> found;
  events_ << number(after) << number(limit);
  for (;;) {
    const auto row = events_.step();
    if (!row) return row.error();
    if (!*row) return found;
    LoggedEvent event;
    event.number = static_cast<std::uint64_t>(events_.integer());
    event.type = events_.text();
    event.lease.number = static_cast<std::uint64_t>(events_.integer());
    event.data = events_.text();
    found.push_back(std::move(event));
  }
}

}  // namespace sublet::store
