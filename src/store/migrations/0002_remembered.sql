-- SPDX-License-Identifier: Apache-2.0
-- Answers to calls with an Idempotency-Key. Rows are appended in order of time and go from the front, so the first
-- rowid is always the oldest; the unique index alone is read to know which keys are there.

CREATE TABLE remembered (
  number      INTEGER NOT NULL PRIMARY KEY,
  uid         INTEGER NOT NULL,
  key         TEXT    NOT NULL,
  fingerprint TEXT    NOT NULL,
  status      INTEGER NOT NULL,
  at          INTEGER NOT NULL,
  body        TEXT    NOT NULL
) STRICT;

CREATE UNIQUE INDEX remembered_by_key ON remembered (uid, key);
