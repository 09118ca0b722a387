#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Time until a killed daemon with many leases serves again: nearly all of them queued, or nearly all active.

Active leases are token leases of 1 MiB on a simulated card of 24 GiB; the others want 20 GiB. Raw: reading and decoding
the same rows from the store by sqlite3 in this process.

The daemon serves when a lease from before the kill can be read, and a new lease is accepted and durable.
"""
import contextlib
import http.client
import json
import pathlib
import sqlite3
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import demo  # noqa: E402

LEASES = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
CLIENTS = 32
SMALL, LARGE = 1 << 20, 20 << 30


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self.path = str(path)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(self.path)

    def ask(self, method, path, body=None):
        self.request(method, path, None if body is None else json.dumps(body))
        reply = self.getresponse()
        return reply.status, json.loads(reply.read())


def fill(path, size, count, problems):
    connection = Unix(path)
    for _ in range(count):
        status, body = connection.ask("POST", "/v1/leases", {"vram_bytes": size, "ttl_seconds": 86400})
        if status not in (201, 202):
            problems.append(body)
            return


def fill_side_by_side(path, size, count):
    problems = []
    clients = [threading.Thread(target=fill, args=(path, size, (count + i) // CLIENTS, problems))
               for i in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    if problems:
        raise SystemExit(f"a lease was refused: {problems[0]}")


def until_it_serves(path, lease, deadline):
    while time.monotonic() < deadline:
        try:
            connection = Unix(path)
            status, _ = connection.ask("GET", f"/v1/leases/{lease}")
            made, _ = connection.ask("POST", "/v1/leases", {"vram_bytes": SMALL, "ttl_seconds": 600})
            if status == 200 and made in (201, 202):
                return
        except OSError:
            pass
    raise SystemExit("the daemon does not serve")


def restart(active, queued):
    stage = demo.Demo(sim="1x24GiB")
    (stage.dir / "sublet.toml").write_text(f"[limits]\nconnections = 1024\nleases = {LEASES + 1000}\n")
    path = stage.dir / "sublet.sock"
    try:
        stage.start_daemon()
        stage.until(lambda: Unix(path).ask("GET", "/v1/devices")[1]["devices"], "the card is read")
        fill_side_by_side(path, SMALL, active)
        # They must not fit beside one another: the first of them is active too.
        fill_side_by_side(path, LARGE, queued)
        counts = Unix(path).ask("GET", "/v1/status")[1]["leases"]
        told = f"{counts['active']} active, {counts['queued']} queued"
        store = stage.dir / "state" / "store.db"
        print(f"{'restart, ' + told:<34} {'seconds':>8} {'ratio to raw':>13}")
        raw = None
        for _ in range(3):
            stage.daemon.kill()
            stage.daemon.wait()
            began = time.monotonic()
            with contextlib.closing(sqlite3.connect(store)) as reading:
                rows = reading.execute("SELECT * FROM leases WHERE settled = 0").fetchall()
            took = time.monotonic() - began
            raw = min(took, raw or took)
            began = time.monotonic()
            stage.daemon = subprocess.Popen([str(demo.BIN / "subletd"), "--dir", str(stage.dir)],
                                            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            until_it_serves(path, "lease-1", began + 20)
            print(f"{'killed, started, served':<34} {time.monotonic() - began:>8.3f} "
                  f"{(time.monotonic() - began) / raw:>13.1f}")
        print(f"{f'raw: {len(rows)} rows by sqlite3':<34} {raw:>8.3f} {1.0:>13.1f}")
    finally:
        stage.end()


def main():
    for queued in (LEASES, LEASES // 10):
        restart(LEASES - queued, queued)


if __name__ == "__main__":
    main()
