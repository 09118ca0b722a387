# SPDX-License-Identifier: Apache-2.0
"""Hostile or broken clients: the daemon serves the others, whatever these clients do."""
import contextlib
import json
import os
import random
import re
import resource
import select
import socket
import subprocess
import time

import pytest

from tests.support import contract
from tests.support.sublet import BIN, GIB, wait_until, watches_itself
from tests.support.tcp import TcpApi, start_with_tcp

ASK = {"vram_bytes": GIB, "ttl_seconds": 600}
SHORT = ('[gpu]\ninterval_idle = "1s"\n'
         '[limits]\nconnections = 2000\nheader_time = "1s"\nbody_time = "1s"\nwrite_time = "1s"\n')


@pytest.fixture
def daemon(start_daemon):
    return start_with_tcp(start_daemon, SHORT)


def dial(daemon, tcp=False):
    raw = socket.socket(socket.AF_INET if tcp else socket.AF_UNIX, socket.SOCK_STREAM)
    raw.settimeout(60)
    raw.connect(("127.0.0.1", daemon.port) if tcp else str(daemon.socket))
    return raw


@contextlib.contextmanager
def many(daemon, count, tcp=False):
    sockets = []
    try:
        for _ in range(count):
            sockets.append(dial(daemon, tcp))
        yield sockets
    finally:
        for raw in sockets:
            raw.close()


def closed(raw):
    """Tells whether the daemon has closed it; reads the data before the end."""
    raw.setblocking(False)
    with contextlib.suppress(ConnectionResetError):
        try:
            while raw.recv(65536):
                pass
        except BlockingIOError:
            return False
    return True


def assert_serves(daemon):
    api = daemon.api()
    lease = api.post("/v1/leases", ASK)
    assert lease.status in (201, 202)
    assert api.post(f"/v1/leases/{lease['id']}/release", {}).status == 200
    api.close()


def open_files(daemon):
    return len(os.listdir(f"/proc/{daemon.process.pid}/fd"))


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
def test_a_thousand_half_open_requests(daemon, tcp):
    before = open_files(daemon)
    with many(daemon, 1000, tcp) as sockets:
        for raw in sockets:
            raw.sendall(b"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-")
        assert_serves(daemon)
        wait_until(lambda: all(map(closed, sockets)), "the time for their headers is over")
    assert_serves(daemon)
    wait_until(lambda: open_files(daemon) <= before + 2, "their descriptors are given back")


def test_idle_strangers_over_tcp_are_cut_off(daemon):
    with many(daemon, 300, tcp=True) as sockets:  # clients that send nothing
        assert_serves(daemon)
        wait_until(lambda: all(map(closed, sockets)), "they are shown out")


def test_strangers_over_tcp_use_up_their_own_places_only(start_daemon):
    daemon = start_with_tcp(start_daemon, '[limits]\nconnections = 16\nheader_time = "1m"\n')
    with many(daemon, 64, tcp=True) as sockets:
        wait_until(lambda: sum(map(closed, sockets)) == 48, "only so many may sit there")
        assert not any(map(closed, sockets[48:])), "who came first goes first"
        assert_serves(daemon)  # the owner of the daemon, on its socket


def test_strangers_over_tcp_do_not_keep_tokens_out(start_daemon):
    daemon = start_with_tcp(start_daemon, '[limits]\nconnections = 4\nheader_time = "1m"\nbody_time = "1m"\n')
    token = daemon.api().post("/v1/tokens", {"scope": "submit"})["token"]
    body = json.dumps(ASK)
    with many(daemon, 4, tcp=True), dial(daemon, tcp=True) as sending:
        sending.sendall(f"POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
                        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n{body[:9]}".encode())
        assert TcpApi(daemon.port, token).get("/v1/status").status == 200
        with many(daemon, 16, tcp=True) as others:
            wait_until(lambda: sum(map(closed, others)) == 12, "they only drive each other out")
            sending.sendall(body[9:].encode())
            assert sending.recv(65536).startswith(b"HTTP/1.1 201 "), "who has shown a token and still sends stays"
            assert TcpApi(daemon.port, token).get("/v1/status").status == 200


def test_a_refusal_for_a_users_limit_is_repeated(start_daemon):
    daemon = start_with_tcp(start_daemon, "[limits]\nconnections = 2\n")
    token = daemon.api().post("/v1/tokens", {"scope": "read"})["token"]
    first, one_too_many = TcpApi(daemon.port, token), TcpApi(daemon.port, token)
    assert first.get("/v1/status").status == 200
    for _ in range(2):  # the second time on a connection that has been refused
        refused = one_too_many.get("/v1/leases")
        assert refused.status == 503 and "has 2 open connections" in refused["detail"]
    first.close()
    wait_until(lambda: one_too_many.get("/v1/leases").status == 200, "its place is free")


@pytest.mark.parametrize("part", ["header", "body"])
def test_slow_writers(daemon, part):
    head = b"POST /v1/leases HTTP/1.1\r\nHost: x\r\n"
    text = head + (b"Content-Length: 60000\r\n\r\n" if part == "body" else b"X: ") + b"a" * 60000
    with many(daemon, 50) as sockets:
        if part == "body":
            for raw in sockets:
                raw.sendall(text[:200])
        def drip():
            assert_serves(daemon)
            done = 0
            for at, raw in enumerate(sockets):
                if closed(raw):
                    done += 1
                    continue
                with contextlib.suppress(BlockingIOError, BrokenPipeError, ConnectionResetError):
                    raw.send(text[at + 200:at + 201] if part == "body" else text[:1])
            return done == len(sockets)
        wait_until(drip, "a request that takes for ever is given up")


def test_slow_readers(daemon):
    api = daemon.api()
    leases = [api.post("/v1/leases", dict(ASK, command="x" * 4000)) for _ in range(100)]
    ask = b"GET /v1/leases HTTP/1.1\r\nHost: x\r\n\r\n"
    before = open_files(daemon)
    with many(daemon, 50) as sockets:
        for raw in sockets:
            raw.sendall(ask * 20)  # pipelined: some 8 MiB of answers each, and no client reads them
        assert_serves(daemon)
        wait_until(lambda: open_files(daemon) <= before + 3, "those that take nothing are cut off")
        with open(f"/proc/{daemon.process.pid}/status") as status:
            memory = int(next(line for line in status if line.startswith("VmRSS")).split()[1])
        enough = (900 if watches_itself() else 300) << 10
        assert memory < enough, f"{memory} KiB for readers that do not read"
    for lease in leases:
        api.post(f"/v1/leases/{lease['id']}/release", {})
    assert_serves(daemon)


def test_a_reader_that_takes_its_answer_steadily_gets_all_of_it(start_daemon):
    """The total time does not matter: only a client that reads nothing for write_time is cut off."""
    daemon = start_daemon(config='[limits]\nwrite_time = "2s"\n')
    api = daemon.api()
    leases = [api.post("/v1/leases", dict(ASK, command="x" * 4000))["id"] for _ in range(300)]
    raw = dial(daemon)
    raw.sendall(b"GET /v1/leases HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    began, text = time.monotonic(), b""
    while piece := raw.recv(65536):
        text += piece
        if time.monotonic() < began + 5:  # more than twice the time, if one limit covered everything
            due = began + len(text) / 250_000
            wait_until(lambda: time.monotonic() >= due, "the next piece is due")
    raw.close()
    head, body = text.split(b"\r\n\r\n", 1)
    assert len(body) == int(re.search(rb"Content-Length: (\d+)", head).group(1)) > 1_000_000
    assert [lease["id"] for lease in json.loads(body)["leases"]] == leases


def test_waiting_connections_do_not_count_in_the_limit_message(start_daemon):
    daemon = start_daemon(config='[limits]\nconnections = 4\n')
    api = daemon.api()
    api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB))
    waiting = api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB))["id"]
    with many(daemon, 2) as waiters:
        for raw in waiters:
            raw.sendall(f"GET /v1/leases/{waiting}?wait=60s&since=queued HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        def served(raw):
            with contextlib.suppress(OSError):
                raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                return raw.recv(65536).startswith(b"HTTP/1.1 200")
        def fit():
            with many(daemon, 3) as sockets:
                return all(map(served, sockets))
        wait_until(fit, "those that wait do not count")
        with many(daemon, 4) as sockets:
            refused = wait_until(lambda: select.select(sockets, [], [], 0)[0], "one too many is refused unasked")
            answer = refused[0].recv(65536).decode()
    assert answer.startswith("HTTP/1.1 503 ") and "has 4 open connections" in answer
    assert "Content-Type: application/problem+json\r\n" in answer and "Cache-Control: no-store\r\n" in answer
    problem = json.loads(answer.split("\r\n\r\n", 1)[1])
    # the refused request could have been this one
    contract.check_reply("GET", "/healthz", 503, "application/problem+json", problem)


GARBAGE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x00" * 4096,
    b"GET / HTTP/9.9\r\n\r\n", b"GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n", b"\r\n\r\n\r\n",
    b"POST /v1/leases HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/leases HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /v1/leases HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    b"POST /v1/leases HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    b"GET /v1/status HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 3000 + b"\r\n",
    b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n", b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", b"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /v1/leases/%ff%00%2f HTTP/1.1\r\nHost: x\r\nIdempotency-Key: \xff\xfe\r\n\r\n",
    b"POST /v1/leases HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}",
]


@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
def test_garbage(daemon, tcp):
    chance = random.Random(20261121)
    pieces = list(GARBAGE)
    for _ in range(150):  # pieces of requests, shuffled, changed and cut
        text = bytearray(b"".join(chance.sample(GARBAGE, 2)))
        for _ in range(chance.randrange(1, 20)):
            text[chance.randrange(len(text))] = chance.randrange(256)
        pieces.append(bytes(text[:chance.randrange(1, len(text))]))
    for piece in pieces:
        with dial(daemon, tcp) as raw:
            answer = b""
            with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                raw.sendall(piece)
                raw.shutdown(socket.SHUT_WR)
                while more := raw.recv(65536):
                    answer += more
            assert not answer or answer.startswith(b"HTTP/1."), piece
            assert b"HTTP/1.1 50" not in answer and b"HTTP/1.1 201" not in answer, piece
    assert daemon.process.poll() is None
    assert_serves(daemon)
    assert daemon.api().get("/v1/leases")["leases"] == []


def test_descriptors_run_out_and_come_back(daemon):
    old = daemon.api()
    lease = old.post("/v1/leases", ASK)
    soft = open_files(daemon) + 8
    hard = resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE)[1]
    resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
    with many(daemon, 40) as sockets:
        wait_until(lambda: "cannot accept" in daemon.log(), "descriptors have run out")
        assert old.lease(lease["id"])["state"] == "active"  # connected clients are served
        assert old.post(f"/v1/leases/{lease['id']}/renew", {}).status == 200
        assert daemon.log().count("cannot accept") == 1, "said once, however often it is tried"
    resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (hard, hard))
    wait_until(lambda: daemon.api().get("/healthz").status == 200, "it accepts again")
    assert_serves(daemon)


def test_limits_of_waits_and_leases_are_reached_and_named(start_daemon):
    daemon = start_daemon(config='[limits]\nconnections = 4\nwaiters = 12\nleases = 3\n')
    api = daemon.api()
    lease = api.post("/v1/leases", dict(ASK, vram_bytes=3 * GIB))
    waiting = f"GET /v1/leases/{lease['id']}?wait=60s HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        for _ in range(12):  # more connections than limits.connections: waiting connections do not count
            raw = stack.enter_context(dial(daemon))
            raw.sendall(waiting)
            wait_until(lambda: api.get("/healthz").status == 200, "it is taken in")
        def thirteenth():
            other = daemon.api()
            reply = other.get(f"/v1/leases/{lease['id']}?wait=100ms")
            other.close()
            return reply if reply.status == 503 else None
        refused = wait_until(thirteenth, "all places to wait are taken")
        assert "12 waiting requests" in refused["detail"] and "limits.waiters" in refused["hint"]
    for _ in range(2):
        assert api.post("/v1/leases", ASK).status in (201, 202)
    full = api.post("/v1/leases", ASK)
    assert (full.status, full["code"]) == (409, "Quota")
    assert "3 live leases" in full["detail"] and "limits.leases" in full["hint"]
    api.post(f"/v1/leases/{lease['id']}/release", {})
    assert api.post("/v1/leases", ASK).status in (201, 202)


@pytest.mark.parametrize("tcp", [False, True])
def test_a_waiting_client_that_sends_more_is_still_seen_to_leave(start_daemon, tcp):
    daemon = start_with_tcp(start_daemon, '[lease]\nlinger = "200ms"\n')
    api = daemon.api()
    holder = api.post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 600})
    body = '{"vram_bytes": %d, "wait_seconds": 3600}' % (3 * GIB)
    head = "Host: localhost\r\n"
    if tcp:
        head += f"Authorization: Bearer {api.post('/v1/tokens', {'scope': 'submit'})['token']}\r\n"
    with dial(daemon, tcp) as raw:
        raw.sendall(f"POST /v1/leases HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        wait_until(lambda: api.get("/v1/queue")["queue"], "it waits")
        raw.sendall(f"GET /healthz HTTP/1.1\r\n{head}\r\n".encode())  # not readable before the wait is over
        assert api.get("/v1/queue")["queue"]
    waiting = f"lease-{int(holder['id'].removeprefix('lease-')) + 1}"
    wait_until(lambda: api.lease(waiting)["end_reason"] == "cancelled", "it is seen to be gone")


def test_a_socket_that_accepts_no_connection_is_not_awaited(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as deaf, contextlib.ExitStack() as stack:
        deaf.bind(str(tmp_path / "sublet.sock"))
        deaf.listen(0)
        while True:
            raw = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            raw.setblocking(False)
            if raw.connect_ex(str(tmp_path / "sublet.sock")) != 0:
                break
        done = subprocess.run([BIN / "subletd", "--dir", tmp_path, "--sim", "1x1GiB"], text=True, capture_output=True,
                              timeout=60)
    assert done.returncode == 1
    assert "another daemon" in done.stderr and "accepts no connections" in done.stderr
