#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Events to Redis: how long after its commit an event arrives, and how much this slows acquire + release.

A lease is answered when its decision is durable, so an event's delay counts from the answer. The raw measure of the
same run is a PUBLISH until its subscriber has it, without the daemon. The arguments are the number of leases of each
round, and of rounds.
"""
import pathlib
import shutil
import socket
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from tests.heavy.test_redis import RedisServer, Subscriber  # noqa: E402
from tests.support.sublet import GIB, Daemon, wait_until  # noqa: E402

LEASES = int(sys.argv[1]) if len(sys.argv) > 1 else 300
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5


class Timed(Subscriber):
    """Notes when each lease's first event arrived."""

    def __init__(self, server):
        self.arrived = {}
        super().__init__(server)

    def follow(self):
        try:
            while True:
                _, _, channel, text = self.read()
                now = time.perf_counter()
                key = text if channel == "sublet.raw" else text.partition('"lease":"')[2].partition('"')[0]
                self.arrived.setdefault(key, now)
        except (EOFError, OSError, ValueError):
            pass


def pairs(api):
    """Returns the answers' times by lease, and the seconds of a pair of acquire and release."""
    answered, began = {}, time.perf_counter()
    for _ in range(LEASES):
        lease = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600})["id"]
        answered[lease] = time.perf_counter()
        api.post(f"/v1/leases/{lease}/release", {})
    return answered, (time.perf_counter() - began) / LEASES


def raw(server, subscriber):
    took = []
    with socket.create_connection(("127.0.0.1", server.port)) as sender:
        for number in range(LEASES):
            sent = time.perf_counter()
            sender.sendall(f"PUBLISH sublet.raw raw-{number}\r\n".encode())
            sender.recv(64)
            wait_until(lambda: f"raw-{number}" in subscriber.arrived, "it arrives")
            took.append(subscriber.arrived[f"raw-{number}"] - sent)
    return took


def percentile(values, part):
    return sorted(values)[min(int(len(values) * part), len(values) - 1)] * 1e3


def main():
    if not shutil.which("redis-server"):
        print("no redis-server: apt-get install redis-server")
        return 0
    with tempfile.TemporaryDirectory() as directory:
        server = RedisServer(directory)
        subscriber = Timed(server)
        quick = '[gpu]\ninterval_idle = "1s"\n'
        told = Daemon(config=quick + f'[events]\nredis = "{server.url()}"\n').start()
        alone = Daemon(config=quick).start()
        try:
            one, other = told.api(), alone.api()
            delays, with_redis, without = [], [], []
            for _ in range(ROUNDS):
                answered, seconds = pairs(one)
                wait_until(lambda: set(answered) <= set(subscriber.arrived), "all events arrive")
                delays += [max(subscriber.arrived[lease] - at, 0) for lease, at in answered.items()]
                with_redis.append(seconds)
                without.append(pairs(other)[1])
            bare = raw(server, subscriber)
            print(f"{'event until its reader has it':<32} {'p50 ms':>8} {'p99 ms':>8} {'p99, ratio to raw':>18}")
            print(f"{'raw: PUBLISH alone':<32} {percentile(bare, .5):>8.2f} {percentile(bare, .99):>8.2f} {1:>18.2f}")
            print(f"{'after its commit':<32} {percentile(delays, .5):>8.2f} {percentile(delays, .99):>8.2f} "
                  f"{percentile(delays, .99) / percentile(bare, .99):>18.2f}")
            a, b = statistics.median(with_redis), statistics.median(without)
            print(f"acquire + release: {a * 1e3:.2f} ms with Redis, {b * 1e3:.2f} ms without; ratio {a / b:.2f}")
        finally:
            subscriber.close()
            told.close()
            alone.close()
            server.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
