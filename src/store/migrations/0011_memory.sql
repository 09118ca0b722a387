-- SPDX-License-Identifier: Apache-2.0
-- What else a restart must not forget: when a lease came back from its last pause, on whose word room is made for it,
-- and how the pauses of consumers went.

ALTER TABLE leases ADD COLUMN resumed_at INTEGER;
ALTER TABLE leases ADD COLUMN ordered_by INTEGER;                          -- uid; null: on nobody's word
ALTER TABLE leases ADD COLUMN ordered_anybodys INTEGER NOT NULL DEFAULT 0;

CREATE TABLE pause_records (
  consumer TEXT    NOT NULL,
  method   TEXT    NOT NULL,
  outcomes INTEGER NOT NULL,    -- of the last tries, the newest in the lowest bit: 1 is verified
  tries    INTEGER NOT NULL,
  at       INTEGER NOT NULL,
  PRIMARY KEY (consumer, method)
) STRICT, WITHOUT ROWID;
