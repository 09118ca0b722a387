#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Ceilings and supervised programs on simulated cards: how soon a leak is ended, how soon a program is back, and what
the readings cost.

leak: a program fills at 1 GiB/s. The delay is its use above the ceiling at the reading that ended it, divided by that
rate. Raw: the time between two readings near the ceiling, 20 ms.
leap: one allocation of three times the ceiling. The time runs from the program's first memory to the end of its lease.
back: a killed program whose memory is kept. The time runs from its end to its next start, less the back-off of 1 s.
storm: 199 programs are killed at once and start again. Meanwhile /v1/status is asked, and a program leaks at 1 GiB/s.
idle: processor time of the daemon and its probe, without a ceiling and with ten programs at rest. Raw: the same daemon
without a program.

guard_bench.py [leak | leap | back | storm | idle]...
"""
import contextlib
import datetime
import os
import pathlib
import signal
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tests.support.sublet import GIB, MIB, Daemon, wait_until  # noqa: E402

TRIES = 5
RATE = GIB  # bytes a second
SECONDS = 20.0
STORM = 199  # with the leaking program, as many as one user may have
TICKS = os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def stage(sim="1x24GiB"):
    daemon = Daemon(sim, config="[lease]\ngrace = \"5s\"\n")
    try:
        yield daemon.start()
    finally:
        daemon.close()


def add(daemon, tag, *words, **fields):
    api = daemon.api()
    reply = api.post("/v1/programs", {"tag": tag, "arguments": ["simgpu-load", *words], "directory": "/",
                                      "environment": [f"PATH={daemon.env()['PATH']}"], **fields})
    api.close()
    assert reply.status == 201, reply


def program(daemon, tag):
    return daemon.get(f"/v1/programs/{tag}").body


def reaches(daemon, tag, state, starts=1):
    return wait_until(lambda: (now := program(daemon, tag))["state"] == state and now["starts"] >= starts and now,
                      f"{tag} is {state}")


def at(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def show(name, values, unit, limit):
    print(f"{name:<44} median {statistics.median(values):8.1f} {unit}   worst {max(values):8.1f} {unit}   {limit}")


def leak():
    delays, peaks = [], []
    with stage() as daemon:
        for i in range(TRIES):
            add(daemon, f"leak{i}", "--alloc", "8GiB", "--step", "16MiB", "--rate", "1GiB/s", memory_bytes=2 * GIB,
                vram_bytes=2 * GIB)
            lease = daemon.api().lease(reaches(daemon, f"leak{i}", "failed")["lease"])
            assert lease["end_reason"] == "over_limit", lease
            peaks.append((lease["peak_used_bytes"] - 2 * GIB) / MIB)
            delays.append(1000 * (lease["peak_used_bytes"] - 2 * GIB) / RATE)
    show("leak: crossing to the first stopping act", delays, "ms", f"goal 100; ratio to raw {max(delays) / 20:.1f}")
    show("leak: use above the ceiling", peaks, "MiB", "goal 256")


def leap():
    took = []
    with stage() as daemon:
        for i in range(TRIES):
            add(daemon, f"leap{i}", "--alloc", "6GiB", "--seconds", "60", memory_bytes=2 * GIB, vram_bytes=2 * GIB)
            lease = daemon.api().lease(reaches(daemon, f"leap{i}", "failed")["lease"])
            took.append(1000 * (at(lease["ended_at"]) - at(lease["granted_at"])))
    show("leap: grant to the end of the lease", took, "ms", "goal 1000, the program's start included")


def back():
    took = []
    with stage() as daemon:
        for i in range(TRIES):
            tag = f"back{i}"
            add(daemon, tag, "--alloc", "1GiB", "--seconds", "600", vram_bytes=2 * GIB, restart="always")
            first = wait_until(lambda tag=tag: (now := program(daemon, tag))["used_bytes"] > GIB and now, "it runs")
            os.kill(first["pid"], signal.SIGKILL)
            again = reaches(daemon, tag, "running", starts=2)
            ended = daemon.api().lease(first["lease"])["ended_at"]
            took.append(1000 * (at(again["since"]) - at(ended) - 1.0))
            daemon.api().post(f"/v1/programs/{tag}/stop", {})
            reaches(daemon, tag, "stopped", starts=2)
    show("back: after the back-off", took, "ms", "goal 200")


def storm():
    took, peaks = [], []
    with stage() as daemon:
        api = daemon.api()
        for i in range(STORM):
            api.post("/v1/programs", {"tag": f"serve{i}", "arguments": ["sleep", "600"], "directory": "/",
                                      "environment": ["PATH=/bin"], "vram_bytes": MIB, "restart": "always"})

        def up(starts):
            rows = [row for row in api.get("/v1/programs")["programs"] if row["tag"].startswith("serve")]
            return all(row["pid"] and row["starts"] >= starts for row in rows) and rows

        pids = [row["pid"] for row in wait_until(lambda: up(1), "all run", timeout=300)]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        began = time.monotonic()
        add(daemon, "leak", "--alloc", "8GiB", "--step", "16MiB", "--rate", "1GiB/s", memory_bytes=2 * GIB,
            vram_bytes=2 * GIB)

        def back():
            asked = time.monotonic()
            api.get("/v1/status")
            took.append(1000 * (time.monotonic() - asked))
            return len(took) % 50 == 0 and up(2)

        wait_until(back, "all run again", timeout=300)
        print(f"storm: all {STORM} run again after {time.monotonic() - began:.1f} s")
        lease = api.lease(reaches(daemon, "leak", "failed")["lease"])
        peaks.append((lease["peak_used_bytes"] - 2 * GIB) / MIB)
    show("storm: /v1/status", took, "ms", "goal 50")
    show("storm: use above the ceiling", peaks, "MiB", "goal 256")


def used_by(pids):
    ticks = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS


def share(daemon):
    pids = [daemon.process.pid, daemon.child_pid("sublet-gpu")]
    before, began = used_by(pids), time.monotonic()
    wait_until(lambda: time.monotonic() - began >= SECONDS, "the time is over")
    return 100 * (used_by(pids) - before) / (time.monotonic() - began)


def idle():
    with stage() as daemon:
        empty = share(daemon)
        for i in range(10):
            add(daemon, f"rest{i}", "--alloc", "512MiB", "--seconds", "600", "--busy", "0", vram_bytes=2 * GIB)
            wait_until(lambda i=i: program(daemon, f"rest{i}")["used_bytes"] > 512 * MIB, "it rests")
        without = share(daemon)
        api = daemon.api()
        for i in range(10):
            api.post(f"/v1/programs/rest{i}/update", {"memory_bytes": 2 * GIB})
        with_ceilings = share(daemon)
        api.close()
    print(f"idle: of a core, {empty:.2f} % without a program, {without:.2f} % with ten, {with_ceilings:.2f} % with ten "
          f"ceilings (goal: 1 % more); ratio to raw {with_ceilings / max(empty, 0.01):.1f}")


PARTS = {"leak": leak, "leap": leap, "back": back, "storm": storm, "idle": idle}
if __name__ == "__main__":
    for name in sys.argv[1:] or PARTS:
        PARTS[name]()
