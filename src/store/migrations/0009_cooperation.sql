-- SPDX-License-Identifier: Apache-2.0
-- Programs that yield by themselves: in which way, and what they keep. No way: they do not. And whose programs may be
-- parked although Sublet did not start them.

ALTER TABLE leases ADD COLUMN parking_told INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN cooperation_way TEXT NOT NULL DEFAULT '';
ALTER TABLE leases ADD COLUMN cooperation_residue_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN cooperation_pid INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN cooperation_start_ticks INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN cooperation_address TEXT NOT NULL DEFAULT '';
ALTER TABLE leases ADD COLUMN pause_signal INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN resume_signal INTEGER NOT NULL DEFAULT 0;

CREATE TABLE grants (
  uid      INTEGER NOT NULL,
  consumer TEXT    NOT NULL,
  at       INTEGER NOT NULL,
  PRIMARY KEY (uid, consumer)
) STRICT, WITHOUT ROWID;
