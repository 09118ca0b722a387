# SPDX-License-Identifier: Apache-2.0
"""Every transition of a lease, interrupted at each of its steps: by SIGKILL of the daemon, or by a store that fails.

`subletd --list-failpoints` says what there is; one that no scenario visits fails the test. Whatever happens, nothing
that was acknowledged is lost or doubled, no VRAM is promised twice, and a retry is answered like the first call.
"""
import concurrent.futures
import http.client
import itertools
import os
import signal
import subprocess
import traceback

import pytest

from tests.support.parking import quick_checkpoints
from tests.support.sublet import BIN, GIB, MIB, Daemon, living, name_of, pidfds_have_inodes, wait_until

CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\nmax_age = "1s"\n'
          '[queue]\nclaim_window = "{claim_window}"\nreserve_after = "500ms"\n'
          '[lease]\nlinger = "2s"\nreconnect = "4s"\ngrace = "500ms"\n')

CROWD = 300  # more than one portion of what is told at a time


def list_failpoints():
    return subprocess.run([BIN / "subletd", "--list-failpoints"], capture_output=True, text=True,
                          check=True).stdout.split()


class Retrying:
    """A client that does what clients should: the same call with the same key, until it is answered."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.api = daemon.api()
        self.keys = itertools.count(1)
        self.answers = []   # (path, body, key, reply) of all that was acknowledged
        self.restarts = 0   # after a kill
        self.failures = 0   # of the store, as told to this client
        self.runs = 0       # programs started by `sublet run`
        self.cards_known = True

    def revive(self):
        """Starts the daemon again if it was killed."""
        if self.daemon.process.poll() is None:
            return
        assert self.daemon.process.returncode == -signal.SIGKILL, self.daemon.log()
        self.restarts += 1
        self.daemon.start(wait_for_cards=self.cards_known)
        self.api = self.daemon.api()

    def call(self, method, path, body=None, **headers):
        def attempt():
            try:
                reply = self.api.call(method, path, body, **headers)
            except (OSError, http.client.HTTPException):
                self.daemon.process.wait(60)
                self.revive()
                return None
            if reply.status == 503:
                self.failures += 1
                return None
            return reply
        return wait_until(attempt, f"an answer to {method} {path}")

    def start(self, *arguments):
        self.daemon.start(expect_ready=False, extra=arguments)
        wait_until(lambda: self.daemon.process.poll() is not None or self.serves(), "the daemon serves")
        self.revive()
        self.api = self.daemon.api()

    def serves(self):
        try:
            return self.daemon.get("/v1/devices")["devices"] or not self.cards_known
        except (OSError, http.client.HTTPException):
            return False

    def ended(self, keeper):
        """The exit status of `sublet run`, which outlives the daemon."""
        def poll():
            self.revive()
            return keeper.poll() is not None
        wait_until(poll, "the program ends")
        return keeper.returncode

    def get(self, path):
        return self.call("GET", path)

    def post(self, path, body=None):
        key = f"key-{next(self.keys)}"
        reply = self.call("POST", path, body, Idempotency_Key=key)
        self.answers.append((path, body, key, reply))
        return reply

    def ask(self, size=1, **more):
        """A lease that waits until it is granted."""
        return self.post("/v1/leases", {"vram_bytes": size * GIB, "ttl_seconds": 600, "wait_seconds": 60, **more})["id"]

    def queue(self, size=1, **more):
        return self.ask(size, wait_seconds=0, **more)

    def act(self, id, call, body=None):
        return self.post(f"/v1/leases/{id}/{call}", body)

    def until(self, id, condition):
        def look():
            lease = self.get(f"/v1/leases/{id}")
            return lease if condition(lease.body) else None
        return wait_until(look, f"{id} as expected")

    def ends(self, id, reason):
        assert self.until(id, lambda lease: lease["state"] == "ended")["end_reason"] == reason

    def run(self, *command):
        """`sublet run` of a program; returns its keeper and its lease once the program runs and owns it."""
        keeper = self.daemon.spawn("sublet", "run", "--vram", "1GiB", "--", *command)
        self.runs += 1

        def owned():
            for lease in self.get("/v1/leases?all=true")["leases"]:
                if lease["owner"]["pid"] and name_of(lease["owner"]["pid"]) != "sublet":  # still held by its keeper
                    return lease
            return None
        return keeper, wait_until(owned, "the program runs")


    def check(self):
        """What must hold whatever happened: nothing acknowledged is lost, doubled, or answered otherwise."""
        asked = [reply["id"] for path, _, _, reply in self.answers if path == "/v1/leases"]
        assert len(set(asked)) == len(asked)
        leases = self.get("/v1/leases?all=true")["leases"]
        ids = [lease["id"] for lease in leases]
        assert len(set(ids)) == len(ids) == len(asked) + self.runs, "a lease is lost or doubled"
        assert set(asked) <= set(ids)
        for path, body, key, reply in self.answers:
            again = self.call("POST", path, body, Idempotency_Key=key)
            if path == "/v1/leases":  # what became of it since is told anew
                assert (again["id"], again["token"]) == (reply["id"], reply["token"]), "a retry made another lease"
            else:
                assert (again.status, again.body) == (reply.status, reply.body), "a retry got another answer"
        for device in self.get("/v1/devices")["devices"]:
            reserved = sum(lease["reserved_bytes"] for lease in leases)
            assert reserved <= device["total_bytes"] - device["driver_reserved_bytes"], "VRAM is promised twice"


# --- one scenario for each transition; the first time that it happens is interrupted ---

def queued(client):
    client.ask(3)
    assert client.get(f"/v1/leases/{client.queue(2)}")["state"] == "queued"


def granted(client):
    assert client.get(f"/v1/leases/{client.ask()}")["state"] == "active"


def offered(client):
    first, second = client.ask(3), client.queue(2)
    client.act(first, "release")
    client.until(second, lambda lease: lease["state"] != "queued")


def claimed(client):
    first, second = client.ask(3), client.queue(2)
    client.act(first, "release")
    client.until(second, lambda lease: lease["state"] == "offered")
    client.act(second, "claim")
    assert client.get(f"/v1/leases/{second}")["state"] == "active"


def attached(client):
    keeper, lease = client.run("simgpu-load", "--alloc", "64MiB", "--seconds", "0")
    client.ends(lease["id"], "released")
    assert client.ended(keeper) == 0


def renewed(client):
    lease = client.ask()
    client.act(lease, "renew", {"ttl_seconds": 9000})
    assert client.get(f"/v1/leases/{lease}")["ttl_seconds"] == 9000


def lapsed(client):
    first, second = client.ask(3), client.queue(2)
    client.act(first, "release")
    client.ends(second, "unclaimed")  # after two offers
    codes = [reason["code"] for reason in client.get(f"/v1/leases/{second}/why")["reasons"]]
    assert codes.count("offered") == 2 and codes.count("lapsed") == 1, codes


def held(client):
    first, large = client.ask(2), client.queue(3)
    client.until(large, lambda lease: lease["queue"]["held_devices"])
    small = client.queue(1)  # it would fit, and would keep the large one waiting
    assert client.get(f"/v1/leases/{small}")["queue"]["held_for"] == large
    client.act(first, "release")
    client.until(large, lambda lease: lease["state"] != "queued")


def resizing(client):
    lease, other = client.ask(1), client.ask(2)
    assert client.act(lease, "resize", {"vram_bytes": 3 * GIB})["resize"]["vram_bytes"] == 3 * GIB
    client.act(other, "release")
    client.until(lease, lambda now: now["vram_bytes"] == 3 * GIB and now["resize"] is None)


def resized(client):
    lease = client.ask(2)
    client.act(lease, "resize", {"vram_bytes": GIB})
    assert client.get(f"/v1/leases/{lease}")["reserved_bytes"] == GIB


def unclaimed(client):
    lapsed(client)


def portion(client):
    """More waiters than are told at a time, all freed by one release."""
    free = client.get("/v1/devices")["devices"][0]["effective_free_bytes"]
    holder = client.ask(vram_bytes=free)
    crowd = [client.queue(vram_bytes=MIB) for _ in range(CROWD)]
    waiting = client.get(f"/v1/leases/{crowd[0]}")["generation"]
    assert client.get("/v1/status")["leases"]["queued"] == CROWD
    client.act(holder, "release")
    client.until(crowd[-1], lambda lease: lease["state"] != "queued")
    leases = {lease["id"]: lease for lease in client.get("/v1/leases?all=true")["leases"]}
    given = [leases[id] for id in crowd]
    assert all(lease["state"] == "offered" and lease["reserved_bytes"] == MIB for lease in given)
    assert {lease["generation"] for lease in given} == {waiting + 1}, "each was given its room once"


def parked(client):
    """A program with bytes on the card that is paused, however often a crash in between has it undone."""
    quick_checkpoints(client.daemon)
    keeper, lease = client.run("simgpu-load", "--alloc", "256MiB", "--seconds", "600", "--verify")
    client.until(lease["id"], lambda now: now["used_bytes"] > 256 << 20)

    def paused():
        client.act(lease["id"], "pause")
        now = client.until(lease["id"], lambda now: now["state"] in ("active", "paused"))
        return now["state"] == "paused"
    wait_until(paused, "it is paused")
    return keeper, lease


def resumed(client):
    keeper, lease = parked(client)
    client.act(lease["id"], "resume")
    now = client.until(lease["id"], lambda now: now["state"] == "active")
    assert now["pause"] is None and client.get("/v1/ledger")["entries"] == []
    os.kill(lease["owner"]["pid"], signal.SIGTERM)
    assert client.ended(keeper) == 128 + signal.SIGTERM


def pausing(client):
    resumed(client)


def paused(client):
    resumed(client)


def resuming(client):
    resumed(client)


def poisoned(client):
    keeper, lease = parked(client)
    client.daemon.ctl("fault", "restore-fail")
    client.act(lease["id"], "resume")
    client.until(lease["id"], lambda now: now["state"] == "poisoned")
    assert living(lease["owner"]["pid"]), "it is kept, not killed"
    os.kill(lease["owner"]["pid"], signal.SIGKILL)
    client.ends(lease["id"], "owner_gone")
    assert client.ended(keeper) == 128 + signal.SIGKILL


def cooperates(client):
    lease = client.ask()
    client.act(lease, "cooperate", {"way": "webhook", "url": "http://127.0.0.1:9/"})
    assert client.get(f"/v1/leases/{lease}/cooperate")["registered"]["url"] == "http://127.0.0.1:9/"


def relapsed(client):
    quick_checkpoints(client.daemon)
    keeper, lease = client.run("simgpu-load", "--alloc", "64MiB", "--seconds", "600", "--on-pause", "again")
    wait_until(lambda: client.get(f"/v1/leases/{lease['id']}/cooperate")["registered"], "it has registered")
    client.until(lease["id"], lambda now: now["used_bytes"] > 64 << 20)
    client.act(lease["id"], "pause")
    client.until(lease["id"], lambda now: now["state"] == "paused" and now["pause"]["method"] == "driver")
    client.act(lease["id"], "resume")
    client.until(lease["id"], lambda now: now["state"] == "active")
    os.kill(lease["owner"]["pid"], signal.SIGTERM)
    assert client.ended(keeper) == 128 + signal.SIGTERM


def blocked(client):
    quick_checkpoints(client.daemon)
    keeper, lease = parked(client)
    outsider = client.daemon.spawn("simgpu-load", "--alloc", "3500MiB", "--seconds", "600")
    wait_until(lambda: client.get("/v1/devices")["devices"][0]["other_bytes"] > 3 * GIB, "an outsider took its place")
    client.act(lease["id"], "resume")
    now = client.until(lease["id"], lambda now: now["blocked"])
    assert now["state"] == "paused" and now["blocked"]["outsiders"][0]["pid"] == outsider.pid
    outsider.kill()
    outsider.wait()
    client.until(lease["id"], lambda now: now["state"] == "active")
    os.kill(lease["owner"]["pid"], signal.SIGTERM)
    assert client.ended(keeper) == 128 + signal.SIGTERM


def stopping(client):
    keeper, lease = client.run("sleep", "600")
    client.act(lease["id"], "release", {"stop": True})
    client.ends(lease["id"], "released")
    assert client.ended(keeper) == 128 + signal.SIGTERM


def killing(client):
    if not pidfds_have_inodes():
        pytest.skip("this kernel gives no proof over a restart: nothing is killed")
    keeper, lease = client.run("sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done")
    assert keeper.stdout.readline() == "deaf\n"
    keeper.kill()  # else it would kill the program itself
    client.act(lease["id"], "release", {"stop": True})
    client.ends(lease["id"], "released")
    wait_until(lambda: not living(lease["owner"]["pid"]), "it is killed")


def settled(client):
    keeper, lease = client.run("simgpu-load", "--alloc", "64MiB", "--seconds", "0")
    client.until(lease["id"], lambda now: now["state"] == "ended" and not now["settling"])
    assert client.ended(keeper) == 0


def released(client):
    lease = client.ask()
    client.act(lease, "release")
    client.ends(lease, "released")


def expired(client):
    client.ends(client.ask(ttl_seconds=1), "expired")


def revoked_stage(client):
    lease = client.ask()
    client.daemon.kill()
    with client.daemon.store() as store:  # somebody else's, as far as the daemon can tell
        store.execute("UPDATE leases SET uid = 65534, user = 'nobody'")
    return lease


def revoked(client, lease):
    client.act(lease, "release")
    client.ends(lease, "revoked")


def owner_gone(client):
    keeper, lease = client.run("sleep", "600")
    os.kill(lease["owner"]["pid"], signal.SIGKILL)
    client.ends(lease["id"], "owner_gone")
    assert client.ended(keeper) == 128 + signal.SIGKILL


def failed(client):
    script = client.daemon.dir / "script"
    script.write_text("#!/nonexistent/interpreter\n")
    script.chmod(0o755)
    client.runs += 1
    keeper = client.daemon.spawn("sublet", "run", "--vram", "1GiB", "--", script)
    assert client.ended(keeper) == 127
    client.ends(client.get("/v1/leases?all=true")["leases"][0]["id"], "failed")


def cancelled(client):
    client.ask(3)
    second = client.queue(2)
    client.act(second, "release")
    client.ends(second, "cancelled")


def rejected_stage(client):
    client.daemon.ctl("fault", "nvml-error")
    client.cards_known = False


def rejected(client, _):
    lease = client.queue(100)  # nobody knows yet how large the card is
    client.daemon.ctl("clear")
    client.ends(lease, "rejected")


def lost_stage(client):
    lease = client.ask()
    client.daemon.kill()
    with client.daemon.store() as store:
        store.execute("UPDATE meta SET value = 'another boot' WHERE key = 'boot_id'")
    return lease


def lost(client, lease):
    client.ends(lease, "lost")


SCENARIOS = {play.__name__: (play, stage) for play, stage in (
    (queued, None), (granted, None), (offered, None), (claimed, None), (attached, None), (renewed, None),
    (lapsed, None), (held, None), (resizing, None), (resized, None), (pausing, None), (paused, None),
    (resuming, None), (resumed, None), (poisoned, None), (cooperates, None), (relapsed, None), (blocked, None),
    (stopping, None), (killing, None),
    (settled, None), (released, None), (expired, None),
    (revoked, revoked_stage), (owner_gone, None), (failed, None), (cancelled, None), (rejected, rejected_stage),
    (unclaimed, None), (lost, lost_stage), (portion, None))}


def interrupt(transition, failpoint):
    """Plays the transition's scenario with the failpoint armed; returns what went wrong, or None."""
    play, stage = SCENARIOS[transition]
    # Long enough to be met on a slow machine, but for those who wait for its end.
    daemon = Daemon("1x4GiB", CONFIG.format(claim_window="1s" if transition in ("lapsed", "unclaimed") else "20s"))
    try:
        daemon.start()
        client = Retrying(daemon)
        staged = (stage(client),) if stage else ()
        if daemon.process.poll() is None:
            daemon.kill()
        client.start("--failpoint", failpoint)
        play(client, *staged)
        client.check()
        if failpoint.endswith("=kill"):
            assert client.restarts == 1, "the daemon was never killed"
        else:
            assert "failpoint" in daemon.log(), "the store never failed"
        return None
    except Exception:  # noqa: BLE001 - one of many threads; the test reports them all
        return f"--- {failpoint}\n{traceback.format_exc()}\n{daemon.log()}"
    finally:
        daemon.close()


@pytest.mark.parametrize("transition", SCENARIOS)
def test_interrupted_at_every_step(transition):
    failpoints = [name for name in list_failpoints() if name.startswith(f"{transition}.")]
    assert failpoints
    with concurrent.futures.ThreadPoolExecutor(10) as pool:  # they mostly wait
        problems = [problem for problem in pool.map(lambda name: interrupt(transition, name), failpoints) if problem]
    assert not problems, "\n".join(problems)


def test_every_failpoint_is_visited():
    assert {name.split(".")[0] for name in list_failpoints()} == set(SCENARIOS)


def test_an_unknown_failpoint_is_refused(tmp_path):
    done = subprocess.run([BIN / "subletd", "--dir", tmp_path, "--failpoint", "granted.writen=kill"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "did you mean 'granted.written=kill'" in done.stderr
