# SPDX-License-Identifier: Apache-2.0
"""Runs many programs of all kinds on cards that are too small for them, and checks each program and its bytes."""
import json
import os
import pathlib
import select
import time

from .sublet import GIB, MIB, wait_until

CARD = 4 * GIB
CONTEXT = 64 * MIB
SPEC = f"1x4GiB,context_bytes={CONTEXT}"
UNLEASED = 16 * MIB  # without its context; there is one at a time, so that the headroom is enough for it
CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n[device]\nheadroom = "160MiB"\n'
          '[lease]\nlinger = "1s"\nreconnect = "10s"\ngrace = "2s"\n'
          '[pause]\nverify_timeout = "5s"\nyield_timeout = "5s"\ncooldown = "500ms"\nmin_residency = "1500ms"\n'
          'slice_overhead = 1.0\n')
PATIENCE = 300  # seconds after which a program that should have ended must have ended

# The ways in which a program can be paused: flags of `sublet run`, flags of the program.
KINDS = {
    "driver": ((), ()),
    "cooperative": ((), ("--on-pause", "honest")),
    "only cooperative": (("--pausable", "cooperative"), ("--on-pause", "honest")),
    "pinned": (("--pausable", "no"), ()),
    "spot": (("--tier", "spot"), ()),
    "pinned spot": (("--tier", "spot", "--pausable", "no"), ()),
    "liar": ((), ("--on-pause", "liar")),
    "half": ((), ("--on-pause", "half")),
    "late": ((), ("--on-pause", "late")),
    "unresponsive": ((), ("--on-pause", "unresponsive")),
}
RUDE = ("liar", "half", "late", "unresponsive")

# Passing faults that must harm no program: words of simgpu-ctl, and the longest duration in ms.
FAULTS = (("lock-hang", 2000), ("checkpoint-hang", 2000), ("restore-hang", 2000), ("unlock-hang", 2000),
          ("state-hang", 1500), ("checkpoint-fail", 0), ("nvml-hang", 3000), ("nvml-error", 3000),
          ("restore-fail", 0), ("nvml-empty", 1500), ("nvml-late", 3000), ("nvml-missing-pid", 1500))


class Program:
    def __init__(self, process, tag, kind):
        self.process, self.tag, self.kind = process, tag, kind
        self.killed = False


# A program that allocates half as much again while it is paused takes memory that was promised to others. Nothing can
# keep the others from running out of memory, so only tests that expect this start such a program.
ROBBER = ((), ("--on-pause", "again"))


class Crowd:
    """Starts programs, injects faults, and sums up. Every program that the crowd did not kill must have ended well."""

    def __init__(self, daemon, rng):
        self.daemon, self.rng = daemon, rng
        self.living, self.started = [], 0
        self.unleased = None
        self.robbed = False  # whether a program that takes other programs' memory has ever run
        self.sums = {"programs": 0, "pauses": 0, "verified": 0, "faults": 0, "kills": 0, "revoked": 0,
                     "poisoned": 0, "unleased_processes": 0, "out of memory": 0}
        self.wrong = []

    def start(self, kind, vram, seconds, tier=None):
        self.started += 1
        tag = f"p{self.started}"
        vram -= vram % (2 * MIB)
        run, load = ROBBER if kind == "again" else KINDS[kind]
        self.robbed |= kind == "again"
        tier = ("--tier", tier) if tier and "--tier" not in run else ()
        alloc = vram - CONTEXT - 16 * MIB
        process = self.daemon.spawn("sublet", "run", "--vram", f"{vram // MIB}MiB", "--tag", tag, *tier, *run, "--",
                                    "simgpu-load", "--alloc", f"{alloc // MIB}MiB", "--seconds", f"{seconds:.1f}s",
                                    "--verify", "--json", *load)
        program = Program(process, tag, kind)
        self.living.append(program)
        return program

    def reap(self):
        """Returns the programs that have ended since the last call."""
        self.end_poisoned()
        ended = [program for program in self.living if program.process.poll() is not None]
        self.living = [program for program in self.living if program not in ended]
        for program in ended:
            self.judge(program)
        return ended

    def judge(self, program):
        out, err = program.process.communicate()
        status = program.process.returncode
        why = self.daemon.get(f"/v1/leases/{program.tag}/why").body
        lease = self.daemon.get(f"/v1/leases/{program.tag}").body
        self.sums["programs"] += 1
        self.sums["pauses"] += sum(reason["code"] == "paused" for reason in why.get("reasons", []))
        result = next((json.loads(line) for line in reversed(out.splitlines()) if line.startswith("{")), {})
        self.sums["verified"] += result.get("verified_bytes", 0)
        # The keeper prints the driver's error of a poisoned program. This line is not the program's own output.
        said = "\n".join(line for line in (out + err).splitlines() if " is poisoned: " not in line)
        if "cannot allocate" in said or "OUT_OF_MEMORY" in said:
            self.sums["out of memory"] += 1
            if self.robbed:
                return
        if program.killed:
            return
        revoked = program.kind == "pinned spot" and lease.get("end_reason") == "revoked"
        self.sums["revoked"] += revoked
        if not revoked and not (status == 0 and result.get("ok")):
            self.wrong.append(f"{program.tag} ({program.kind}): status {status}, {result}, {err}\n{why}")

    # --- faults ---
    def fault(self):
        name, most = self.rng.choice(FAULTS)
        more = ("--duration", f"{self.rng.randint(100, most)}ms") if most else ("--nth", 1)
        if name.endswith("-hang") or name == "nvml-missing-pid":  # else the fault would hit every call
            more += ("--nth", 1)
        self.daemon.ctl("clear", name)  # there is space for few faults only, and a fault that was never hit stays
        self.daemon.ctl("fault", name, *more)
        self.sums["faults"] += 1

    def end_poisoned(self):
        """Kills the poisoned programs: the daemon keeps them, and only the test ends them."""
        poisoned = {lease["tag"] for lease in self.leases() if lease["state"] == "poisoned"}
        for program in self.living:
            if program.tag in poisoned and not program.killed and self.kill(program):
                self.sums["poisoned"] += 1

    def leases(self):
        try:
            return self.daemon.get("/v1/leases").body.get("leases", [])
        except OSError:
            return []

    def let_an_unleased_process_in(self):
        """Starts a process without a lease, no larger than the headroom: no program may notice."""
        if self.unleased is not None and self.unleased.poll() is None:
            return
        self.unleased = self.daemon.spawn("simgpu-load", "--alloc", f"{UNLEASED // MIB}MiB", "--seconds",
                                          f"{self.rng.uniform(0.2, 3):.1f}s")
        self.sums["unleased_processes"] += 1

    def kill_a_program(self):
        """Kills a program's process tree, by a signal from an unknown sender."""
        if self.living and self.kill(self.rng.choice(self.living)):
            self.sums["kills"] += 1

    def kill(self, program):
        """Kills the program's processes; returns whether there were any."""
        below = children_of(program.process.pid)
        program.killed |= bool(below)
        for pid in below:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        return bool(below)

    def kill_the_daemon(self):
        self.sums["kills"] += 1
        self.daemon.kill()
        moment(self.rng.uniform(0, 0.5))
        self.daemon.start(wait_for_cards=False)

    # --- the end ---
    def finish(self):
        """Waits until every program ends. Then no bytes are left, and no program has seen an out of memory."""
        violations = self.daemon.cards()["violations_by_kind"]
        self.daemon.ctl("clear")
        deadline = time.monotonic() + PATIENCE
        while self.living and time.monotonic() < deadline:
            self.reap()
            moment(0.1)
        left = [(program.tag, program.kind, self.daemon.get(f"/v1/leases/{program.tag}/why").body)
                for program in self.living]
        assert not left, f"they never ended: {left}"
        assert not self.wrong, "\n".join(self.wrong)
        assert self.robbed or self.sums["out of memory"] == 0, self.sums
        wait_until(lambda: not self.daemon.get("/v1/leases")["leases"], "all leases have ended", 90)
        assert self.daemon.get("/v1/ledger")["entries"] == []
        wait_until(lambda: self.daemon.get("/v1/devices")["devices"][0]["used_bytes"] == 0, "the card is empty")
        assert not violations and self.daemon.cards()["violations"] == 0, violations

    def table(self, what, seed, seconds):
        sums = self.sums
        return (f"| {what} | {seed} | {seconds:.0f} s | {sums['programs']} | {sums['pauses']} | "
                f"{sums['verified'] / GIB:.1f} GiB | {sums['faults']} | {sums['kills']} | {sums['revoked']} | "
                f"{sums['poisoned']} | {sums['unleased_processes']} | {sums['out of memory']} |")


HEAD = ("| run | seed | time | programs | pauses | bytes verified | faults injected | killed | spot ended | "
        "poisoned | unleased processes | out of memory seen |\n|" + 12 * " --- |")


def moment(seconds):
    select.select([], [], [], seconds)


def children_of(pid):
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found.append(int(entry.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found


WANTED = 1.5  # total demand of the programs of a random crowd at one time, in cards
SHARES = (0.04, 0.5)  # smallest and largest share of the card that a program wants


def soak(daemon, rng, programs, seconds, at_once=24, robbers=False):
    """Starts `programs` random programs over `seconds`, most of them honest, and injects faults meanwhile."""
    crowd = Crowd(daemon, rng)
    longest = 2 * WANTED * seconds / (programs * sum(SHARES) / 2)
    rude_ones = (*RUDE, "again", "again") if robbers else RUDE
    began = time.monotonic()
    next_trouble = began
    while crowd.started < programs or time.monotonic() - began < seconds:
        now = time.monotonic() - began
        crowd.reap()
        if crowd.started < min(programs, 1 + programs * now / seconds) and len(crowd.living) < at_once:
            rude = rng.random() < 0.2
            kind = rng.choice(rude_ones if rude else [kind for kind in KINDS if kind not in RUDE])
            share = rng.uniform(*SHARES)
            crowd.start(kind, int(CARD * min(share, 0.2 if kind == "pinned" else 1)), rng.uniform(0.3, longest),
                        rng.choice(("batch", "standard", "standard", "interactive")))
        if time.monotonic() >= next_trouble:
            next_trouble = time.monotonic() + rng.uniform(0.5, 5)
            rng.choice((crowd.fault, crowd.fault, crowd.fault, crowd.fault, crowd.fault, crowd.kill_a_program,
                        crowd.let_an_unleased_process_in, crowd.let_an_unleased_process_in, crowd.kill_the_daemon))()
        moment(0.05)
    crowd.finish()
    # A small crowd may fit by chance.
    assert programs < 100 or crowd.sums["pauses"] > programs / 10, "they want more than the card: some must yield"
    return crowd


# Eight programs that want 2.5 times the card, pauses between runs included: kind, share of the card, tier.
EIGHT = (("driver", 0.38, "standard"), ("cooperative", 0.64, "standard"), ("pinned", 0.18, "interactive"),
         ("spot", 0.45, None), ("only cooperative", 0.25, "interactive"), ("driver", 0.20, "batch"),
         ("cooperative", 0.45, "standard"), ("pinned spot", 0.25, None))
EIGHT_WANT = 2.5  # mean demand over the time, in cards


def promise(daemon, rng, seconds):
    """Runs each of the eight again and again until the time is over. The urgent programs leave memory free in between.
    """
    crowd = Crowd(daemon, rng)
    began = time.monotonic()
    slots = {number: (None, 0.0) for number in range(len(EIGHT))}  # the running program, and when the next may start
    wanted, looked_at = 0.0, 0.0  # demand of the living programs in cards, summed up over the time until `looked_at`
    while True:
        now = time.monotonic() - began
        crowd.reap()
        wanted += (now - looked_at) * sum(EIGHT[number][1] for number, (program, _) in slots.items() if program)
        looked_at = now
        for number, (program, after) in slots.items():
            kind, share, tier = EIGHT[number]
            if program is not None and program not in crowd.living:
                rest = rng.uniform(8, 20) if tier == "interactive" else rng.uniform(0, 3)
                slots[number] = (None, now + rest)
            elif program is None and after <= now and (now < seconds or after == 0):
                time_of_it = rng.uniform(3, 5) if seconds == 0 else rng.uniform(15, 60)
                slots[number] = (crowd.start(kind, int(CARD * share), time_of_it, tier), now)
        if now >= seconds:
            break
        moment(0.05)
    crowd.finish()
    crowd.wanted = wanted / looked_at if looked_at else sum(share for _, share, _ in EIGHT)
    assert crowd.wanted >= EIGHT_WANT or seconds < 300, f"they want {crowd.wanted:.2f} cards, and should want more"
    assert crowd.sums["pauses"] > 0, "they want more than there is: somebody must have made room"
    return crowd
