-- SPDX-License-Identifier: Apache-2.0
-- Leases on several devices, their uuids a line each; leases that take less than they asked for; and active leases
-- that wait for more.

ALTER TABLE leases RENAME COLUMN device TO devices;
ALTER TABLE leases ADD COLUMN device_count INTEGER NOT NULL DEFAULT 1;
ALTER TABLE leases ADD COLUMN asked_vram_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN min_vram_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE leases ADD COLUMN resize_bytes INTEGER;
ALTER TABLE leases ADD COLUMN resize_at INTEGER;
UPDATE leases SET asked_vram_bytes = vram_bytes;
