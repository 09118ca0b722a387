# SPDX-License-Identifier: Apache-2.0
"""Every transition of a lease, interrupted at each of its steps: by SIGKILL of the daemon, or by a failing store.

`subletd --list-failpoints` lists the failpoints; a failpoint without a scenario fails the test. No acknowledged call is
lost or doubled, no VRAM is promised twice, and a retry gets the first call's answer.
"""
import concurrent.futures
import os
import signal
import subprocess
import time
import traceback

import pytest

from tests.support import (enforcer_scenarios, follow_scenarios,  # noqa: F401 - they register
                           maintenance_scenarios, pausing_scenarios,
                           program_scenarios, stack_scenarios)
from tests.support.once import once
from tests.support.retrying import Retrying
from tests.support.scenarios import SCENARIOS, scenario
from tests.support.sublet import BIN, GIB, MIB, Daemon, living, pidfds_have_inodes, wait_until

CONFIG = ('[gpu]\ncordon_on = []\ninterval_idle = "300ms"\ninterval_busy = "100ms"\nmax_age = "1s"\n'
          '[queue]\nclaim_window = "{claim_window}"\nreserve_after = "500ms"\n'
          '[lease]\nlinger = "2s"\nreconnect = "4s"\ngrace = "{grace}"\n'
          '[pause]\norphan_after = "{orphan_after}"\n'
          '[enforcer]\ninterval = "{enforcer_interval}"\n')

SETTINGS = {"claim_window": "20s", "orphan_after": "24h", "grace": "500ms", "enforcer_interval": "15s",
            "cards": "1x4GiB"}
AT_ONCE = 20
FEW = (0, 3, 6)  # the distance of the steps that each test run interrupts
ALL_OTHERS = "test_interrupted_at_all_other_steps"


@once
def list_failpoints():
    return subprocess.run([BIN / "subletd", "--list-failpoints"], capture_output=True, text=True,
                          check=True).stdout.split()


# --- one scenario for each transition; its first occurrence is interrupted ---

@scenario()
def queued(client):
    client.ask(3)
    assert client.get(f"/v1/leases/{client.queue(2)}")["state"] == "queued"


@scenario()
def granted(client):
    assert client.get(f"/v1/leases/{client.ask()}")["state"] == "active"


@scenario()
def offered(client):
    first, second = client.ask(3), client.queue(2)
    client.act(first, "release")
    client.until(second, lambda lease: lease["state"] != "queued")


@scenario()
def claimed(client):
    first, second = client.ask(3), client.queue(2)
    client.act(first, "release")
    client.until(second, lambda lease: lease["state"] == "offered")
    client.act(second, "claim")
    assert client.get(f"/v1/leases/{second}")["state"] == "active"


@scenario()
def attached(client):
    keeper, lease = client.run("simgpu-load", "--alloc", "64MiB", "--seconds", "0")
    client.ends(lease["id"], "released")
    assert client.ended(keeper) == 0


@scenario()
def renewed(client):
    lease = client.ask()
    client.act(lease, "renew", {"ttl_seconds": 9000})
    assert client.get(f"/v1/leases/{lease}")["ttl_seconds"] == 9000


@scenario("lapsed", "unclaimed", claim_window="1s")
def lapsed(client):
    first, second = client.ask(3), client.queue(2)
    client.act(first, "release")
    client.ends(second, "unclaimed")  # after two offers
    codes = [reason["code"] for reason in client.get(f"/v1/leases/{second}/why")["reasons"]]
    assert codes.count("offered") == 2 and codes.count("lapsed") == 1, codes


@scenario()
def capacity_reserved(client):
    first, large = client.ask(2), client.queue(3)
    client.until(large, lambda lease: lease["queue"]["reserved_devices"])
    small = client.queue(1)  # it would fit, and would keep the large lease waiting
    client.until(small, lambda lease: lease["queue"]["reserved_for"] == large)
    client.act(first, "release")
    client.until(large, lambda lease: lease["state"] != "queued")


@scenario("resizing", "grown")
def resizing(client):
    lease, other = client.ask(1), client.ask(2)
    assert client.act(lease, "resize", {"vram_bytes": 3 * GIB})["resize"]["vram_bytes"] == 3 * GIB
    client.act(other, "release")
    client.until(lease, lambda now: now["vram_bytes"] == 3 * GIB and now["resize"] is None)


@scenario()
def resized(client):
    lease = client.ask(2)
    client.act(lease, "resize", {"vram_bytes": GIB})
    assert client.get(f"/v1/leases/{lease}")["reserved_bytes"] == GIB


@scenario(grace="10s")
def stopping(client):
    keeper, lease = client.run("sleep", "600")
    client.act(lease["id"], "release", {"stop": True})
    client.ends(lease["id"], "released")
    assert client.ended(keeper) == 128 + signal.SIGTERM


@scenario()
def killing(client):
    if not pidfds_have_inodes():
        pytest.skip("this kernel gives no proof over a restart: nothing is killed")
    keeper, lease = client.run("sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done")
    assert keeper.stdout.readline() == "deaf\n"
    keeper.kill()  # else it would kill the program itself
    client.act(lease["id"], "release", {"stop": True})
    client.ends(lease["id"], "released")
    wait_until(lambda: not living(lease["owner"]["pid"]), "it is killed")


@scenario()
def settled(client):
    keeper, lease = client.run("simgpu-load", "--alloc", "64MiB", "--seconds", "0")
    client.until(lease["id"], lambda now: now["state"] == "ended" and not now["settling"])
    assert client.ended(keeper) == 0


@scenario()
def released(client):
    lease = client.ask()
    client.act(lease, "release")
    client.ends(lease, "released")


@scenario()
def expired(client):
    client.ends(client.ask(ttl_seconds=1), "expired")


def revoked_stage(client):
    lease = client.ask()
    client.daemon.kill()
    with client.daemon.store() as store:  # the lease of another user, for the daemon
        store.execute("UPDATE leases SET uid = 65534, "
                      "document = json_set(document, '$.uid', 65534, '$.user', 'nobody')")
    return lease


@scenario(stage=revoked_stage)
def revoked(client, lease):
    client.act(lease, "release")
    client.ends(lease, "revoked")


@scenario()
def owner_gone(client):
    keeper, lease = client.run("sleep", "600")
    os.kill(lease["owner"]["pid"], signal.SIGKILL)
    client.ends(lease["id"], "owner_gone")
    assert client.ended(keeper) == 128 + signal.SIGKILL


@scenario()
def failed(client):
    script = client.daemon.dir / "script"
    script.write_text(f"#!{script}\n")  # its own interpreter: only exec finds this out
    script.chmod(0o755)
    client.runs += 1
    keeper = client.daemon.spawn("sublet", "run", "--vram", "1GiB", "--", script)
    assert client.ended(keeper) == 126
    client.ends(client.get("/v1/leases?all=true")["leases"][0]["id"], "failed")


@scenario()
def cancelled(client):
    client.ask(3)
    second = client.queue(2)
    client.act(second, "release")
    client.ends(second, "cancelled")


def rejected_stage(client):
    client.daemon.ctl("fault", "nvml-error")
    client.cards_known = False


@scenario(stage=rejected_stage)
def rejected(client, _):
    lease = client.queue(100)  # the card's size is not known yet
    client.daemon.ctl("clear")
    client.ends(lease, "rejected")


def lost_stage(client):
    lease = client.ask()
    client.daemon.kill()
    with client.daemon.store() as store:
        store.execute("UPDATE meta SET value = 'another boot' WHERE key = 'boot_id'")
    return lease


@scenario(stage=lost_stage)
def lost(client, lease):
    client.ends(lease, "lost")


@scenario()
def resize_withdrawn(client):
    """The lease waits to grow, and then keeps its present size."""
    lease = client.ask(1)
    client.ask(2)
    assert client.act(lease, "resize", {"vram_bytes": 3 * GIB})["resize"]["vram_bytes"] == 3 * GIB
    client.act(lease, "resize", {"vram_bytes": GIB})
    now = client.get(f"/v1/leases/{lease}")
    assert now["resize"] is None and now["vram_bytes"] == now["reserved_bytes"] == GIB


@scenario()
def booked(client):
    lease = client.ask()
    program = client.daemon.spawn("sleep", "600")
    client.act(lease, "attach", {"pid": program.pid})
    client.act(lease, "release")
    client.ends(lease, "released")


@scenario()
def exited(client):
    """Its lease is released while it runs, and the program ends later."""
    keeper, lease = client.run("simgpu-load", "--alloc", "64MiB", "--seconds", "600")
    client.until(lease["id"], lambda now: now["used_bytes"] > 64 << 20)
    client.act(lease["id"], "release", {"force": True})
    os.kill(lease["owner"]["pid"], signal.SIGTERM)
    assert client.ended(keeper) == 128 + signal.SIGTERM
    client.until(lease["id"], lambda now: not now["settling"])


@scenario()
def deadlines_extended(client):
    """The daemon stands still while a lease has an offer."""
    first, second = client.ask(3), client.queue(2)
    client.act(first, "release")
    client.until(second, lambda lease: lease["state"] == "offered")
    client.daemon.process.send_signal(signal.SIGSTOP)
    started = time.monotonic()
    wait_until(lambda: time.monotonic() - started > 2, "it counts as a standstill")  # a third of lease.reconnect
    client.daemon.process.send_signal(signal.SIGCONT)
    wait_until(lambda: "stood still for" in client.daemon.log(), "it has noticed")
    client.act(second, "claim")
    assert client.get(f"/v1/leases/{second}")["state"] == "active"


def moved_stage(client):
    lease = client.ask()
    client.daemon.kill()
    with client.daemon.store() as store:  # the wall clock was an hour behind then
        store.execute("UPDATE meta SET value = value - ? WHERE key = 'clock_offset'", (3600 * 10**9,))
        store.execute("UPDATE leases SET document = "
                      "json_set(document, '$.expires_at', json_extract(document, '$.expires_at') - ?)", (3600 * 10**9,))
    return lease


@scenario(stage=moved_stage)
def deadlines_extended_at_start(client, lease):
    assert client.get(f"/v1/leases/{lease}")["state"] == "active", "what nobody could foresee counts against nobody"


@scenario(stage=rejected_stage)
def named(client, _):
    lease = client.queue(1, device="gpu0")
    client.daemon.ctl("clear")
    client.until(lease, lambda now: now["state"] != "queued")


@scenario()
def device_gone(client):
    lease = client.ask()
    client.cards_known = False
    client.daemon.ctl("fault", "device-lost")
    client.ends(lease, "failed")


@scenario("token_made", "token_revoked")
def tokens(client):
    made = [client.post("/v1/tokens", {"scope": "read"})["id"] for _ in range(2)]
    client.delete(f"/v1/tokens/{made[0]}")
    assert [token["id"] for token in client.get("/v1/tokens")["tokens"]] == made[1:]


@scenario()
def answered(client):
    lease, hook = client.hooked()
    hook.may_answer.clear()  # another server answers
    def obeys():
        state = client.get(f"/v1/leases/{lease}")["state"]
        if state == "active":  # again, if a crash in between has undone the pause
            client.act(lease, "pause")
        told = client.get(f"/v1/leases/{lease}/cooperate")
        if told["order"] != "none":
            answer = {"yield": "yielded", "resume": "resumed"}[told["order"]]
            client.act(lease, "cooperate/answer", {"number": told["number"], "answer": answer})
        return state == "paused"
    wait_until(obeys, "it has yielded by itself")
    hook.may_answer.set()


def interrupt(transition, failpoint):
    """Plays the transition's scenario with the failpoint armed; returns the problem, or None."""
    scene = SCENARIOS[transition]
    # Long enough for a slow machine, except for scenarios that wait for the end of a period.
    settings = {**SETTINGS, **scene.settings}
    daemon = Daemon(settings["cards"], CONFIG.format(**settings))
    client = Retrying(daemon)
    try:
        staged = ()
        if scene.stage:
            daemon.start()
            client.api = daemon.api()
            staged = (scene.stage(client),)
            if daemon.process.poll() is None:
                daemon.kill()
        client.start("--failpoint", failpoint)
        scene.play(client, *staged)
        client.check()
        if failpoint.endswith("=kill"):
            assert client.restarts == 1, "the daemon was never killed"
        else:
            assert "failpoint" in daemon.log(), "the store never failed"
        return None
    except Exception:  # noqa: BLE001 - one of many threads; the test reports them all
        return f"--- {failpoint}\n{traceback.format_exc()}\n{daemon.log()}"
    finally:
        client.close()
        daemon.close()


def steps_of(transition):
    """Returns the failpoints of the transition in two lists: a few for each test run, and all others. The few differ
    from transition to transition, so that they contain every kind of step.
    """
    steps = [failpoint for failpoint in list_failpoints() if failpoint.startswith(f"{transition}.")]
    turn = list(SCENARIOS).index(transition)
    few = {(turn + n) % len(steps) for n in FEW}
    return [steps[n] for n in sorted(few)], [step for n, step in enumerate(steps) if n not in few]


@pytest.fixture(scope="module")
def interrupted(request):
    """Plays the chosen transitions with their failpoints. Many run at once, because they mostly wait."""
    chosen = [(item.originalname == ALL_OTHERS, item.callspec.params["transition"]) for item in request.session.items
              if item.path == request.path and hasattr(item, "callspec")]
    pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
    yield {(others, transition): [pool.submit(interrupt, transition, step) for step in steps_of(transition)[others]]
           for others, transition in chosen}
    pool.shutdown(cancel_futures=True)


def assert_all_well(futures):
    assert futures
    problems = [problem for future in futures if (problem := future.result())]
    assert not problems, "\n".join(problems)


@pytest.mark.matrix
@pytest.mark.parametrize("transition", SCENARIOS)
def test_interrupted_at_a_few_steps(interrupted, transition):
    assert_all_well(interrupted[False, transition])


@pytest.mark.heavy
@pytest.mark.parametrize("transition", SCENARIOS)
def test_interrupted_at_all_other_steps(interrupted, transition):
    assert_all_well(interrupted[True, transition])


def test_every_failpoint_is_visited():
    assert {name.split(".")[0] for name in list_failpoints()} == set(SCENARIOS)


def test_an_unknown_failpoint_is_refused(tmp_path):
    done = subprocess.run([BIN / "subletd", "--dir", tmp_path, "--failpoint", "granted.writen=kill"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "did you mean 'granted.written=kill'" in done.stderr
