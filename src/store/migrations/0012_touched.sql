-- SPDX-License-Identifier: Apache-2.0
-- Whom the driver was allowed to lock when a lease was parked, stored before it did: they alone have to be brought back
-- by it. One process a line, "pid start_ticks"; "?": an earlier version parked it, and did not note it.

ALTER TABLE leases ADD COLUMN parking_touched TEXT NOT NULL DEFAULT '?';
