-- SPDX-License-Identifier: Apache-2.0
-- On which device it was measured, for cards may sit on different links. '': on several, or by an earlier version, which
-- did not note it; that counts for the machine as a whole.

ALTER TABLE moves ADD COLUMN device TEXT NOT NULL DEFAULT '';
DROP INDEX moves_by_kind;
CREATE INDEX moves_by_kind ON moves (consumer, device, method, move, seq);
