-- SPDX-License-Identifier: Apache-2.0
-- For how long a lease did not hold its room since its grant: up to parked_at, and since when it does not (null: it does).
-- An earlier version did not note it. Of one that is parked it is taken to be so since it was asked; of those pauses that
-- are over nobody knows.

ALTER TABLE leases ADD COLUMN parked_for_ns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN parked_at INTEGER;
UPDATE leases SET parked_at = parking_since WHERE state IN ('paused', 'poisoned');
