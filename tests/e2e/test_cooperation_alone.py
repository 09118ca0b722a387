# SPDX-License-Identifier: Apache-2.0
"""Cooperative programs without a lease, or without a daemon."""
import json
import os
import signal
import sys
import time

import pytest

from tests.e2e.test_cooperation import ALLOC, CONFIG, cooperation, reasons
from tests.e2e.test_cooperation_ways import example, listens, registered, run, serve_hook
from tests.support.parking import lease_of, quick_checkpoints, until, used_on_card
from tests.support.sublet import MIB, living, state_of, wait_until


@pytest.fixture
def daemon(start_daemon):
    daemon = start_daemon("1x1GiB", config=CONFIG)
    quick_checkpoints(daemon)
    return daemon


@pytest.fixture
def gate(tmp_path):
    """A pipe: its reader waits until the test opens it for writing."""
    os.mkfifo(tmp_path / "gate")
    return tmp_path / "gate"


def hold(daemon):
    """A lease that its connection keeps alive."""
    holder = daemon.spawn("sublet", "hold", "--vram", "256MiB", "--tag", "it")
    wait_until(lambda: daemon.get("/v1/leases/it").status == 200, "it is asked for")
    until(daemon, "it", "active")
    return holder


def ends_without(daemon, holder, restart, id):
    """Ends the holder of a paused lease, and so the lease."""
    holder.kill()
    if restart:
        daemon.restart()
    ended = until(daemon, id, "ended")
    assert ended["end_reason"] == "owner_gone", ended


# --- its lease ends ---

@pytest.mark.parametrize("restart", [False, True], ids=["", "restart"])
def test_a_polling_program_resumes_when_its_lease_has_ended(daemon, gate, restart):
    holder = hold(daemon)
    id = lease_of(daemon, "it")["id"]
    program = daemon.spawn("sh", "-c", f"read -r _ < '{gate}'; exec simgpu-load --alloc 128MiB --step 32MiB "
                           "--seconds 600 --verify --json --on-pause honest", env=daemon.env(SUBLET_LEASE=id))
    attached = daemon.api().post(f"/v1/leases/{id}/attach", {"pid": program.pid, "owner": False})
    assert attached.status == 200, attached
    gate.write_text("go\n")
    wait_until(lambda: cooperation(daemon, id)["registered"], "it has registered")
    wait_until(lambda: lease_of(daemon, id)["used_bytes"] >= ALLOC, "it has filled its memory")
    assert daemon.cli("pause", id).returncode == 0, reasons(daemon, id)
    assert used_on_card(daemon) < 64 * MIB
    ends_without(daemon, holder, restart, id)
    wait_until(lambda: used_on_card(daemon) >= ALLOC, "it has its bytes again")
    program.send_signal(signal.SIGTERM)
    out, err = program.communicate(timeout=60)
    result = json.loads(out.splitlines()[-1])
    assert program.returncode == 128 + signal.SIGTERM and result["pauses"] == 1 and result["wrong_words"] == 0, err


def hook_that_says_its_orders(daemon, tmp_path, gate=None):
    port, command = serve_hook(daemon, tmp_path)
    waits = f"order['order'] == 'yield' and open('{gate}').read()" if gate else ""
    says = f"        print(order['order'], flush=True)\n        {waits}\n        answer ="
    command[-1].write_text(command[-1].read_text().replace("        answer =", says))
    return port, command


def hold_for(daemon, port, command):
    """Starts a webhook and a lease that a connection holds and the webhook serves. Returns the hook, the holder and the
    lease's id.
    """
    hook = daemon.spawn(*command)
    wait_until(lambda: listens(port), "it listens")
    holder = hold(daemon)
    id = lease_of(daemon, "it")["id"]
    assert daemon.cli("cooperate", id, "--webhook", f"http://127.0.0.1:{port}/").returncode == 0
    return hook, holder, id


@pytest.mark.parametrize("restart", [False, True], ids=["", "restart"])
def test_a_webhook_gets_a_resume_order_when_its_lease_has_ended(daemon, tmp_path, restart):
    port, command = hook_that_says_its_orders(daemon, tmp_path)
    hook, holder, id = hold_for(daemon, port, command)
    assert daemon.cli("pause", id).returncode == 0
    ends_without(daemon, holder, restart, id)
    resumes = f"{id}: it has ended while its program had a yield order: the program resumes"
    wait_until(lambda: resumes in daemon.log(), "it said so")
    hook.terminate()
    assert hook.communicate(timeout=60)[0] == "yield\nresume\n"


def test_a_slow_yield_gets_the_resume_order_afterwards(daemon, tmp_path, gate):
    port, command = hook_that_says_its_orders(daemon, tmp_path, gate)
    text = command[-1].read_text().replace("http.server.HTTPServer", "http.server.ThreadingHTTPServer")
    command[-1].write_text(text.replace("        answer =", "        print('does it', flush=True)\n        answer ="))
    hook, holder, id = hold_for(daemon, port, command)
    assert daemon.cli("pause", id, "--no-wait").returncode == 0
    assert hook.stdout.readline() == "yield\n"
    ends_without(daemon, holder, False, id)
    wait_until(lambda: f"{id}: it has ended while its program yields" in daemon.log(), "it is not disturbed")
    gate.write_text("")
    resumes = f"{id}: it has ended while its program had a yield order: the program resumes"
    wait_until(lambda: resumes in daemon.log(), "it said so")
    hook.terminate()
    assert hook.communicate(timeout=60)[0] == "does it\nresume\ndoes it\n"


def test_a_failed_resume_order_is_repeated(daemon, tmp_path):
    port, command = hook_that_says_its_orders(daemon, tmp_path)
    text = command[-1].read_text().replace("send_response(200)", "send_response(status)")
    text = text.replace("        answer =", "        global orders; orders += 1\n"
                        "        status = 503 if orders == 2 else 200\n        answer =")
    command[-1].write_text("orders = 0\n" + text)
    hook, holder, id = hold_for(daemon, port, command)
    assert daemon.cli("pause", id).returncode == 0
    ends_without(daemon, holder, False, id)
    resumes = f"{id}: it has ended while its program had a yield order: the program resumes"
    wait_until(lambda: resumes in daemon.log(), "it said so")
    assert "it answered 503" in daemon.log()
    hook.terminate()
    assert hook.communicate(timeout=60)[0] == "yield\nresume\nresume\n"


def test_a_program_ended_with_its_lease_gets_no_resume_order(daemon, tmp_path):
    port, command = hook_that_says_its_orders(daemon, tmp_path)
    hook = daemon.spawn(*command)  # it outlives the program
    wait_until(lambda: listens(port), "it listens")
    run(daemon, "sleep", "600")
    lease = until(daemon, "it", "active")
    assert daemon.cli("cooperate", "it", "--webhook", f"http://127.0.0.1:{port}/").returncode == 0
    assert daemon.cli("pause", "it").returncode == 0
    assert daemon.cli("stop", "it", "--force").returncode == 0
    until(daemon, lease["id"], "ended")
    assert not living(lease["owner"]["pid"])
    hook.terminate()
    assert hook.communicate(timeout=60)[0] == "yield\n"


# --- the daemon stands still ---

def waits_for(daemon, gate, way, tmp_path):
    """A program that does not yield until the gate is opened."""
    if way == "webhook":
        port, command = hook_that_says_its_orders(daemon, tmp_path, gate)
        program = run(daemon, *command)
        wait_until(lambda: listens(port), "it listens")
        assert daemon.cli("cooperate", "it", "--webhook", f"http://127.0.0.1:{port}/").returncode == 0
    else:
        script = tmp_path / "library.py"
        text = example("python", 0).replace("512 << 20", "0")
        text = text.replace('print("yields", flush=True)', f'print("yield", flush=True); open("{gate}").read()')
        script.write_text(text + "\nimport signal\nwhile True:\n    signal.pause()\n")
        program = run(daemon, sys.executable, "-u", script)
    registered(daemon)
    return program


@pytest.mark.parametrize("way", ["poll", "webhook"])
def test_a_clock_gap_extends_the_yield_deadline(daemon, tmp_path, gate, way):
    program = waits_for(daemon, gate, way, tmp_path)
    assert daemon.cli("pause", "it", "--no-wait").returncode == 0
    assert program.stdout.readline() == "yield\n"
    # The time until the order's deadline, plus the duration of a call.
    over = time.monotonic() + cooperation(daemon, "it")["deadline_seconds"] + 1
    daemon.process.send_signal(signal.SIGSTOP)
    wait_until(lambda: state_of(daemon.process.pid) == "T", "the daemon stands still")
    gate.write_text("")
    wait_until(lambda: time.monotonic() > over, "the deadline of its order has passed")
    daemon.process.send_signal(signal.SIGCONT)
    until(daemon, "it", "paused", "resuming")
    assert "stood still for" in daemon.log()
    assert lease_of(daemon, "it")["state"] == "paused", reasons(daemon)
    assert "has not answered" not in str(reasons(daemon))
    assert daemon.cli("resume", "it").returncode == 0
