#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The compatible service for stacks: how often its slot changes hands, and how fast /status is while a stack starts.

The container engine and Compose are fakes in Python. The stack is already up, and `wait_ready` is false. An answer of
the compatible service has the last lines of a container, so that its figures have two calls of the fake engine in them.
The raw measure of the same run is a durable write in the same directory: a page appended and synced. The arguments are
the number of pairs of acquire and release, and of clients.
"""
import http.client
import json
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.support.stacks import Stacks  # noqa: E402
from tests.support.sublet import Daemon, wait_until  # noqa: E402
from tests.support.tcp import free_port  # noqa: E402

PAIRS = int(sys.argv[1]) if len(sys.argv) > 1 else 300
CLIENTS = int(sys.argv[2]) if len(sys.argv) > 2 else 16


class Client:
    """A kept connection to the service."""

    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def call(self, method, path, body=None):
        text = None if body is None else json.dumps(body)
        self.connection.request(method, path, text, {"Content-Type": "application/json"} if text else {})
        response = self.connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == 200, answer
        return answer

    def pair(self, **more):
        body = {"target": "a", "wait_ready": False, "wait_s": 100, **more}
        token = self.call("POST", "/acquire", body)["lease_token"]
        self.call("POST", "/release", {"lease_token": token})


def raw(directory):
    """Returns durable writes a second."""
    file = os.open(pathlib.Path(directory) / "raw", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    page, began = b"x" * 4096, time.perf_counter()
    for _ in range(PAIRS):
        os.write(file, page)
        os.fdatasync(file)
    os.close(file)
    return PAIRS / (time.perf_counter() - began)


def pairs_a_second(port, clients, **more):
    """Returns pairs a second of all clients together."""
    each = max(PAIRS // clients, 1)
    kept = [Client(port) for _ in range(clients)]
    threads = [threading.Thread(target=lambda one=one: [one.pair(**more) for _ in range(each)]) for one in kept]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return each * clients / (time.perf_counter() - began)


def native_pairs(place):
    """Returns pairs a second of one client of /v1/stacks."""
    api = place.daemon.api()
    began = time.perf_counter()
    for _ in range(PAIRS):
        got = api.post("/v1/stacks/a/acquire", {"wait_seconds": 10, "wait_ready": False})
        assert got.status == 200, got
        assert api.post("/v1/stacks/a/release", {}).status == 200
    return PAIRS / (time.perf_counter() - began)


def status_ms(place, port):
    """Returns the times of /status in ms while a stack starts."""
    place.compose.on("up", "hang")
    starter = threading.Thread(target=lambda: _ignore(lambda: Client(port).pair(target="b", wait_s=3)))
    starter.start()
    wait_until(lambda: place.get("b")["state"] == "creating", "it starts")
    client, took = Client(port), []
    for _ in range(50):
        began = time.perf_counter()
        client.call("GET", "/status")
        took.append((time.perf_counter() - began) * 1e3)
    starter.join()
    return took


def _ignore(call):
    try:
        call()
    except (AssertionError, OSError):
        pass  # a stack that is late is answered with 504


def main():
    daemons = []

    def start(sim, config):
        daemons.append(Daemon(sim, config=config).start())
        return daemons[-1]

    with tempfile.TemporaryDirectory() as directory, Stacks(start, directory) as place:
        try:
            for name in ("a", "b"):
                place.write(name, vram="1GiB")
            port = free_port()
            place.start(http=f"127.0.0.1:{port}", command_timeout="60s")
            Client(port).pair()  # it is up from here on
            bare = raw(place.daemon.dir)
            one = pairs_a_second(port, 1)
            many = pairs_a_second(port, CLIENTS, wait_turn=True)
            own = native_pairs(place)
            print(f"{'stack already up':<34} {'a second':>10} {'ratio to raw':>13}")
            print(f"{'raw: durable writes':<34} {bare:>10.0f} {1:>13.2f}")
            print(f"{'/v1/stacks: one client':<34} {own:>10.0f} {own / bare:>13.2f}")
            print(f"{'compatible: one client':<34} {one:>10.0f} {one / bare:>13.2f}")
            print(f"{f'compatible: {CLIENTS} clients, held waits':<34} {many:>10.0f} {many / bare:>13.2f}")
            took = status_ms(place, port)
            print(f"/status while another stack starts: p50 {statistics.median(took):.2f} ms, worst {max(took):.2f} ms")
        finally:
            for daemon in daemons:
                daemon.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
