# SPDX-License-Identifier: Apache-2.0
"""Drills in which the driver, the machine or another process fails."""
import signal
import time

from tests.support.drills import drill
from tests.support.machine import has_memory, has_slept, with_memory, with_sleep
from tests.support.sublet import GIB, MIB, living, wait_until


# --- the driver ---

@drill("undone", "poisoned", "owner_gone")
def copy_fails_half_way(stage):
    """The driver loses the victim with its bytes on the card: the bytes are promised to no lease, and the victim is not
    killed.
    """
    victim = stage.filled("victim")
    stage.fault("checkpoint-fail", "--after", "50")
    stage.begins()
    preemptor = stage.preemptor()
    lost = stage.state("victim", "poisoned")
    assert lost["used_bytes"] >= 2560 * MIB and living(lost["owner"]["pid"])
    assert stage.get("/v1/leases/preemptor")["state"] == "queued"
    assert stage.get("/v1/ledger")["entries"][0]["bytes"] == 0, "nothing of it is in host memory"
    stage.dies("victim")
    stage.is_gone("victim", victim)
    stage.done(preemptor)


@drill("undone", "resumed", "paused")
def copy_fails(stage):
    """A failed copy changes nothing: once the driver can, the pause is tried again."""
    victim = stage.filled("victim")
    stage.fault("checkpoint-fail")
    stage.begins()
    preemptor = stage.preemptor()
    wait_until(lambda: stage.texts("victim", "resuming"), "it is undone")
    stage.state("victim", "active")
    stage.clear()
    stage.done(preemptor)
    stage.leaves("victim", victim)


@drill("resuming", "poisoned", "owner_gone")
def restore_fails(stage):
    """The restore fails although memory was reserved for the victim."""
    victim = stage.filled("victim")
    stage.begins()
    preemptor = stage.preemptor(seconds=600)
    stage.has("preemptor", "1536MiB")
    stage.fault("restore-fail")
    stage.leaves("preemptor", preemptor)
    lost = stage.state("victim", "poisoned")
    assert living(lost["owner"]["pid"]), "it is kept, not killed"
    stage.clear()
    stage.dies("victim")
    stage.is_gone("victim", victim)


def hangs_on_the_way_out(stage, call):
    victim = stage.filled("victim")
    stage.fault(f"{call}-hang")
    stage.begins()
    preemptor = stage.preemptor()
    stage.hangs()
    stage.state("victim", "pausing")
    stage.clear()
    stage.done(preemptor)
    stage.leaves("victim", victim)


@drill("pausing", "lock_intent", "paused")
def lock_hangs(stage):
    hangs_on_the_way_out(stage, "lock")


@drill("lock_intent", "paused")
def checkpoint_hangs(stage):
    hangs_on_the_way_out(stage, "checkpoint")


@drill("pausing", "lock_intent", "paused")
def state_hangs(stage):
    hangs_on_the_way_out(stage, "state")


def hangs_on_the_way_back(stage, call):
    victim = stage.filled("victim")
    stage.begins()
    preemptor = stage.preemptor(seconds=600)
    stage.has("preemptor", "1536MiB")
    stage.fault(f"{call}-hang")
    stage.leaves("preemptor", preemptor)
    stage.hangs()
    stage.clear()
    stage.leaves("victim", victim)


@drill("resuming", "resumed")
def restore_hangs(stage):
    hangs_on_the_way_back(stage, "restore")


@drill("resuming", "resumed")
def unlock_hangs(stage):
    hangs_on_the_way_back(stage, "unlock")


@drill("pausing", "paused", "offered", "claimed", "resumed")
def driver_never_returns(stage):
    """The driver never returns for one of two victims; the other frees memory instead."""
    victims = {tag: stage.filled(tag, "1800MiB", "1280MiB") for tag in ("one", "two")}
    stage.fault("checkpoint-hang", "--pid", stage.pid("one"))
    stage.begins()
    stage.done(stage.preemptor("1800MiB", "1280MiB"))
    stage.clear()
    for tag, victim in victims.items():
        stage.leaves(tag, victim)


# --- other processes ---

@drill("pausing", "cancelled", "resumed")
def preemptor_goes(stage):
    victim = stage.filled("victim")
    stage.fault("checkpoint-hang")
    stage.begins()
    preemptor = stage.preemptor()
    stage.state("victim", "pausing")
    preemptor.send_signal(signal.SIGINT)
    assert stage.ended(preemptor) == 128 + signal.SIGINT, preemptor.communicate()
    stage.clear()
    stage.leaves("victim", victim)


@drill("pausing", "cancelled", "resumed")
def preemptor_is_killed(stage):
    """No process gives the preemptor's place in the queue back."""
    victim = stage.filled("victim")
    stage.fault("checkpoint-hang")
    stage.begins()
    preemptor = stage.preemptor()
    stage.state("victim", "pausing")
    preemptor.kill()
    preemptor.wait()
    stage.clear()
    stage.state("preemptor", "ended")
    stage.leaves("victim", victim)


@drill("paused", "blocked", "resumed")
def unleased_while_it_is_verified(stage):
    """The unleased process is named, and the victim is not blamed."""
    victim = stage.filled("victim", "3GiB", "2048MiB")
    stage.fault("checkpoint-hang")
    stage.begins()
    preemptor = stage.preemptor("3GiB", "2048MiB")
    stage.state("victim", "pausing")
    unleased = stage.unleased("900MiB")
    stage.clear()
    stage.state("victim", "paused", "resuming", "active")

    def named():
        # The reason names the process that has the memory. After a crash the victim may have its memory again, and the
        # process is one of two holders.
        told = str(stage.texts("preemptor", "blocked")) + str(stage.get("/v1/leases/preemptor")["queue"])
        return f"pid {unleased.pid} " in told
    wait_until(named, "the unleased process is named")
    assert not any("still held" in text for text in stage.texts("victim", "resuming"))
    unleased.kill()
    unleased.wait()
    stage.done(preemptor)
    stage.leaves("victim", victim)


@drill("resume_queued", "blocked", "resuming")
def unleased_before_it_comes_back(stage):
    """The unleased process is named, and no restore is tried: a restore would poison the victim."""
    victim = stage.filled("victim")
    stage.begins()
    preemptor = stage.preemptor("2GiB", "256MiB", seconds=600)
    stage.has("preemptor", "256MiB")
    unleased = stage.unleased("1536MiB")
    before = stage.restores()
    stage.leaves("preemptor", preemptor)
    blocked = stage.until("victim", lambda now: now["blocked"])
    assert [each["pid"] for each in blocked["blocked"]["unleased_processes"]] == [unleased.pid]
    stage.says("victim", "blocked", f"pid {unleased.pid} ")
    assert blocked["state"] == "paused" and stage.restores() == before
    unleased.kill()
    unleased.wait()
    stage.leaves("victim", victim)


# --- host memory, and time ---

@drill("owner_gone", "pausing", "paused", more='[ledger]\nlimit = "2400MiB"\n')
def ledger_is_full(stage):
    """Another lease has filled the park ledger: no lease is paused before its bytes are gone."""
    other = stage.filled("other", "1GiB", "128MiB", load=("--dense",))
    stage.pause("other")
    victim = stage.filled("victim", "2300MiB", "2048MiB")
    stage.begins()
    preemptor = stage.preemptor("3GiB", "2048MiB")
    wait_until(lambda: "host memory takes" in str(stage.get("/v1/leases/preemptor/why").body),
               "it is told why it waits")
    assert not stage.texts("victim", "pausing"), "a pause that does not fit is not begun"
    stage.dies("other")
    stage.is_gone("other", other)
    stage.done(preemptor)
    stage.leaves("victim", victim)


def is_read_again(stage):
    """Waits until a snapshot has begun after this call: it has the host memory, too."""
    since = time.monotonic()

    def is_younger():
        now = time.monotonic()
        return stage.get("/v1/devices")["devices"][0]["snapshot_age_ms"] / 1000 < now - since
    wait_until(is_younger, "the next snapshot")


@drill("queued", "pausing", "resumed", more='[ledger]\nreserve = "1GiB"\nlimit = "16GiB"\n', command=with_memory)
def host_memory_is_short(stage):
    """Host memory that is short before a pause prevents the pause. Short memory during a pause leaves the victim
    intact, and the victim resumes.
    """
    victim = stage.filled("victim")
    has_memory(stage.daemon.dir, GIB + 512 * MIB)
    is_read_again(stage)
    stage.begins()
    preemptor = stage.preemptor(seconds=600)
    wait_until(lambda: "more may be parked" in str(stage.get("/v1/leases/preemptor/why").body),
               "it is told why it waits")
    assert not stage.texts("victim", "pausing"), "a pause that does not fit is not begun"
    has_memory(stage.daemon.dir, 16 * GIB)
    stage.has("preemptor", "1536MiB")
    has_memory(stage.daemon.dir, 256 * MIB)
    stage.leaves("preemptor", preemptor)
    stage.leaves("victim", victim)


@drill("pausing", "paused", "resumed", "expired")
def time_of_a_token(stage):
    """The time to live stands still while the lease is paused, and then starts anew."""
    victim, _ = stage.hooked(3, tier="batch", ttl_seconds=5)
    stage.begins()
    preemptor = stage.preemptor(seconds=600)
    stage.has("preemptor", "1536MiB")
    assert stage.get(f"/v1/leases/{victim}")["expires_at"] is None
    # a lease that was requested later, with a longer time to live
    stage.ends(stage.ask(vram_bytes=MIB, ttl_seconds=6), "expired")
    stage.leaves("preemptor", preemptor)
    back = stage.state(victim, "active")
    assert back["expires_at"] and back["ttl_seconds"] == 5
    stage.ends(victim, "expired")


@drill("paused", "orphaned", more='orphan_after = "1s"\n')
def nobody_is_left(stage):
    """A lease is paused for another, and none of its processes can resume."""
    victim, _ = stage.hooked(3, tier="batch")
    stage.begins()
    preemptor = stage.preemptor(seconds=600)
    stage.has("preemptor", "1536MiB")
    stage.ends(victim, "expired")
    stage.leaves("preemptor", preemptor)


HOURS = 3 * 3600  # more than `pause.orphan_after`, and less than the time for which answers are remembered


def time_jumps(stage, *jump):
    """The time jumps while the victim is being paused, and again while it is parked."""
    victim = stage.filled("victim")
    token = stage.ask(vram_bytes=MIB, ttl_seconds=600)
    stage.fault("checkpoint-hang")
    stage.begins()
    preemptor = stage.preemptor(seconds=600)
    stage.state("victim", "pausing")
    has_slept(stage.daemon.dir, *jump)
    stage.clear()
    stage.has("preemptor", "1536MiB")
    has_slept(stage.daemon.dir, *(2 * seconds for seconds in jump))
    stage.leaves("preemptor", preemptor)
    stage.leaves("victim", victim)
    stage.act(token, "release")
    stage.ends(token, "released")


@drill("deadlines_extended", "paused", "resumed", more='orphan_after = "1h"\n', command=with_sleep)
def machine_sleeps(stage):
    time_jumps(stage, HOURS)


@drill("pausing", "paused", "resumed", more='orphan_after = "1h"\n', command=with_sleep)
def clock_is_set_forward(stage):
    time_jumps(stage, 0, HOURS)


@drill("pausing", "paused", "resumed", more='orphan_after = "1h"\n', command=with_sleep)
def clock_is_set_back(stage):
    time_jumps(stage, 0, -HOURS)
