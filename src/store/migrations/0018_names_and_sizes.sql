-- SPDX-License-Identifier: Apache-2.0
-- What ran under a name that says nothing of it teaches nothing. An earlier version did not note who chose a name: what it
-- learned under those that `sublet` or the daemon gave is not used, whoever chose them.
-- And what a lease had before it was resized, for how long. Of those that an earlier version resized nobody knows.

ALTER TABLE leases ADD COLUMN nameless INTEGER NOT NULL DEFAULT 0;
UPDATE leases SET nameless = 1 WHERE consumer LIKE 'python%' OR consumer IN (
  'unnamed', 'free', 'hold', 'program', 'bash', 'sh', 'dash', 'zsh', 'perl', 'ruby', 'node', 'accelerate', 'conda',
  'deepspeed', 'env', 'java', 'mpirun', 'nice', 'nohup', 'numactl', 'poetry', 'setsid', 'stdbuf', 'sudo', 'taskset',
  'time', 'timeout', 'torchrun', 'uv', 'xargs');
ALTER TABLE leases ADD COLUMN sized_mean_bytes INTEGER;
ALTER TABLE leases ADD COLUMN sized_until INTEGER;
ALTER TABLE leases ADD COLUMN sized_parked_ns INTEGER;

DROP INDEX leases_by_consumer;
CREATE INDEX leases_by_consumer ON leases (uid, consumer, ended_at, run_ns, peak_used_bytes)
  WHERE state = 'ended' AND consumer <> '' AND nameless = 0;
