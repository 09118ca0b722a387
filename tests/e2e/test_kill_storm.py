# SPDX-License-Identifier: Apache-2.0
"""SIGKILL of each of our processes at random moments of the main job. SUBLET_SEED repeats a storm."""
import os
import random
import select
import signal

from tests.support.sublet import wait_until

KILLS = int(os.environ.get("SUBLET_KILLS", "15"))
VRAM_MIB = (700, 1100, 1500)


class Storm:
    def __init__(self, daemon, rng):
        self.daemon, self.rng = daemon, rng
        self.runs = []         # (process, name) of keepers that live or ended by themselves
        self.killed = set()    # names of the programs whose keeper the storm killed
        self.acknowledged = {}  # lease id → name, as the daemon reported
        self.started = 0

    def start_program(self):
        self.started += 1
        name = f"p{self.started}"
        vram = self.rng.choice(VRAM_MIB)
        process = self.daemon.spawn("sublet", "run", "--vram", f"{vram}MiB", "--name", name, "--", "simgpu-load",
                                    "--alloc", f"{vram - 350}MiB", "--seconds", str(self.rng.choice((0, 0, 1))))
        self.runs.append((process, name))

    def living(self):
        return [(process, name) for process, name in self.runs if process.poll() is None]

    def note_leases(self):
        for lease in self.daemon.get("/v1/leases?all=true")["leases"]:
            self.acknowledged[lease["id"]] = lease["consumer"]

    def kill_one(self):
        """Kills one of our processes. The chosen kind may not be running; then the storm kills another."""
        while True:
            victim = self.rng.choice(("subletd", "sublet-gpu", "sublet-actor", "keeper"))
            helper = self.daemon.child_pid(victim) if victim.startswith("sublet-") else None
            if victim == "subletd":
                self.daemon.kill()
                self.moment(0.2)
                self.daemon.start(wait_for_cards=False)
            elif helper:
                os.kill(helper, signal.SIGKILL)
            elif victim == "keeper" and self.living():
                process, name = self.rng.choice(self.living())
                process.kill()
                self.killed.add(name)
            else:
                continue
            return

    def moment(self, most):
        select.select([], [], [], self.rng.uniform(0, most))


def test_random_kills_lose_nothing(start_daemon):
    seed = int(os.environ.get("SUBLET_SEED", random.SystemRandom().randrange(1 << 32)))
    print(f"SUBLET_SEED={seed}")
    daemon = start_daemon("1x4GiB", config='[gpu]\ninterval_idle = "1s"\ninterval_busy = "200ms"\n')
    storm = Storm(daemon, random.Random(seed))
    for _ in range(KILLS):
        while len(storm.living()) < 4:
            storm.start_program()
        storm.moment(0.3)
        storm.note_leases()
        storm.kill_one()
        known = {lease["id"] for lease in daemon.get("/v1/leases?all=true")["leases"]}
        assert set(storm.acknowledged) <= known, "an acknowledged lease is lost"

    for process, name in storm.runs:
        status = process.wait(120)
        if name not in storm.killed:
            assert status == 0, f"{name}: {status}: {process.stdout.read()} {process.stderr.read()}"
    api = daemon.api()
    wait_until(lambda: not api.get("/v1/leases")["leases"], "all leases have ended", 90)
    storm.note_leases()
    ended = {lease["id"]: lease for lease in api.get("/v1/leases?all=true")["leases"]}
    assert set(storm.acknowledged) <= set(ended)
    for process, name in storm.runs:
        mine = [lease for lease in ended.values() if lease["consumer"] == name]
        assert len(mine) == 1 or name in storm.killed and not mine, f"{name} has {len(mine)} leases: one was made twice"
        if name not in storm.killed:
            assert (mine[0]["end_reason"], mine[0]["exit_status"]) == ("released", 0), mine[0]
    # Leases were only promised bytes that were there: no program was refused memory, and no bytes are left.
    wait_until(lambda: (device := api.get("/v1/devices")["devices"][0])["leased_bytes"] == 0 and
               device["used_bytes"] == 0, "the card is empty")
