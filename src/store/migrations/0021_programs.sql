-- SPDX-License-Identifier: Apache-2.0
-- Ceilings of leases, memory that is kept for the next start of a program, and the programs that Sublet supervises.

ALTER TABLE leases ADD COLUMN ceiling_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN soft_limit_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN kept_until INTEGER;

CREATE TABLE programs (
  uid INTEGER NOT NULL,
  tag TEXT NOT NULL,
  data TEXT NOT NULL,  -- JSON: the manifest and the progress (src/guard/program.h)
  PRIMARY KEY (uid, tag)
) STRICT, WITHOUT ROWID;
