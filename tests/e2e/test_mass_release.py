# SPDX-License-Identifier: Apache-2.0
"""Hundreds of leases wait for one card and get it at once. They are stored and reported in commit batches, and no
reported grant is lost.
"""
import contextlib
import json
import select
import socket

import pytest

from tests.support.sublet import GIB, wait_until

MIB = 1 << 20
WAITERS = 700  # more than two commit batches of the engine
CONFIG = '[limits]\nwaiters = 1000\nleases = 1000\n[lease]\nreconnect = "5m"\n'


def ask(daemon, number):
    raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    raw.connect(str(daemon.socket))
    body = json.dumps({"vram_bytes": MIB, "wait_seconds": 600, "ttl_seconds": 3600, "tag": f"w{number}"})
    raw.sendall(f"POST /v1/leases HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    return raw


def read_answer(raw):
    """The JSON of one reply; None if the daemon ended before the reply was complete."""
    text = b""
    while b"\r\n\r\n" not in text or len(text) < text.index(b"\r\n\r\n") + 4 + length(text):
        try:
            more = raw.recv(65536)
        except ConnectionResetError:
            return None
        if not more:
            return None
        text += more
    return json.loads(text[text.index(b"\r\n\r\n") + 4:])


def length(text):
    return int(text.split(b"Content-Length: ")[1].split(b"\r\n")[0])


@pytest.fixture
def crowd(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    card = daemon.get("/v1/devices")["devices"][0]
    holder = daemon.api().post("/v1/leases", {"vram_bytes": card["effective_free_bytes"], "ttl_seconds": 3600})
    assert holder["state"] == "active"
    with contextlib.ExitStack() as stack:
        waiters = [stack.enter_context(ask(daemon, number)) for number in range(WAITERS)]
        wait_until(lambda: daemon.get("/v1/status")["leases"]["queued"] == WAITERS, "all of them wait")
        yield daemon, holder, waiters


def test_all_are_answered(crowd):
    daemon, holder, waiters = crowd
    assert daemon.api().post(f"/v1/leases/{holder['id']}/release", {}).status == 200
    answers = [read_answer(raw) for raw in waiters]
    assert all(answer["state"] == "offered" and answer["devices"] for answer in answers)
    assert len({answer["id"] for answer in answers}) == WAITERS
    # The oldest requests are granted first.
    assert [a["granted_at"] for a in answers] == sorted(a["granted_at"] for a in answers)


def test_a_kill_loses_no_reported_grant(crowd):
    daemon, holder, waiters = crowd
    daemon.api().post(f"/v1/leases/{holder['id']}/release", {})
    select.select([waiters[0]], [], [], 60)  # the first batch is reported, the last is perhaps not stored
    daemon.kill()
    told = [answer for answer in map(read_answer, waiters) if answer is not None]
    assert told
    daemon.start()
    wait_until(lambda: daemon.get("/v1/status")["leases"]["queued"] == 0, "the others get theirs after all")
    leases = {lease["id"]: lease for lease in daemon.leases()}
    assert len(leases) == WAITERS, "none is lost, none doubled"
    assert all(leases[answer["id"]]["state"] == "offered" for answer in told)
    assert sum(lease["reserved_bytes"] for lease in leases.values()) == WAITERS * MIB <= 4 * GIB
