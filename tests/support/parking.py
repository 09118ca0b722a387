# SPDX-License-Identifier: Apache-2.0
"""Programs that are paused by the simulated driver."""
from tests.support.sublet import GIB, MIB, wait_until


def quick_checkpoints(daemon):
    """Parking and restoring take no longer than the work itself does."""
    for key in ("checkpoint_us", "checkpoint_bandwidth", "restore_us", "restore_bandwidth"):
        daemon.ctl("set", key, 0)


def until_filled(daemon, tag, alloc):
    """Waits until its program has a context on the card and so much memory: "512MiB"."""
    wanted = int(float(alloc[:-3]) * {"MiB": MIB, "GiB": GIB}[alloc[-3:]]) + 256 * MIB
    wait_until(lambda: lease_of(daemon, tag).get("used_bytes", 0) >= wanted, f"{tag} has filled its memory")


def lease_of(daemon, tag):
    return daemon.get(f"/v1/leases/{tag}").body


def until(daemon, tag, *states):
    """The lease, once it is in one of these states."""
    return wait_until(lambda: (lambda now: now if now.get("state") in states else None)(lease_of(daemon, tag)),
                      f"{tag} is {' or '.join(states)}")


def used_on_card(daemon):
    """Bytes, of the first of its cards."""
    return daemon.get("/v1/devices")["devices"][0]["used_bytes"]
