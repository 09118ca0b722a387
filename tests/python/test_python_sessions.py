# SPDX-License-Identifier: Apache-2.0
"""Sessions as objects: for this process, and from inside the program of a session."""
import os
import sys

import pytest

import sublet
from tests.support.python_place import SOURCE
from tests.support.sublet import GIB, wait_until


def test_a_session_of_this_process_lives_while_it_is_used(place):
    before = os.environ.get("SUBLET_LEASE")
    with sublet.session("1GiB", ttl="10m", tag="nb", checkpoint="echo saved") as session:
        shown = place.get(f"/v1/sessions/{session.session_id}").body
        assert (shown["state"], shown["pid"], shown["tag"]) == ("active", os.getpid(), "nb")
        assert shown["vram_bytes"] == GIB and shown["ttl_seconds"] == 600
        assert os.environ["SUBLET_LEASE"] == session.id == shown["lease"] and len(session.devices) == 1
        assert 0 < session.left <= 600 and session.state == "active"
        session.touch()
        assert session.checkpoint() == "saved" and sublet.current_session() is session
        with pytest.raises(sublet.Stale):
            session.open()
    assert os.environ.get("SUBLET_LEASE") == before and sublet.current_session() is None
    assert place.get(f"/v1/sessions/{session.session_id}")["end_reason"] == "closed"
    with pytest.raises(sublet.LeaseExpired):
        session.touch()


def test_a_session_that_has_ended_is_resumed_for_this_process(place):
    before = os.environ.get("SUBLET_LEASE")
    session = sublet.session("1GiB", ttl="10m", pausable="no").open()
    leases = [session.id]
    for close in (lambda: place.daemon.cli("session", "close", session.session_id, "--no-park", check=0),
                  session.close):
        close()
        wait_until(lambda: place.get(f"/v1/sessions/{session.session_id}")["state"] == "closed", "it has ended")
        session.resume(timeout="20s")
        shown = place.get(f"/v1/sessions/{session.session_id}").body
        assert shown["lease"] == session.id == os.environ["SUBLET_LEASE"] and session.id not in leases
        assert (shown["state"], shown["pid"]) == ("active", os.getpid()), shown
        assert len(session.devices) == 1 and sublet.current_session() is session
        leases.append(session.id)
    session.close()
    assert os.environ.get("SUBLET_LEASE") == before and sublet.current_session() is None


def test_a_session_that_waits_for_too_long_is_closed(place):
    with sublet.lease("3GiB"):
        with pytest.raises(sublet.WaitTimeout):
            sublet.session("2GiB", timeout=0.3).open()
        wait_until(lambda: not place.get("/v1/sessions")["sessions"], "nothing is left of it")


def test_a_failed_checkpoint_and_a_wrong_option_are_told(place):
    with sublet.session("1GiB", checkpoint="echo /nonexistent/state") as session:
        with pytest.raises(sublet.CheckpointFailed, match="cannot be found"):
            session.checkpoint()
    with pytest.raises(sublet.BadRequest, match="ttl='bla' is no duration"):
        sublet.session("1GiB", ttl="bla")
    with pytest.raises(ValueError):
        sublet.session("1GiB", checkpoint_every="5m")
    with pytest.raises(sublet.NotHeld):
        sublet.session("1GiB").touch()


def test_the_program_of_a_session_finds_it(place):
    program = ("import sublet; now = sublet.current_session(); now.touch(); "
               "print(now.session_id, now.state, 0 < now.left <= 600, flush=True)")
    opened = place.daemon.cli("session", "open", "--vram", "1GiB", "--ttl", "10m", "--env-all", "--", sys.executable,
                              "-c", program, PYTHONPATH=str(SOURCE), check=0)
    name = opened.stdout.split(":")[0]
    wait_until(lambda: place.get(f"/v1/sessions/{name}")["state"] == "closed", "its program has ended")
    assert place.daemon.cli("session", "logs", name, check=0).stdout == f"{name} active True\n"
