#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The compatible service for stacks: how often its slot changes hands, and how fast /status is while a stack starts.

The container engine and Compose are fakes in Python. The stack is already up, and `wait_ready` is false. An answer of
the compatible service has the last lines of a container, so that its figures have two calls of the fake engine in them.
The raw measure of the same run is a durable write in the same directory: a page appended and synced. The arguments are
the number of pairs of acquire and release, and of clients.

With a Docker Engine (root, docker.io) it also measures the hand-over from one stack to another, from the release until
the other stack is ready. The raw measure is `down`, `up` and the first healthy report by hand, in turn with it.
"""
import http.client
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.support.real_engine import IMAGE, RealEngine, compose_programs  # noqa: E402
from tests.support.stacks import Stacks, service  # noqa: E402
from tests.support.sublet import Daemon, wait_until  # noqa: E402
from tests.support.tcp import free_port  # noqa: E402

PAIRS = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 300
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


ROUNDS = 10


def by_hand(place, engine, program, names):
    """Returns the seconds from `down` of one stack until the other is healthy."""
    def compose(name, *words):
        subprocess.run([program, "-p", name, "-f", place.stacks / name / "compose.yaml", *words], check=True,
                       env={**os.environ, "DOCKER_HOST": engine.url}, capture_output=True)

    def healthy(name):
        found = engine.inspect(f"{name}-api-1") or engine.inspect(f"{name}_api_1")
        return found is not None and found["State"]["Health"]["Status"] == "healthy"

    first, second = names
    compose(first, "up", "-d")
    wait_until(lambda: healthy(first), "it is healthy")
    began = time.perf_counter()
    compose(first, "down", "--remove-orphans")
    compose(second, "up", "-d")
    while not healthy(second):
        time.sleep(0.005)
    took = time.perf_counter() - began
    compose(second, "down")
    return took


def by_sublet(place, names):
    """Returns the seconds from the release of one stack until the other is ready."""
    first, second = names
    place.ready(first, wait=120)
    began = time.perf_counter()
    assert place.post(first, "release").status == 200
    place.ready(second, wait=120)
    took = time.perf_counter() - began
    place.post(second, "release", {"down": True})
    place.reaches(second, "down")
    return took


def hand_over(start):
    programs = compose_programs()
    if os.geteuid() != 0 or not shutil.which("dockerd") or not programs:
        print("hand-over: no Docker Engine here")
        return
    program = programs.get("current") or programs["v1"]
    engine = RealEngine().start().import_image()
    try:
        with tempfile.TemporaryDirectory() as directory, \
                Stacks(start, directory, engine=engine, program=program) as place:
            names = ("chat", "image")
            for name in names:
                place.write(name, {"api": {**service(), "image": IMAGE, "network_mode": "none",
                                           "command": ["/bin/sleep", "1000"], "stop_signal": "SIGKILL",
                                           "healthcheck": {"test": ["CMD", "/bin/true"], "interval": "1s"}}},
                            vram="3GiB")
            place.start()
            wait_until(lambda: len(place.states()) == 2, "both are found")
            bare, ours = [], []
            for _ in range(ROUNDS):
                bare.append(by_hand(place, engine, program, names))
                ours.append(by_sublet(place, names))
            for what, took in (("raw: down, up, healthy", bare), ("release, other stack ready", ours)):
                print(f"{f'hand-over, {what}':<40} median {statistics.median(took):.2f} s, "
                      f"{min(took):.2f} to {max(took):.2f} s")
            print(f"hand-over, more than raw: {(statistics.median(ours) - statistics.median(bare)) * 1e3:.0f} ms "
                  "(difference of the medians)")
    finally:
        engine.close()


def main():
    daemons = []

    def start(sim, config):
        daemons.append(Daemon(sim, config=config).start())
        return daemons[-1]

    if sys.argv[1:] == ["hand-over"]:
        try:
            hand_over(start)
        finally:
            for daemon in daemons:
                daemon.close()
        return 0

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
            place.daemon.kill()
            hand_over(start)
        finally:
            for daemon in daemons:
                daemon.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
