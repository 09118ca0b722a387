#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of pausing one program for another, on simulated cards with the costs of a real driver.

hand-over: from the request for VRAM that an idle program holds to the grant. Raw: the driver's own calls on the same
program, without a daemon; for a cooperative program, the duration of its callback in the same pause, as the program
measured it.
turns: three equal leases of 60, 50 and 35 % of the card for two minutes; and two of 60 % with a switch of a second each
way. Raw: the same work by one lease alone.

pause_bench.py [handover
turns
pair]...
"""
import contextlib
import json
import pathlib
import select
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from tests.support.driver_calls import park_and_back  # noqa: E402
from tests.support.sublet import GIB, MIB, Daemon, wait_until  # noqa: E402

CONTEXT = 64 * MIB
CONFIG = '[gpu]\ninterval_idle = "1s"\n[device]\nheadroom = "32MiB"\n'
HANDOVERS = 5
NOTICED = 1.0  # seconds; the API reports waits in whole seconds
OVERHEAD, SHORTEST = 0.1, 10.0  # `pause.slice_overhead`, and seconds within which no time slice ends
ASKED = 7 * GIB + 614 * MIB  # on a card of 8 GiB: beside each only a residue fits


@contextlib.contextmanager
def stage(sim, config=CONFIG):
    daemon = Daemon(f"{sim},context_bytes={CONTEXT}", config=config)
    try:
        yield daemon.start()
    finally:
        daemon.close()


def load(daemon, bytes_, seconds, *run, busy=0, leased=True, yields=False):
    words = ["simgpu-load", "--alloc", f"{bytes_ // MIB}MiB", "--seconds", f"{seconds}s", "--busy", busy, "--json"]
    words += ["--on-pause", "honest"] if yields else []
    if leased:
        vram = (bytes_ + CONTEXT) // MIB + 16
        words = ["sublet", "run", "--vram", f"{vram}MiB", *run, "--", *words]
    return daemon.spawn(*words)


def used(daemon):
    return daemon.cards()["devices"][0]["used_bytes"]


def end(program):
    program.terminate()
    out, err = program.communicate(timeout=120)
    return json.loads(next(line for line in reversed(out.splitlines()) if line.startswith("{")))


def verdict(kept):
    return "kept" if kept else "MISSED"


# --------------------------------------------------------------------------------------------- hand-over

def raw_park(daemon, bytes_):
    program = load(daemon, bytes_, 600, leased=False)
    wait_until(lambda: used(daemon) >= bytes_, "it has filled its memory")
    park, _ = park_and_back(program.pid, daemon.env())
    end(program)
    wait_until(lambda: used(daemon) == 0, "its memory is free")
    return park


def one_handover(daemon, bytes_, by_itself):
    """Returns the seconds until the grant, and the seconds of the callback."""
    way = "cooperative" if by_itself else "driver"
    victim = load(daemon, bytes_, 600, "--tag", "victim", "--tier", "batch", "--pausable", way, yields=by_itself)
    wait_until(lambda: (daemon.get("/v1/leases/victim").body.get("used_bytes") or 0) >= bytes_, "it is measured")
    api = daemon.api()
    began = time.monotonic()
    asked = api.post("/v1/leases", {"vram_bytes": ASKED, "tier": "interactive", "wait_seconds": 120})
    took = time.monotonic() - began
    assert asked["state"] == "offered", asked.body
    api.post(f"/v1/leases/{asked['id']}/release", {"force": True})
    wait_until(lambda: daemon.get("/v1/leases/victim")["state"] == "active", "it is back")
    callback = end(victim)["yield_ms"] / 1000
    api.close()
    wait_until(lambda: not daemon.get("/v1/leases")["leases"], "all have ended")
    return took, callback


def handover():
    print(f"{'hand-over':<26} {'raw s':>7} {'grant s':>8} {'most s':>7} {'goal s':>7} {'÷ raw':>6}")
    for way, by_itself in (("driver", False), ("by itself", True)):
        for size in (GIB // 2, 2 * GIB, 4 * GIB):
            with stage("1x8GiB") as daemon:
                raws = [] if by_itself else [raw_park(daemon, size) for _ in range(3)]
                all_took, callbacks = zip(*(one_handover(daemon, size, by_itself) for _ in range(HANDOVERS)))
            raw = statistics.median(callbacks if by_itself else raws)
            goal = raw + max(0.03 * raw, 0.15)
            middle = statistics.median(all_took)
            print(f"{f'{way}, {size / GIB:.1f} GiB':<26} {raw:>7.2f} {middle:>8.2f} {max(all_took):>7.2f} "
                  f"{goal:>7.2f} {middle / raw:>6.2f}  {verdict(middle <= goal)}", flush=True)


# --------------------------------------------------------------------------------------------- time slices

class Watch:
    """Records how long each lease was active, and whether any lease waited longer than announced."""

    def __init__(self, daemon, tags):
        self.daemon, self.tags = daemon, tags
        self.active = dict.fromkeys(tags, 0.0)
        self.moving = dict.fromkeys(tags, 0.0)  # time of the present pause or resume without a break
        self.longest = {"pausing": 0.0, "resuming": 0.0}  # the longest of each kind
        self.pauses = dict.fromkeys(tags, 0)
        self.state = dict.fromkeys(tags, "")
        self.promised = dict.fromkeys(tags)  # time at which the time slice should start, by the first announcement
        self.told = 0
        self.late = 0.0
        self.at = time.monotonic()

    def look(self):
        now = time.monotonic()
        for lease in self.daemon.get("/v1/leases")["leases"]:
            tag = lease["tag"]
            if tag not in self.active:
                continue
            if lease["state"] == "active":
                self.active[tag] += now - self.at
            self.moving[tag] = self.moving[tag] + now - self.at if lease["state"] == self.state[tag] else 0.0
            if lease["state"] in self.longest:
                self.longest[lease["state"]] = max(self.longest[lease["state"]], self.moving[tag])
            queue = lease.get("queue") or {}
            if lease["state"] in ("queued", "paused"):
                # Ends of other leases are estimates; time slices are announced.
                if self.promised[tag] is None and queue.get("basis", "").startswith("its time slice"):
                    self.promised[tag] = now + queue["eta_seconds"]
                    self.told += 1
            elif lease["state"] in ("active", "resuming") and self.promised[tag] is not None:
                self.late = max(self.late, now - self.promised[tag])
                self.promised[tag] = None
            self.pauses[tag] += lease["state"] == "pausing" != self.state[tag]
            self.state[tag] = lease["state"]
        self.at = now

    def follow(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.look()
            select.select([], [], [], 0.1)
        for promised in self.promised.values():  # a lease that still waits after its announced time is late too
            if promised is not None:
                self.late = max(self.late, time.monotonic() - promised)

    def quantum(self):
        """The length of a time slice by the rules for the longest switch: design 02, and `pause.slice_overhead`."""
        return max(SHORTEST, sum(self.longest.values()) / OVERHEAD)

    def lateness(self):
        return (f"longest wait beyond what was announced, of {self.told}: {self.late:.1f} s: "
                f"{verdict(self.told > 0 and self.late <= NOTICED)}")


def turns():
    shares = {"sixty": 0.60, "fifty": 0.50, "thirtyfive": 0.35}
    with stage("1x4GiB") as daemon:
        for tag, share in shares.items():
            load(daemon, int(4 * GIB * share) - CONTEXT - 48 * MIB, 150, "--tag", tag, busy=50)
        wait_until(lambda: len(daemon.get("/v1/leases")["leases"]) == 3, "all have asked")
        watch = Watch(daemon, shares)
        watch.follow(120)
    print(f"\n{'turns, two minutes':<26} {'of the card':>11} {'active s':>9} {'pauses':>7}")
    for tag, share in shares.items():
        print(f"{tag:<26} {share:>10.0%} {watch.active[tag]:>9.1f} {watch.pauses[tag]:>7}")
    differ = abs(watch.active["sixty"] - watch.active["fifty"])
    print(f"the 35 is never paused: {verdict(watch.pauses['thirtyfive'] == 0)}")
    print(f"the 60 and the 50 differ by {differ:.1f} s, a quantum being {watch.quantum():.1f} s: "
          f"{verdict(differ <= watch.quantum())}")
    print(watch.lateness(), flush=True)


def alone(daemon, bytes_, seconds):
    began = time.monotonic()
    out, _ = load(daemon, bytes_, seconds, busy=50).communicate(timeout=120)
    said = json.loads(out.splitlines()[-1])
    compute = said["compute_ms"] / 1000
    return said["launches"], compute, time.monotonic() - began - compute


def pair(seconds=180):
    with stage("1x4GiB") as daemon:
        for way in ("checkpoint", "restore"):
            daemon.ctl("set", f"{way}_us", 1_000_000)
            daemon.ctl("set", f"{way}_bandwidth", 0)
        bytes_ = int(4 * GIB * 0.6) - CONTEXT - 48 * MIB
        # Filling and checking its memory launches kernels too, the same number each time.
        (short, short_s, frame), (long, long_s, _) = (alone(daemon, bytes_, length) for length in (5, 35))
        rate = (long - short) / (long_s - short_s)
        besides = short - rate * short_s
        began = time.monotonic()
        two = [load(daemon, bytes_, seconds, "--tag", tag, busy=50) for tag in ("first", "second")]
        wait_until(lambda: len(daemon.get("/v1/leases")["leases"]) == 2, "both have asked")
        watch = Watch(daemon, ("first", "second"))
        watch.follow(seconds)
        work = 0
        for program in two:
            out, err = program.communicate(timeout=300)
            work += json.loads(out.splitlines()[-1])["launches"] - besides
        took = time.monotonic() - began
    serial = work / rate + 2 * frame  # both of them fill and check
    print(f"\ntwo of 60 %, a second each way: {work:.0f} steps in {took:.0f} s; one after the other, at {rate:.1f} "
          f"steps a second, {serial:.0f} s: {serial / took:.3f}, goal 0.88: {verdict(serial / took >= 0.88)}; "
          f"pauses {sum(watch.pauses.values())}, {watch.lateness()}")


if __name__ == "__main__":
    parts = {"handover": handover, "turns": turns, "pair": pair}
    for part in sys.argv[1:] or parts:
        parts[part]()
