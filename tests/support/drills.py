# SPDX-License-Identifier: Apache-2.0
"""Drills: two programs want more memory than the card has, and something goes wrong while one is paused for the other.

A drill plays a case to its end, for tests that interrupt the daemon at any point. The assertions of a drill hold
whatever happens to the daemon meanwhile.
"""
import dataclasses
import os
import re
import signal
from collections.abc import Callable

from tests.support.parking import quick_checkpoints
from tests.support.retrying import Retrying
from tests.support.sublet import MIB, Daemon, living, wait_until

CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\nmax_age = "2s"\n[device]\nheadroom = "64MiB"\n'
          '[lease]\nlinger = "2s"\nreconnect = "5s"\ngrace = "3s"\n'
          '[pause]\nverify_timeout = "10s"\ncooldown = "300ms"\nmin_residency = "500ms"\n')
LOOKS = 10  # while a program runs, one look in so many checks whether memory is promised twice


@dataclasses.dataclass
class Drill:
    play: Callable      # runs with a Stage
    matter: tuple       # the transitions at which tests interrupt the drill even in a short run
    more: str           # lines of the configuration
    command: Callable   # command that runs before the daemon's, made from the private directory

    def stage(self):
        daemon = Daemon("1x4GiB", CONFIG + self.more)
        try:
            daemon.command = self.command(daemon.dir)
        except BaseException:  # skips the test if this machine does not allow it
            daemon.close()
            raise
        return Stage(daemon)


DRILLS = {}


def drill(*matter, more="", command=lambda _: ()):
    """Registers a function as the drill of its name."""
    def register(play):
        assert play.__name__ not in DRILLS, f"two drills {play.__name__}"
        DRILLS[play.__name__] = Drill(play, matter, more, command)
        return play
    return register


def reached(log):
    """Returns the failpoints that a log of `--failpoint log` shows, each as often as it was reached."""
    return re.findall(r"^failpoint (\S+)$", log, re.MULTILINE)


class Stage(Retrying):
    def __init__(self, daemon):
        super().__init__(daemon)
        self.before = []  # the failpoints reached until the drill begins

    def begins(self):
        """Marks the begin of the drill: failpoints that are reached from here on belong to the drill."""
        self.before = reached(self.daemon.log())

    # --- programs ---

    def program(self, tag, vram, alloc, *flags, load=(), seconds=600):
        self.runs += 1
        return self.daemon.spawn("sublet", "run", "--vram", vram, "--tag", tag, *flags, "--", "simgpu-load", "--alloc",
                                 alloc, "--seconds", seconds, "--verify", "--json", *load)

    def filled(self, tag, vram="3GiB", alloc="2560MiB", *flags, load=()):
        """Starts a program of a low tier and waits until it has filled its memory and, if cooperative, has registered.
        """
        quick_checkpoints(self.daemon)
        keeper = self.program(tag, vram, alloc, "--tier", "batch", *flags, load=load)
        self.has(tag, alloc)
        if "--on-pause" in load:
            wait_until(lambda: self.get(f"/v1/leases/{tag}/cooperate")["registered"], "it has registered")
        return keeper

    def preemptor(self, vram="2GiB", alloc="1536MiB", seconds=1):
        """Starts a program of a higher tier, for which the memory beside the others is not enough."""
        return self.program("preemptor", vram, alloc, "--tier", "interactive", seconds=seconds)

    def unleased(self, alloc):
        """Starts a process without a lease and waits until the daemon sees it."""
        child = self.daemon.spawn("simgpu-load", "--alloc", alloc, "--seconds", "600")
        wait_until(lambda: self.get("/v1/devices")["devices"][0]["other_bytes"] >= int(alloc[:-3]) * MIB, "it is seen")
        return child

    def has(self, tag, alloc):
        self.until(tag, lambda now: now.get("used_bytes", 0) >= int(alloc[:-3]) * MIB)

    def pid(self, tag):
        return self.get(f"/v1/leases/{tag}")["owner"]["pid"]

    def dies(self, tag):
        os.kill(self.pid(tag), signal.SIGKILL)

    def ended(self, keeper):
        looks = 0

        def poll():
            nonlocal looks
            looks += 1
            if looks % LOOKS == 0:
                self.until_now()
            else:
                self.revive()
            return keeper.poll() is not None
        wait_until(poll, "the program ends", 120)
        return keeper.returncode

    def until_now(self):
        devices = [device for device in self.get("/v1/devices")["devices"] if device["state"] == "ok"]
        self.nothing_is_promised_twice(self.get("/v1/leases")["leases"], devices)

    def done(self, keeper):
        """Checks that the program has ended by itself with success."""
        assert self.ended(keeper) == 0, keeper.communicate()

    def leaves(self, tag, keeper):
        """Waits until the program runs, and ends it by SIGTERM. Every byte must be unchanged."""
        self.until(tag, lambda now: now.get("state") == "active")
        os.kill(self.pid(tag), signal.SIGTERM)
        assert self.ended(keeper) == 128 + signal.SIGTERM, keeper.communicate()
        assert '"wrong_words":0' in keeper.stdout.read()

    def is_gone(self, tag, keeper, reason="owner_gone"):
        self.ends(tag, reason)
        assert self.ended(keeper) == 128 + signal.SIGKILL, keeper.communicate()

    # --- observations ---

    def state(self, tag, *states):
        return self.until(tag, lambda now: now.get("state") in states)

    def texts(self, tag, code):
        return [each["text"] for each in self.get(f"/v1/leases/{tag}/why")["reasons"] if each["code"] == code]

    def fault(self, *words):
        self.daemon.ctl("fault", *words)

    def clear(self):
        self.daemon.ctl("clear")

    def hangs(self):
        def hit():
            self.revive()
            return any(fault["hits"] for fault in self.daemon.cards()["faults"])
        wait_until(hit, "the driver is at work on it")

    def restores(self):
        return self.daemon.cards()["calls"].get("cuCheckpointProcessRestore", 0)

    def is_over(self):
        """Waits until nothing is left: on the card, in host memory, in the table."""
        def nothing_left():
            card, = self.get("/v1/devices")["devices"]
            return self.get("/v1/ledger")["entries"] == [] and card["used_bytes"] == 0 and \
                card["other_bytes"] == 0 and self.get("/v1/leases")["leases"] == []
        wait_until(nothing_left, "nothing is left")
        self.check()


# --- without a fault ---

@drill("pausing", "lock_intent", "paused", "offered", "claimed", "resume_queued", "resuming", "resumed")
def makes_room(stage):
    victim = stage.filled("victim")
    stage.begins()
    stage.done(stage.preemptor())
    stage.leaves("victim", victim)


@drill("pausing", "paused", "offered", "claimed", "resumed")
def two_make_room(stage):
    """Neither victim alone is enough."""
    victims = {tag: stage.filled(tag, "1800MiB", "1280MiB") for tag in ("one", "two")}
    stage.begins()
    stage.done(stage.preemptor("3600MiB", "2560MiB"))
    for tag, victim in victims.items():
        stage.leaves(tag, victim)


# --- programs that yield wrongly ---

def yields_badly(stage, how, *more):
    # The bytes that the victim copies to the host by itself use host memory in full.
    victim = stage.filled("victim", "2500MiB", "256MiB", load=("--on-pause", how, *more))
    stage.begins()
    stage.done(stage.preemptor("3GiB"))
    stage.leaves("victim", victim)


@drill("undone", "next_method", "paused")
def liar(stage):
    yields_badly(stage, "liar")


@drill("undone", "next_method", "paused")
def half_liar(stage):
    yields_badly(stage, "half", "--step", "16MiB")


@drill("undone", "resumed", more='yield_timeout = "3s"\n')
def late_yielder(stage):
    yields_badly(stage, "late")


@drill("undone", "next_method", "resumed", more='yield_timeout = "3s"\n')
def never_gets_to_it(stage):
    yields_badly(stage, "unresponsive")


@drill("allocated_while_paused")
def allocates_again(stage):
    """The victim allocates while it is paused, and its memory is another lease's."""
    victim = stage.filled("victim", "3GiB", "256MiB", load=("--on-pause", "again-at-usr1"))
    stage.begins()
    preemptor = stage.preemptor("2GiB", "1024MiB", seconds=600)
    stage.has("preemptor", "1024MiB")
    stage.holds_again("victim")
    wait_until(lambda: stage.restarts or stage.texts("victim", "allocated_while_paused"), "it is told")
    stage.leaves("preemptor", preemptor)
    stage.leaves("victim", victim)


@drill("pausing", "undone", "resumed")
def stopped(stage):
    """A stopped victim answers no order, and neither does its driver."""
    victim = stage.filled("victim")
    pid = stage.pid("victim")
    os.kill(pid, signal.SIGSTOP)
    stage.begins()
    preemptor = stage.preemptor()
    wait_until(lambda: stage.texts("victim", "resuming"), "it is found out and undone")
    os.kill(pid, signal.SIGCONT)
    stage.done(preemptor)
    stage.leaves("victim", victim)


DEAF = """
import ctypes, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
cuda, context, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1 << 30)) == 0
signal.pause()
"""


@drill("spot_ended", "killing", "settled")
def deaf_spot(stage):
    """A spot program that does not end by itself is killed."""
    quick_checkpoints(stage.daemon)
    spot = stage.daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "spot", "--tier", "spot", "--pausable", "no",
                              "--", "python3", "-c", DEAF)
    stage.runs += 1
    stage.has("spot", "1024MiB")
    stage.begins()
    preemptor = stage.preemptor("3GiB", "2560MiB")
    stage.is_gone("spot", spot, "revoked")
    stage.done(preemptor)


@drill("cooperates", "pausing", "paused", "resumed")
def registers_late(stage):
    """A spot program registers only after its memory was requested."""
    spot = stage.ask(3, tier="spot")
    stage.begins()
    preemptor = stage.preemptor()
    wait_until(lambda: "has not registered as cooperative yet" in str(stage.get("/v1/leases/preemptor/why").body),
               "it is told until when")
    stage.hook(spot)
    stage.done(preemptor)
    stage.state(spot, "active")
    # The release is refused until the card was read once since the resume.
    wait_until(lambda: stage.act(spot, "release").status == 200, "it is released")


@drill("spot_ended", more='spot_unused_after = "2s"\n')
def registers_never(stage):
    spot = stage.ask(3, tier="spot")
    stage.begins()
    preemptor = stage.preemptor()
    stage.ends(spot, "revoked")
    stage.done(preemptor)


# --- programs that die ---

def dies_on_its_way_out(stage, call):
    victim = stage.filled("victim")
    stage.fault(f"{call}-hang")
    stage.begins()
    preemptor = stage.preemptor()
    stage.hangs()
    stage.state("victim", "pausing")
    stage.dies("victim")
    stage.is_gone("victim", victim)
    stage.done(preemptor)
    stage.clear()


@drill("lock_intent", "owner_gone")
def dies_while_it_is_locked(stage):
    dies_on_its_way_out(stage, "lock")


@drill("pausing", "owner_gone", "settled")
def dies_while_it_is_copied(stage):
    dies_on_its_way_out(stage, "checkpoint")


@drill("paused", "owner_gone")
def dies_while_it_is_parked(stage):
    victim = stage.filled("victim")
    stage.begins()
    preemptor = stage.preemptor(seconds=600)
    stage.has("preemptor", "1536MiB")
    stage.dies("victim")
    stage.is_gone("victim", victim)
    stage.leaves("preemptor", preemptor)


def dies_on_its_way_back(stage, call):
    victim = stage.filled("victim")
    stage.begins()
    preemptor = stage.preemptor(seconds=600)
    stage.has("preemptor", "1536MiB")
    stage.fault(f"{call}-hang")
    stage.leaves("preemptor", preemptor)
    stage.hangs()
    stage.state("victim", "resuming")
    stage.dies("victim")
    stage.is_gone("victim", victim)
    stage.clear()


@drill("resuming", "owner_gone", "settled")
def dies_while_it_is_restored(stage):
    dies_on_its_way_back(stage, "restore")


@drill("resuming", "owner_gone")
def dies_while_it_is_unlocked(stage):
    dies_on_its_way_back(stage, "unlock")


@drill("paused", "resumed", "released")
def outlives_its_keeper(stage):
    """The victim outlives its keeper and resumes all the same."""
    victim = stage.filled("victim", "3GiB", "2560MiB", "--keep-running")
    stage.begins()
    preemptor = stage.preemptor(seconds=600)
    stage.has("preemptor", "1536MiB")
    victim.kill()
    victim.wait()
    pid = stage.pid("victim")
    stage.leaves("preemptor", preemptor)
    stage.state("victim", "active")
    assert living(pid) and stage.pid("victim") == pid
    stage.dies("victim")
    stage.state("victim", "ended")  # its end reason is not known
