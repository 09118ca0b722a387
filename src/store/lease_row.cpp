// SPDX-License-Identifier: Apache-2.0
#include "store/lease_row.h"

#include "store/history.h"
#include "store/lease_document.h"

#include <fmt/format.h>

namespace sublet::store {
namespace {

std::int64_t number(std::uint64_t value) { return static_cast<std::int64_t>(value); }

}  // namespace

std::string upsert_lease_sql() {
  return "INSERT INTO leases (id, state, uid, consumer, nameless, tag, ended_at, peak_used_bytes, document, run_ns, "
         "settled) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET state = excluded.state, "
         "uid = excluded.uid, consumer = excluded.consumer, nameless = excluded.nameless, tag = excluded.tag, "
         "ended_at = excluded.ended_at, peak_used_bytes = excluded.peak_used_bytes, document = excluded.document, "
         "run_ns = excluded.run_ns, settled = max(settled, excluded.settled)";
}

// Indices depend on the columns that are left out, so the update would rewrite the indices. Their values do not change
// while the lease lives, or are written with its end.
std::string update_living_sql() {
  return "UPDATE leases SET state = ?2, uid = ?3, tag = ?6, document = ?9 "
         "WHERE id = ?1 AND state <> 'ended' AND ?11 = 0";
}

void bind_lease(Statement& statement, const core::Lease& lease) {
  const auto ended_at = lease.ended_at ? std::optional(lease.ended_at->ns) : std::nullopt;
  const auto run = run_of(lease);
  statement << number(lease.id.number) << to_string(lease.state) << std::int64_t{lease.uid} << lease.consumer
            << std::int64_t{lease.nameless} << lease.tag << ended_at << lease.peak_used.count;
  statement.copy(encode_lease(lease));
  statement << (run ? std::optional(std::int64_t{run->count()}) : std::nullopt)
            // Without a process there is nothing to measure: settled at once.
            << std::int64_t{lease.ended() && !lease.had_process};
}

std::optional<core::Lease> read_lease(Statement& row) { return decode_lease(row.text()); }

}  // namespace sublet::store
