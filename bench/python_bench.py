#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package: time of a lease from request to release, and a thousand leases in asyncio at once.

Raw: the same pair of requests as prepared bytes over one open connection, without reading the answers' JSON. Both
numbers contain the daemon's two commits. The pairs take turns in one run.

python_bench.py [PAIRS [LEASES]]
"""
import asyncio
import json
import os
import pathlib
import re
import socket
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
os.environ.setdefault("SUBLET_BUILD", os.environ.get("SUBLET_BUILD_DIR", str(ROOT / "build")))
sys.path[:0] = [str(ROOT), str(ROOT / "python" / "src")]
import sublet  # noqa: E402
from tests.support.sublet import MIB, Daemon  # noqa: E402

PAIRS = int(sys.argv[1]) if len(sys.argv) > 1 else 500
LEASES = int(sys.argv[2]) if len(sys.argv) > 2 else 1000


class Raw:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(str(path))
        self.number = 0

    def ask(self, path, body, key=""):
        head = f"POST {path} HTTP/1.1\r\nHost: sublet\r\n" + (f"Idempotency-Key: {key}\r\n" if key else "")
        self.socket.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self.socket.recv(65536)
        head, _, rest = answer.partition(b"\r\n\r\n")
        length = int(re.search(rb"Content-Length: (\d+)", head).group(1))
        while len(rest) < length:
            rest += self.socket.recv(65536)
        return rest

    def pair(self):
        self.number += 1
        body = json.dumps({"vram_bytes": MIB, "owner": {"pid": os.getpid()}})
        made = self.ask("/v1/leases", body, f"raw-{os.getpid()}-{self.number}")
        name = re.search(rb'"id":"(lease-\d+)"', made).group(1).decode()
        self.ask(f"/v1/leases/{name}/release", '{"force": true}')


def pair_of_the_package():
    with sublet.lease(MIB):
        pass


async def one():
    async with sublet.lease(MIB):
        pass


async def many():
    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(LEASES)))
    return time.perf_counter() - began


def show(name, times, raw):
    times.sort()
    p50 = statistics.median(times)
    print(f"{name:<44} {p50:>8.2f} {times[len(times) * 95 // 100]:>8.2f} {p50 - raw:>9.2f} {p50 / raw:>13.2f}")


def main():
    daemon = Daemon("1x24GiB", config="[limits]\nleases = 10000\n").start()
    os.environ["SUBLET_HOST"] = f"unix://{daemon.socket}"
    try:
        raw = Raw(daemon.socket)
        loop = asyncio.new_event_loop()
        pairs = {"raw: one connection, no JSON read": raw.pair,
                 "with sublet.lease (goal: 3 ms over raw)": pair_of_the_package,
                 "async with, one after the other": lambda: loop.run_until_complete(one())}
        times = {name: [] for name in pairs}
        for number in range(PAIRS + 10):
            for name, pair in pairs.items():
                began = time.perf_counter()
                pair()
                if number >= 10:  # the first pairs open connections
                    times[name].append(1000 * (time.perf_counter() - began))
        floor = statistics.median(next(iter(times.values())))
        print(f"{'request and release, ms':<44} {'p50':>8} {'p95':>8} {'over raw':>9} {'ratio to raw':>13}")
        for name, taken in times.items():
            show(name, taken, floor)
        for _ in range(3):
            took = asyncio.run(many())
            print(f"{f'{LEASES} async leases at once (goal: 1 s)':<44} {took:>8.2f} s    "
                  f"{1000 * took / LEASES / floor:>24.2f}")
        raw.socket.close()
        loop.close()
    finally:
        daemon.close()


if __name__ == "__main__":
    main()
