# SPDX-License-Identifier: Apache-2.0
"""Events on the channels of a real Redis server, which goes away, is slow, or knows another password."""
import json
import shutil
import signal
import socket
import subprocess
import threading

import pytest

from tests.support.sublet import GIB, Daemon, wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(not shutil.which("redis-server"),
                                                    reason="no redis-server: apt-get install redis-server")]
ASK = {"vram_bytes": GIB, "ttl_seconds": 600}


class RedisServer:
    def __init__(self, directory, password="", port=0):
        with socket.socket() as free:
            free.bind(("127.0.0.1", port))
            self.port = free.getsockname()[1]
        self.password = password
        words = ["--requirepass", password] if password else []
        self.process = subprocess.Popen(["redis-server", "--bind", "127.0.0.1", "--port", str(self.port), "--save", "",
                                         "--dir", str(directory), *words], stdout=subprocess.DEVNULL)
        wait_until(self.answers, "redis-server answers")

    def answers(self):
        try:
            with socket.create_connection(("127.0.0.1", self.port), 5) as one:
                one.sendall(b"PING\r\n")
                return bool(one.recv(64))
        except OSError:
            return False

    def url(self, secret=None):
        secret = self.password if secret is None else secret
        return f"redis://{':' + secret + '@' if secret else ''}127.0.0.1:{self.port}/0"

    def close(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


class Subscriber:
    """Subscribes to sublet.*; `messages` has (channel, object) of each message."""

    def __init__(self, server):
        self.messages = []
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        self.lines = self.socket.makefile("rb")
        if server.password:
            self.socket.sendall(f"AUTH {server.password}\r\n".encode())
            assert self.read() == "OK"
        self.socket.sendall(b"PSUBSCRIBE sublet.*\r\n")
        self.read()
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def read(self):
        kind, rest = (line := self.lines.readline())[:1], line[1:].strip()
        if kind == b"*":
            return [self.read() for _ in range(int(rest))]
        if kind == b"$":
            return self.lines.read(int(rest) + 2)[:-2].decode()
        if not kind:
            raise EOFError
        return int(rest) if kind == b":" else rest.decode()

    def follow(self):
        try:
            while True:
                _, _, channel, text = self.read()
                self.messages.append((channel, json.loads(text)))
        except (EOFError, OSError, ValueError):
            pass

    def of(self, channel):
        return [event for name, event in self.messages if name == "sublet." + channel]

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.socket.close()


@pytest.fixture
def started(tmp_path):
    parts = []

    def start(kind, *arguments, **options):
        parts.append(kind(*arguments, **options))
        return parts[-1].start() if kind is Daemon else parts[-1]

    yield start
    for part in reversed(parts):
        part.close()


def config(url, more=""):
    return f'[gpu]\ninterval_idle = "1s"\n[events]\nredis = "{url}"\n{more}'


def problems(daemon):
    return [warning["text"] for warning in daemon.get("/v1/status")["warnings"] if warning["code"] == "events-target"]


def test_each_type_has_its_channel_and_the_objects_are_those_of_the_stream(started, tmp_path):
    server = started(RedisServer, tmp_path, password="pa-ss")
    subscriber = started(Subscriber, server)
    daemon = started(Daemon, config=config(server.url()))
    api = daemon.api()
    lease = api.post("/v1/leases", ASK)
    api.post(f"/v1/leases/{lease['id']}/release", {})
    wait_until(lambda: [event["code"] for event in subscriber.of("lease")][-1:] == ["ended"], "the end is told")
    stored = {event["at"]: event for event in api.get("/v1/events?follow=false", Last_Event_ID="0").body}
    for event in subscriber.of("lease"):
        assert event.pop("id") and stored[event["at"]]["lease"] == event["lease"]
    assert subscriber.of("daemon")[0]["state"] == "started" and not problems(daemon)
    assert daemon.cli("events", "--test-target", "redis").stdout == "redis took a test event\n"
    wait_until(lambda: subscriber.of("test"), "the test arrives")


def test_a_server_that_was_away_gets_the_events_in_order(started, tmp_path):
    server = started(RedisServer, tmp_path)
    daemon = started(Daemon, config=config(server.url()))
    server.process.kill()
    server.process.wait()
    api = daemon.api()
    leases = [api.post("/v1/leases", {**ASK, "vram_bytes": GIB // 4})["id"] for _ in range(8)]
    wait_until(lambda: problems(daemon), "the failure is shown")
    back = started(RedisServer, tmp_path, port=server.port)
    subscriber = started(Subscriber, back)
    wait_until(lambda: {event["lease"] for event in subscriber.of("lease")} >= set(leases), "all arrive", 90)
    told = [event["lease"] for event in subscriber.of("lease") if event["code"] == "granted"]
    assert told == leases and not subscriber.of("gap")
    wait_until(lambda: not problems(daemon), "the warning ends")


def test_a_server_that_stands_still_delays_no_lease(started, tmp_path):
    server = started(RedisServer, tmp_path)
    daemon = started(Daemon, config=config(server.url()))
    server.process.send_signal(signal.SIGSTOP)
    api = daemon.api()
    for _ in range(50):
        lease = api.post("/v1/leases", ASK)
        assert api.post(f"/v1/leases/{lease['id']}/release", {}).status == 200
    wait_until(lambda: problems(daemon), "the failure is shown", 60)
    assert "does not answer in time" in problems(daemon)[0]


def test_readers_are_told_how_many_events_they_lost(started, tmp_path):
    server = started(RedisServer, tmp_path)
    daemon = started(Daemon, config=config(server.url(), "[limits]\nevents = 64\n"))
    server.process.kill()
    server.process.wait()
    api = daemon.api()
    for _ in range(300):
        lease = api.post("/v1/leases", ASK)
        api.post(f"/v1/leases/{lease['id']}/release", {})
    daemon.restart()
    api = daemon.api()
    for _ in range(300):
        lease = api.post("/v1/leases", ASK)
        api.post(f"/v1/leases/{lease['id']}/release", {})
    back = started(RedisServer, tmp_path, port=server.port)
    subscriber = started(Subscriber, back)
    wait_until(lambda: subscriber.of("gap"), "the gap is told", 90)
    first = int(subscriber.of("lease")[0]["id"].split("-")[1])
    [gap] = subscriber.of("gap")
    assert 200 < gap["missed"] < first, "counted once, although it was tried several times"


def test_a_wrong_password_is_named_and_never_shown(started, tmp_path):
    server = started(RedisServer, tmp_path, password="right")
    daemon = started(Daemon, config=config(server.url(secret="geheim")))
    daemon.api().post("/v1/leases", ASK)
    wait_until(lambda: problems(daemon), "the refusal is shown")
    assert "refuses AUTH" in problems(daemon)[0] and "geheim" not in problems(daemon)[0] + daemon.log()
    failed = daemon.cli("events", "--test-target", "redis")
    assert failed.returncode == 1 and "refuses AUTH" in failed.stderr
