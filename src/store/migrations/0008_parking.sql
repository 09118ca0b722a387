-- SPDX-License-Identifier: Apache-2.0
-- A lease that yields, is parked or comes back: how, since when, why, what of host memory it takes. No method: it is not.

ALTER TABLE leases ADD COLUMN parking_method TEXT NOT NULL DEFAULT '';
ALTER TABLE leases ADD COLUMN parking_since INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN parking_reason TEXT NOT NULL DEFAULT '';
ALTER TABLE leases ADD COLUMN parking_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN parking_settled INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN residue_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN parking_returns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN parking_then_stop INTEGER NOT NULL DEFAULT 0;
