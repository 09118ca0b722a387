# SPDX-License-Identifier: Apache-2.0
"""Programs that are paused by the simulated driver."""


def quick_checkpoints(daemon):
    """Parking and restoring take no longer than the work itself does."""
    for key in ("checkpoint_us", "checkpoint_bandwidth", "restore_us", "restore_bandwidth"):
        daemon.ctl("set", key, 0)
