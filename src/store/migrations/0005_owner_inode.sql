-- SPDX-License-Identifier: Apache-2.0
-- The inode of the pidfd of a lease's main process: proof for a later run of the daemon. 0: there is none.

ALTER TABLE leases ADD COLUMN owner_inode INTEGER NOT NULL DEFAULT 0;
