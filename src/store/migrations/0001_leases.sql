-- SPDX-License-Identifier: Apache-2.0
-- Leases and the reasons of what was decided about them. Times and durations are nanoseconds, sizes are bytes; an enum
-- is its word in the API, so that the file can be read by people and a new word needs no migration.

CREATE TABLE meta (
  key   TEXT NOT NULL PRIMARY KEY,   -- last_id, last_time, boot_id
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE leases (
  id                 INTEGER NOT NULL PRIMARY KEY,
  generation         INTEGER NOT NULL,
  state              TEXT    NOT NULL,
  end_reason         TEXT    NOT NULL,
  uid                INTEGER NOT NULL,
  user               TEXT    NOT NULL,
  tenant             TEXT    NOT NULL,
  consumer           TEXT    NOT NULL,
  tag                TEXT    NOT NULL,
  command            TEXT    NOT NULL,
  tier               TEXT    NOT NULL,
  priority           INTEGER NOT NULL,
  pausable           TEXT    NOT NULL,
  vram_bytes         INTEGER NOT NULL,
  wanted_device      TEXT    NOT NULL,
  ttl_ns             INTEGER,
  owner_kind         TEXT    NOT NULL,
  owner_pid          INTEGER NOT NULL,
  owner_start_ticks  INTEGER NOT NULL,
  keeper_pid         INTEGER NOT NULL,
  keeper_start_ticks INTEGER NOT NULL,
  exit_record        TEXT    NOT NULL,
  token              TEXT    NOT NULL,
  device             TEXT    NOT NULL,
  had_process        INTEGER NOT NULL,
  lapsed_offers      INTEGER NOT NULL,
  exit_status        INTEGER,
  stop_requested     INTEGER NOT NULL,
  created_at         INTEGER NOT NULL,
  queued_at          INTEGER NOT NULL,
  granted_at         INTEGER,
  offer_ends_at      INTEGER,
  expires_at         INTEGER,
  unheld_since       INTEGER,
  stop_at            INTEGER,
  ended_at           INTEGER,
  peak_used_bytes    INTEGER NOT NULL,
  run_ns             INTEGER,           -- from grant to end, if it came to its own good end
  settled            INTEGER NOT NULL   -- 1: ended and measured gone; only history from then on
) STRICT;

-- What a restart loads, without reading the history.
CREATE INDEX leases_unsettled ON leases (id) WHERE settled = 0;
CREATE INDEX leases_by_end ON leases (ended_at) WHERE state = 'ended';
CREATE INDEX leases_by_user_and_end ON leases (uid, ended_at) WHERE state = 'ended';
CREATE INDEX leases_by_tag ON leases (tag, uid, id) WHERE tag <> '';
-- Holds all that a consumer's history is made of, so that loading it reads no row of the table.
CREATE INDEX leases_by_consumer ON leases (consumer, ended_at, run_ns, peak_used_bytes)
  WHERE state = 'ended' AND consumer <> '';

CREATE TABLE reasons (
  lease INTEGER NOT NULL,
  seq   INTEGER NOT NULL,   -- grows by one for each reason of a lease
  at    INTEGER NOT NULL,
  code  TEXT    NOT NULL,
  text  TEXT    NOT NULL,
  PRIMARY KEY (lease, seq)
) STRICT, WITHOUT ROWID;
