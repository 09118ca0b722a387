#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The time that a shim adds to a program: inside a lease, without a daemon, and with a lease of its own.

The program is /bin/true. Raw: the same program without a shim, started in turn with the others. The lease alone is the
calls that the keeper makes, sent over one connection by this process; the last row is the call without them.

shim_bench.py [CALLS]
"""
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
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


def started(program, env):
    """Milliseconds from the start of the program to its end."""
    began = time.perf_counter()
    os.waitpid(os.posix_spawn(program, [program], env, file_actions=SILENT), 0)
    return 1000 * (time.perf_counter() - began)


class Caller:
    """The calls of a keeper, with as little of its own as possible."""

    def __init__(self, path):
        self.path = str(path)

    def ask(self, method, target, body=None):
        text = b"" if body is None else json.dumps(body).encode()
        key = f"Idempotency-Key: {os.urandom(16).hex()}\r\n" if method == "POST" else ""
        self.sock.sendall(f"{method} {target} HTTP/1.1\r\nHost: x\r\n{key}Content-Type: application/json\r\n"
                          f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
        got = b""
        while b"\r\n\r\n" not in got:
            got += self.sock.recv(65536)
        head, _, rest = got.partition(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length:")[2].split()[0])
        while len(rest) < size:
            rest += self.sock.recv(65536)
        assert head.split()[1].startswith(b"2"), rest
        return json.loads(rest)

    @staticmethod
    def record(folder):
        """The exit record, which is durable before the release."""
        file, place = os.open(folder / ".bench", os.O_WRONLY | os.O_CREAT), os.open(folder, os.O_RDONLY)
        os.write(file, b"x" * 90)
        os.fsync(file)
        os.unlink(folder / ".bench")
        os.fsync(place)
        os.close(file), os.close(place)

    def lease(self):
        """Milliseconds of a lease that is taken, given a program, and released. The program is started before."""
        child = subprocess.Popen(["sleep", "1000"])
        try:
            return self.timed_lease(child.pid)
        finally:
            child.kill()
            child.wait()

    def timed_lease(self, pid):
        began = time.perf_counter()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as self.sock:
            self.sock.connect(self.path)
            self.ask("GET", "/v1/status")
            made = self.ask("POST", "/v1/leases", {"vram_bytes": 64 << 20, "consumer": "bench", "command": PROGRAM,
                                                   "owner": {"connection": True}})
            assert made["state"] == "active", made
            place = f"/v1/leases/{made['id']}"
            held = self.ask("POST", f"{place}/attach", {"pid": pid, "keeper_pid": os.getpid()})
            self.record(pathlib.Path(held["exit_record"]).parent)
            self.ask("POST", f"{place}/release", {"exit_status": 0})
        return 1000 * (time.perf_counter() - began)


def run(daemon, home):
    env = daemon.env(HOME=home, PATH=f"{BIN}:/usr/bin:/bin")
    subprocess.run(["sublet", "shim", "add", "true", "--vram", "64MiB", "--real", PROGRAM], env=env, check=True,
                   stderr=subprocess.DEVNULL)
    shim = f"{home}/.local/share/sublet/shims/true"
    without = env | {"SUBLET_HOST": f"unix://{home}/nowhere"}
    rows = {name: [] for name in ("bare", "inside", "absent", "own", "lease")}
    caller = Caller(daemon.socket)
    again = [sys.executable, __file__, "--inside", shim, str(CALLS)]
    inside = subprocess.run(["sublet", "run", "-q", "--vram", "64MiB", "--", *again], env=env, check=True,
                            capture_output=True, text=True)
    rows["inside"] = json.loads(inside.stdout)
    for _ in range(CALLS):  # in turn, so that each has the same neighbours
        rows["bare"].append(started(PROGRAM, env))
        rows["absent"].append(started(shim, without))
        rows["own"].append(started(shim, env))
        rows["lease"].append(caller.lease())
    return rows


def tenth(values):
    """The time that a tenth of the calls undercuts: what a call takes when nothing else wants the processor."""
    return statistics.quantiles(values, n=10)[0]


def show(rows):
    texts = {"bare": "bare program", "inside": "shim inside a lease", "absent": "shim without a daemon",
             "own": "shim with a lease of its own", "lease": "the lease alone"}
    bare = [tenth(rows["bare"]), statistics.median(rows["bare"])]
    print(f"{'':<32} {'p10 ms':>8} {'over bare':>10} {'p50 ms':>8} {'over bare':>10} {'ratio to raw':>13}")

    def line(text, values, more=""):
        print(f"{text:<32} {values[0]:8.2f} {values[0] - bare[0]:10.2f} {values[1]:8.2f} {values[1] - bare[1]:10.2f} "
              f"{values[0] / bare[0]:13.1f}{more}")

    for name, text in texts.items():
        line(text, [tenth(rows[name]), statistics.median(rows[name])])
    line("shim besides its lease", [measure(rows["own"]) - measure(rows["lease"])
                                    for measure in (tenth, statistics.median)], f"   goal {GOAL:.0f} over bare")


def main():
    with tempfile.TemporaryDirectory() as home:
        daemon = Daemon()
        try:
            show(run(daemon.start(), home))
        finally:
            daemon.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        print(json.dumps([started(sys.argv[2], os.environ) for _ in range(int(sys.argv[3]))]))
    else:
        main()
