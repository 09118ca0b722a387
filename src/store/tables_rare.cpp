// SPDX-License-Identifier: Apache-2.0
// The part of Tables that is rarely written: access tokens and grants. Its statements are not kept ready.
#include "store/tables.h"

namespace sublet::store {
namespace {

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

}  // namespace sublet::store
