-- SPDX-License-Identifier: Apache-2.0
-- What is remembered of a consumer belongs to its user. What an earlier version learned under a name goes to each user
-- that has used it, as far as there still are leases that say so. A move of nobody's says what moves take on this machine
-- (uid 0 and no name); a record of nobody's says nothing.

CREATE TABLE of_users AS SELECT DISTINCT uid, consumer FROM leases WHERE consumer <> '';

CREATE TABLE moves_of_users (
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
INSERT INTO moves_of_users (uid, consumer, device, method, move, bytes, took_ns, at)
  SELECT coalesce(of_users.uid, 0), coalesce(of_users.consumer, ''), device, method, move, bytes, took_ns, at
  FROM moves LEFT JOIN of_users ON of_users.consumer = moves.consumer ORDER BY seq, of_users.uid;
DROP TABLE moves;
ALTER TABLE moves_of_users RENAME TO moves;
CREATE INDEX moves_by_kind ON moves (uid, consumer, device, method, move, seq);

CREATE TABLE pause_records_of_users (
  uid      INTEGER NOT NULL,
  consumer TEXT    NOT NULL,
  method   TEXT    NOT NULL,
  outcomes INTEGER NOT NULL,    -- of the last tries, the newest in the lowest bit: 1 is verified
  tries    INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  PRIMARY KEY (uid, consumer, method)
) STRICT, WITHOUT ROWID;
INSERT INTO pause_records_of_users
  SELECT of_users.uid, consumer, method, outcomes, tries, at FROM pause_records JOIN of_users USING (consumer);
DROP TABLE pause_records;
ALTER TABLE pause_records_of_users RENAME TO pause_records;

DROP TABLE of_users;

DROP INDEX leases_by_consumer;
CREATE INDEX leases_by_consumer ON leases (uid, consumer, ended_at, run_ns, peak_used_bytes)
  WHERE state = 'ended' AND consumer <> '';
