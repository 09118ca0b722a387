-- SPDX-License-Identifier: Apache-2.0
-- What has to come back of a program that yields: one device of its lease a line, "all kept on_top tops beside" in bytes,
-- and behind that "pid start_ticks bytes" for each process that was listed there. '': an earlier version did not note it.
-- What a lease was entered with before what its program took while it was paused was to be parked on top (no method:
-- nothing is). And when a lease was given its room on somebody's word.

ALTER TABLE leases ADD COLUMN parking_yielded TEXT NOT NULL DEFAULT '';
ALTER TABLE leases ADD COLUMN before_top_method TEXT NOT NULL DEFAULT '';
ALTER TABLE leases ADD COLUMN before_top_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN before_top_settled INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN ordered_at INTEGER;
