# SPDX-License-Identifier: Apache-2.0
"""Programs that Sublet did not start: they are booked to a lease by `sublet attach`, and paused once granted."""
import json
import signal

import pytest

from tests.support.parking import lease_of, quick_checkpoints, until, used_on_card
from tests.support.sublet import MIB, wait_until

CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n[lease]\nlinger = "500ms"\n'
          '[pause]\ncooldown = "200ms"\n')
ALLOC = 128 * MIB


@pytest.fixture
def daemon(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    quick_checkpoints(daemon)
    return daemon


def attached(daemon):
    """A program that Sublet did not start, booked to the lease `it` and with its memory."""
    program = daemon.spawn("simgpu-load", "--alloc", "128MiB", "--seconds", "600", "--verify", "--json",
                           "--dense", env=daemon.env())
    wait_until(lambda: used_on_card(daemon) >= ALLOC, "it has its memory")
    daemon.cli("attach", "it", "--pid", str(program.pid), check=0)
    wait_until(lambda: lease_of(daemon, "it")["used_bytes"] >= ALLOC, "its memory counts for the lease")
    return program


def end(program):
    program.send_signal(signal.SIGTERM)
    out, err = program.communicate(timeout=60)
    result = json.loads(out.splitlines()[-1])
    assert program.returncode == 128 + signal.SIGTERM and result["wrong_words"] == 0, err


def test_a_program_attached_to_a_token_lease_is_paused_once_granted(daemon):
    made = daemon.api().post("/v1/leases", {"vram_bytes": 1024 * MIB, "ttl_seconds": 600, "tag": "it"})
    assert made["owner"]["kind"] == "token"
    program = attached(daemon)
    refused = daemon.cli("pause", "it")
    assert refused.returncode != 0 and "sublet pause --grant " in refused.stderr, refused.stderr
    daemon.cli("pause", "--grant", lease_of(daemon, "it")["consumer"], check=0)
    daemon.cli("pause", "it", check=0)
    paused = lease_of(daemon, "it")
    assert paused["state"] == "paused" and paused["pause"]["method"] == "driver"
    assert paused["parked_bytes"] >= ALLOC and used_on_card(daemon) < 64 * MIB
    daemon.restart()
    until(daemon, "it", "paused")
    daemon.cli("resume", "it", check=0)
    wait_until(lambda: used_on_card(daemon) >= ALLOC, "it has its memory again")
    end(program)


def test_a_lost_connection_leaves_no_attached_program_parked(daemon):
    holder = daemon.spawn("sublet", "hold", "--vram", "1GiB", "--tag", "it", "--name", "held")
    wait_until(lambda: daemon.get("/v1/leases/it").status == 200, "it is asked for")
    until(daemon, "it", "active")
    program = attached(daemon)
    daemon.cli("pause", "--grant", "held", check=0)
    daemon.cli("pause", "it", check=0)
    holder.kill()
    until(daemon, "it", "ended")
    wait_until(lambda: used_on_card(daemon) >= ALLOC, "it has its memory again")
    end(program)
