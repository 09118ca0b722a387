-- SPDX-License-Identifier: Apache-2.0
-- Processes and cgroups that were booked to a lease by name: a line each, "pid start_ticks" or a directory.

ALTER TABLE leases ADD COLUMN booked TEXT NOT NULL DEFAULT '';
