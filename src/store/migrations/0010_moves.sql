-- SPDX-License-Identifier: Apache-2.0
-- How long it took to have programs yield and come back: what the next time is predicted from. The newest of each kind
-- are kept.

CREATE TABLE moves (
  seq      INTEGER PRIMARY KEY,
  consumer TEXT NOT NULL,
  method   TEXT NOT NULL,
  move     TEXT NOT NULL,     -- pause, settle, resume
  bytes    INTEGER NOT NULL,
  took_ns  INTEGER NOT NULL,
  at       INTEGER NOT NULL
);

CREATE INDEX moves_by_kind ON moves (consumer, method, move, seq);
