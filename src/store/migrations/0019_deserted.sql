-- SPDX-License-Identifier: Apache-2.0
-- Since when nothing of a parked lease has been seen to live. An earlier version counted it anew whenever the daemon was
-- started: the first look at it after this one says so again.

ALTER TABLE leases ADD COLUMN parking_deserted_since INTEGER;
