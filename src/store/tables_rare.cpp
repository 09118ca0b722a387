// SPDX-License-Identifier: Apache-2.0
// The part of Tables that is rarely written, or read only at a start: access tokens, grants, rows of capabilities,
// learned moves and records, and the histories of consumers. Its statements are not kept prepared.
#include "store/tables.h"

#include "store/history.h"

namespace sublet::store {
namespace {

constexpr std::int64_t moves_rows = 100'000;

std::int64_t number(std::uint64_t value) { return static_cast<std::int64_t>(value); }

}  // namespace

Status Tables::put_grants(const Batch& batch) {
  Statement put(*database_, "INSERT INTO grants VALUES (?, ?, ?) ON CONFLICT (uid, consumer) DO NOTHING");
  Statement drop(*database_, "DELETE FROM grants WHERE uid = ? AND consumer = ?");
  for (const core::Grant& grant : batch.grants) {
    Statement& change = grant.given ? put : drop;
    change << std::int64_t{grant.uid} << grant.consumer;
    if (grant.given) change << batch.now.ns;
    if (auto done = change.run(); !done) return done;
  }
  return {};
}

Status Tables::put_rows(const Batch& batch) {
  Statement put(*database_, "INSERT OR REPLACE INTO capability_rows VALUES (?, ?, ?)");
  Statement drop(*database_, "DELETE FROM capability_rows WHERE kind = ? AND key = ?");
  for (const CapabilityRow& row : batch.rows) {
    Statement& change = row.data.empty() ? drop : put;
    change << row.kind << row.key;
    if (!row.data.empty()) change << row.data;
    if (auto done = change.run(); !done) return done;
  }
  return {};
}

Status Tables::put_tokens(const Batch& batch) {
  Statement put(*database_, "INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
  Statement drop(*database_, "DELETE FROM tokens WHERE number = ?");
  for (const AccessToken& token : batch.tokens) {
    put << number(token.number) << std::int64_t{token.uid} << token.user << token.name << token.scope << token.hash
        << token.created_at.ns << (token.expires_at ? std::optional(token.expires_at->ns) : std::nullopt);
    if (auto done = put.run(); !done) return done;
    max_meta_ << "last_token" << number(token.number);
    if (auto done = max_meta_.run(); !done) return done;
  }
  for (const std::uint64_t revoked : batch.revoked) {
    drop << number(revoked);
    if (auto done = drop.run(); !done) return done;
  }
  return {};
}

Status Tables::load_tokens(Loaded& loaded) {
  Statement rows(*database_,
                 "SELECT number, uid, user, name, scope, hash, created_at, expires_at FROM tokens ORDER BY number");
  for (;;) {
    const auto row = rows.step();
    if (!row) return row.error();
    if (!*row) return {};
    AccessToken token;
    token.number = static_cast<std::uint64_t>(rows.integer());
    token.uid = static_cast<std::uint32_t>(rows.integer());
    token.user = rows.text();
    token.name = rows.text();
    token.scope = rows.text();
    token.hash = rows.text();
    token.created_at.ns = rows.integer();
    if (const auto expires = rows.maybe_integer()) token.expires_at = Time{*expires};
    loaded.tokens.push_back(std::move(token));
  }
}

Status Tables::load_grants(Loaded& loaded) {
  Statement rows(*database_, "SELECT uid, consumer FROM grants ORDER BY uid, consumer");
  for (;;) {
    const auto row = rows.step();
    if (!row) return row.error();
    if (!*row) return {};
    core::Grant grant;
    grant.uid = static_cast<std::uint32_t>(rows.integer());
    grant.consumer = rows.text();
    loaded.grants.push_back(std::move(grant));
  }
}

Status Tables::load_rows(Loaded& loaded) {
  Statement rows(*database_, "SELECT kind, key, data FROM capability_rows ORDER BY kind, key");
  for (;;) {
    const auto row = rows.step();
    if (!row) return row.error();
    if (!*row) return {};
    CapabilityRow found;
    found.kind = rows.text();
    found.key = rows.text();
    found.data = rows.text();
    loaded.rows.push_back(std::move(found));
  }
}

Status Tables::put_moves(const Batch& batch) {
  Statement put(*database_,
                "INSERT INTO moves (uid, consumer, device, method, move, bytes, took_ns, at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
  Statement trim(*database_,
                 "DELETE FROM moves WHERE uid = ?1 AND consumer = ?2 AND device = ?3 AND method = ?4 AND move = ?5 "
                 "AND seq <= (SELECT seq FROM moves WHERE uid = ?1 AND consumer = ?2 AND device = ?3 AND method = ?4 "
                 "AND move = ?5 ORDER BY seq DESC LIMIT 1 OFFSET ?6)");
  for (const core::LearnedMove& learned : batch.learned) {
    const auto of_kind = [&learned](Statement& statement) -> Statement& {
      return statement << std::int64_t{learned.consumer.uid} << learned.consumer.name << learned.device
                       << to_string(learned.method) << to_string(learned.move);
    };
    of_kind(put) << learned.sample.bytes.count << std::int64_t{learned.sample.took.count()} << learned.at.ns;
    if (auto done = put.run(); !done) return done;
    of_kind(trim) << static_cast<std::int64_t>(core::moves_kept);
    if (auto done = trim.run(); !done) return done;
  }
  // Users choose the names of consumers, so their number is limited. The consumers that were unseen for longest go
  // first.
  Statement bound(*database_, "DELETE FROM moves WHERE seq <= (SELECT max(seq) FROM moves) - ?");
  bound << std::int64_t{moves_rows};
  return bound.run();
}

Status Tables::put_records(const Batch& batch) {
  Statement put(*database_, "INSERT OR REPLACE INTO pause_records VALUES (?, ?, ?, ?, ?, ?)");
  Statement drop(*database_, "DELETE FROM pause_records WHERE uid = ? AND consumer = ? AND method = ?");
  for (const core::LearnedRecord& learned : batch.records) {
    const core::MethodRecord& record = learned.record;
    Statement& change = record.tries > 0 ? put : drop;
    change << std::int64_t{learned.consumer.uid} << learned.consumer.name << to_string(learned.method);
    if (record.tries > 0) change << std::int64_t{record.outcomes} << std::int64_t{record.tries} << batch.now.ns;
    if (auto done = change.run(); !done) return done;
  }
  return {};
}

Status Tables::load_records(Loaded& loaded) {
  Statement rows(*database_,
                 "SELECT uid, consumer, method, outcomes, tries FROM pause_records ORDER BY uid, consumer, method");
  for (;;) {
    const auto row = rows.step();
    if (!row) return row.error();
    if (!*row) return {};
    core::LearnedRecord learned;
    learned.consumer.uid = static_cast<std::uint32_t>(rows.integer());
    learned.consumer.name = rows.text();
    const auto method = core::parse_pause_method(rows.text());
    const std::int64_t outcomes = rows.integer();
    const std::int64_t tries = rows.integer();
    // As above: a row that this version cannot have written is skipped.
    if (!method || outcomes < 0 || outcomes > UINT32_MAX || tries < 1 || tries > int{core::pauses_kept}) continue;
    learned.method = *method;
    learned.record = {static_cast<std::uint32_t>(outcomes), static_cast<int>(tries)};
    loaded.records.push_back(std::move(learned));
  }
}

Status Tables::load_moves(Loaded& loaded) {
  Statement rows(*database_, "SELECT uid, consumer, device, method, move, bytes, took_ns, at FROM moves ORDER BY seq");
  for (;;) {
    const auto row = rows.step();
    if (!row) return row.error();
    if (!*row) return {};
    core::LearnedMove learned;
    learned.consumer.uid = static_cast<std::uint32_t>(rows.integer());
    learned.consumer.name = rows.text();
    learned.device = rows.text();
    const auto method = core::parse_pause_method(rows.text());
    const auto move = core::parse_move(rows.text());
    learned.sample.bytes.count = rows.integer();
    learned.sample.took = Duration(rows.integer());
    learned.at.ns = rows.integer();
    // A row that this version cannot have written is skipped. The other rows are kept.
    if (!method || !move || learned.sample.bytes < Bytes{} || learned.sample.took < Duration{}) continue;
    learned.method = *method;
    learned.move = *move;
    loaded.moves.push_back(std::move(learned));
  }
}

Status Tables::load_history(Loaded& loaded) {
  Statement rows(*database_,
                 "SELECT uid, consumer, ended_at, run_ns, peak_used_bytes FROM leases INDEXED BY leases_by_consumer "
                 "WHERE state = 'ended' AND consumer <> '' AND nameless = 0 ORDER BY uid, consumer, ended_at");
  core::Consumer consumer;
  ConsumerRuns* runs = nullptr;
  for (;;) {
    const auto row = rows.step();
    if (!row) return row.error();
    if (!*row) return {};
    core::Consumer its{static_cast<std::uint32_t>(rows.integer()), rows.text()};
    const Time ended_at{rows.integer()};
    const auto ns = rows.maybe_integer();
    const auto run = ns ? std::optional(Duration(*ns)) : std::nullopt;
    const Bytes peak{rows.integer()};
    if (!teaches(peak, run)) continue;
    if (runs == nullptr || its != consumer) {
      consumer = std::move(its);
      runs = &loaded.history[consumer];
    }
    learn(*runs, peak, run, ended_at);
  }
}

Status Tables::load_counts() {
  Statement rows(
      *database_,
      "SELECT uid, count(*) FROM leases INDEXED BY leases_by_user_and_end WHERE state = 'ended' GROUP BY uid");
  for (;;) {
    const auto row = rows.step();
    if (!row) return row.error();
    if (!*row) return {};
    const auto uid = static_cast<std::uint32_t>(rows.integer());
    counts_[uid].at_most = static_cast<std::size_t>(rows.integer());
  }
}

}  // namespace sublet::store
