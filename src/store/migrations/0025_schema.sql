-- SPDX-License-Identifier: Apache-2.0
-- The schema of the first release. Times and durations are nanoseconds, sizes are bytes. An enum is its word in the API,
-- so that the file can be read by people and a new word needs no migration.

CREATE TABLE meta (
  key   TEXT NOT NULL PRIMARY KEY,   -- last_id, last_time, boot_id, clock_offset, life, last_token
  value ANY NOT NULL
) STRICT, WITHOUT ROWID;

-- The document has all fields of a lease (src/store/lease_document.h). The other columns repeat those by which rows are
-- found; consumer, nameless and peak_used_bytes are up to date once the lease has ended.
CREATE TABLE leases (
  id              INTEGER NOT NULL PRIMARY KEY,
  state           TEXT    NOT NULL,
  uid             INTEGER NOT NULL,
  consumer        TEXT    NOT NULL,
  nameless        INTEGER NOT NULL,  -- 1: its program has no name of its own, and no history
  tag             TEXT    NOT NULL,
  ended_at        INTEGER,
  peak_used_bytes INTEGER NOT NULL,
  document        TEXT    NOT NULL,  -- JSON
  run_ns          INTEGER,           -- from grant to end, if it ended well by itself
  settled         INTEGER NOT NULL   -- 1: ended and measured gone; only history from then on
) STRICT;

-- What a restart loads, without reading the history.
CREATE INDEX leases_unsettled ON leases (id) WHERE settled = 0;
CREATE INDEX leases_by_end ON leases (ended_at) WHERE state = 'ended';
CREATE INDEX leases_by_user_and_end ON leases (uid, ended_at) WHERE state = 'ended';
CREATE INDEX leases_by_tag ON leases (tag, uid, id) WHERE tag <> '';
-- Has all that a consumer's history is made of, so that loading the history reads no row of the table.
CREATE INDEX leases_by_consumer ON leases (uid, consumer, ended_at, run_ns, peak_used_bytes)
  WHERE state = 'ended' AND consumer <> '' AND nameless = 0;

CREATE TABLE reasons (
  lease INTEGER NOT NULL,
  seq   INTEGER NOT NULL,   -- grows by one for each reason of a lease
  at    INTEGER NOT NULL,
  kind  TEXT    NOT NULL,
  args  TEXT    NOT NULL,   -- JSON
  PRIMARY KEY (lease, seq)
) STRICT, WITHOUT ROWID;

-- Answers to calls with an Idempotency-Key. Rows are appended in order of time and go from the front, so the first
-- rowid is always the oldest. The unique index alone is read to know which keys are there.
CREATE TABLE remembered (
  number      INTEGER NOT NULL PRIMARY KEY,
  uid         INTEGER NOT NULL,
  key         TEXT    NOT NULL,   -- as its SHA-256, because the token in the answer is made from the key
  fingerprint TEXT    NOT NULL,
  status      INTEGER NOT NULL,
  at          INTEGER NOT NULL,
  body        TEXT    NOT NULL
) STRICT;
CREATE UNIQUE INDEX remembered_by_key ON remembered (uid, key);

-- The event stream. Rows are appended and go from the front. The key "life" of the table meta names the store that the
-- numbers belong to.
CREATE TABLE events (
  number INTEGER NOT NULL PRIMARY KEY,
  type   TEXT    NOT NULL,
  lease  INTEGER NOT NULL,   -- 0: of none
  data   TEXT    NOT NULL    -- JSON
) STRICT;

CREATE TABLE tokens (
  number     INTEGER NOT NULL PRIMARY KEY,   -- never given twice: the key "last_token" of the table meta
  uid        INTEGER NOT NULL,
  user       TEXT    NOT NULL,
  name       TEXT    NOT NULL,
  scope      TEXT    NOT NULL,
  hash       TEXT    NOT NULL,   -- SHA-256
  created_at INTEGER NOT NULL,
  expires_at INTEGER
) STRICT;

-- Consumers whose programs may be paused although Sublet did not start them.
CREATE TABLE grants (
  uid      INTEGER NOT NULL,
  consumer TEXT    NOT NULL,
  at       INTEGER NOT NULL,
  PRIMARY KEY (uid, consumer)
) STRICT, WITHOUT ROWID;

-- Durations of moves, from which the next ones are predicted. The newest of each kind are kept.
CREATE TABLE moves (
  seq      INTEGER PRIMARY KEY,
  uid      INTEGER NOT NULL,
  consumer TEXT NOT NULL,
  device   TEXT NOT NULL,     -- '': on several
  method   TEXT NOT NULL,
  move     TEXT NOT NULL,     -- pause, settle, resume
  bytes    INTEGER NOT NULL,
  took_ns  INTEGER NOT NULL,
  at       INTEGER NOT NULL
);
CREATE INDEX moves_by_kind ON moves (uid, consumer, device, method, move, seq);

CREATE TABLE pause_records (
  uid      INTEGER NOT NULL,
  consumer TEXT    NOT NULL,
  method   TEXT    NOT NULL,
  outcomes INTEGER NOT NULL,    -- of the last tries, the newest in the lowest bit: 1 is verified
  tries    INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  PRIMARY KEY (uid, consumer, method)
) STRICT, WITHOUT ROWID;

-- Rows of capabilities, such as supervised programs and sessions.
CREATE TABLE capability_rows (
  kind TEXT NOT NULL,
  key TEXT NOT NULL,
  data TEXT NOT NULL,  -- JSON
  PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;
