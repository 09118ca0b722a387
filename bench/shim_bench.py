#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The time that a shim adds to a program: inside a lease, without a daemon, and with a lease of its own.

The program is /bin/true. Raw: the same program without a shim, started in turn with the others. The goal concerns the
time besides the lease. The row for it has a server in place of the daemon, which repeats the daemon's answers at once.

shim_bench.py [CALLS]
"""
import contextlib
import json
import os
import pathlib
import select
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
if "SUBLET_BUILD_DIR" in os.environ:
    os.environ["SUBLET_BUILD"] = str(ROOT / os.environ["SUBLET_BUILD_DIR"])
sys.path.insert(0, str(ROOT))
from tests.support.sublet import BIN, Daemon  # noqa: E402

CALLS = int(sys.argv[1]) if len(sys.argv) == 2 else 300  # of each kind
GOAL = 5.0  # ms over the bare program, besides the lease
PROGRAM = "/bin/true"
SILENT = [(os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]  # a call without a daemon writes a line
ROWS = {"bare": "bare program", "inside": "shim inside a lease", "absent": "shim without a daemon",
        "besides": "shim besides its lease", "own": "shim with a lease of its own"}


def started(program, env):
    """Milliseconds from the start of the program to its end."""
    began = time.perf_counter()
    _, status = os.waitpid(os.posix_spawn(program, [program], env, file_actions=SILENT), 0)
    assert status == 0, (program, status)
    return 1000 * (time.perf_counter() - began)


class Repeater:
    """A server that gives the answers of a daemon, without a daemon's work. It leaves the long poll open."""

    def __init__(self, daemon, folder):
        api = daemon.api()
        status = api.get("/v1/status").body
        made = api.post("/v1/leases", {"vram_bytes": 64 << 20, "consumer": "bench", "owner": {"connection": True}}).body
        held = api.post(f"/v1/leases/{made['id']}/attach", {"pid": os.getpid(), "keeper_pid": os.getpid()}).body
        ended = api.post(f"/v1/leases/{made['id']}/release", {}).body
        api.close()
        held["exit_record"] = f"{folder}/record.json"
        self.answers = [("GET /v1/status", status), ("POST /v1/leases ", made), ("/attach ", held),
                        ("/release ", ended)]
        self.path = f"{folder}/repeater.sock"
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen(8)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        poll, clients = select.epoll(), {}
        poll.register(self.listener, select.EPOLLIN)
        while True:
            for number, _ in poll.poll():
                if number == self.listener.fileno():
                    client, _ = self.listener.accept()
                    clients[client.fileno()] = client
                    poll.register(client, select.EPOLLIN)
                elif request := clients[number].recv(65536):  # a request comes in one piece
                    self.answer(clients[number], request.split(b"\r\n", 1)[0].decode())
                else:
                    poll.unregister(number)  # a program that is being started may have a copy of the socket
                    clients.pop(number).close()

    def answer(self, client, line):
        for start, body in self.answers:
            if start in line:
                text = json.dumps(body)
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(text)}"
                client.sendall(f"{head}\r\n\r\n{text}".encode())


def measure(daemon, home):
    env = daemon.env(HOME=home, PATH=f"{BIN}:/usr/bin:/bin")
    del env["LD_LIBRARY_PATH"]  # the folder of the simulated cards, where the loader would look for each library
    subprocess.run(["sublet", "shim", "add", "true", "--vram", "64MiB", "--real", PROGRAM], env=env, check=True,
                   stderr=subprocess.DEVNULL)
    shim = f"{home}/.local/share/sublet/shims/true"
    repeater = Repeater(daemon, home)
    calls = {"bare": (PROGRAM, env), "absent": (shim, env | {"SUBLET_HOST": f"unix://{home}/nowhere"}),
             "besides": (shim, env | {"SUBLET_HOST": f"unix://{repeater.path}"}), "own": (shim, env)}
    again = [sys.executable, __file__, "--inside", shim, str(CALLS)]
    inside = subprocess.run(["sublet", "run", "-q", "--vram", "64MiB", "--", *again], env=env, check=True,
                            stdout=subprocess.PIPE, text=True)
    rows = {name: [] for name in calls}
    for _ in range(CALLS):  # in turn, so that each has the same neighbours
        for name, call in calls.items():
            rows[name].append(started(*call))
    return rows | {"inside": json.loads(inside.stdout)}


def show(rows):
    """p10 is what a call takes when nothing else wants the processor."""
    def both(values):
        return statistics.quantiles(values, n=10)[0], statistics.median(values)

    bare = both(rows["bare"])
    print(f"{'':<32} {'p10 ms':>8} {'over bare':>10} {'p50 ms':>8} {'over bare':>10} {'ratio to raw':>13}")
    for name, text in ROWS.items():
        low, half = both(rows[name])
        goal = f"   goal {GOAL:.0f} over bare" if name == "besides" else ""
        print(f"{text:<32} {low:8.2f} {low - bare[0]:10.2f} {half:8.2f} {half - bare[1]:10.2f} {half / bare[1]:13.1f}"
              f"{goal}")


def main():
    with tempfile.TemporaryDirectory() as home, contextlib.closing(Daemon()) as daemon:
        show(measure(daemon.start(), home))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        print(json.dumps([started(sys.argv[2], os.environ) for _ in range(int(sys.argv[3]))]))
    else:
        main()
