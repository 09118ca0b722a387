# SPDX-License-Identifier: Apache-2.0
"""A paused program: unleased processes in its memory, orphaned leases, shares and limits of host memory, progress."""
import contextlib
import os
import re
import signal
import subprocess

import pytest

from tests.support.keeping import read_until
from tests.support.parking import ends_well, lease_of, quick_checkpoints, until, until_filled, used_on_card
from tests.support.sublet import GIB, MIB, wait_until
from tests.support.terminal import Shell

CONFIG = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "100ms"\n'
          '[lease]\nlinger = "500ms"\nreconnect = "5s"\ngrace = "5s"\n[pause]\nverify_timeout = "5s"\n')


@pytest.fixture
def daemon(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG)
    quick_checkpoints(daemon)
    return daemon


def run(daemon, tag, vram, alloc, *flags):
    program = daemon.spawn("sublet", "run", "--vram", vram, "--tag", tag, *flags, "--", "simgpu-load", "--alloc", alloc,
                           "--seconds", "600", "--verify")
    until_filled(daemon, tag, alloc)
    return program


def texts(daemon, tag, code):
    return [reason["text"] for reason in daemon.get(f"/v1/leases/{tag}/why")["reasons"] if reason["code"] == code]


# --- unleased processes ---

def test_a_lease_resumes_when_the_unleased_process_leaves(daemon):
    first = run(daemon, "first", "3GiB", "1GiB")
    assert daemon.cli("pause", "first").returncode == 0
    assert lease_of(daemon, "first")["blocked"] is None
    unleased = daemon.spawn("simgpu-load", "--alloc", "2GiB", "--seconds", "600")
    wait_until(lambda: used_on_card(daemon) > 2 * GIB, "somebody without a lease took the room")
    done = daemon.cli("resume", "first", "--wait", "1s")
    assert done.returncode == 124, done.stderr
    assert f"ResumeBlocked: pid {unleased.pid} (simgpu-load) holds 2." in done.stderr, done.stderr
    blocked = wait_until(lambda: lease_of(daemon, "first")["blocked"], "it says who")
    assert blocked["code"] == "ResumeBlocked"
    (who,) = blocked["unleased_processes"]
    assert (who["pid"], who["program"]) == (unleased.pid, "simgpu-load") and who["bytes"] > 2 * GIB
    reason = f"ResumeBlocked: pid {unleased.pid} (simgpu-load"
    assert reason in daemon.cli("ps", check=0).stdout
    assert reason in daemon.cli("why", "first", check=0).stdout
    assert len(texts(daemon, "first", "blocked")) == 1, "told once"
    assert daemon.cards()["calls"].get("cuCheckpointProcessRestore", 0) == 0, "no restore is tried meanwhile"
    assert lease_of(daemon, "first")["state"] == "paused"
    unleased.kill()
    unleased.wait()
    until(daemon, "first", "active")
    ends_well(daemon, "first", first)


def test_an_unleased_process_during_verification_is_named(daemon):
    batch = run(daemon, "batch", "3GiB", "2GiB", "--tier", "batch")
    daemon.ctl("fault", "checkpoint-hang")
    urgent = daemon.spawn("sublet", "run", "--vram", "3GiB", "--tag", "urgent", "--tier", "interactive", "--",
                          "simgpu-load", "--alloc", "1GiB", "--seconds", "1", "--verify")
    until(daemon, "batch", "pausing")
    unleased = daemon.spawn("simgpu-load", "--alloc", "900MiB", "--seconds", "600")
    wait_until(lambda: daemon.get("/v1/devices")["devices"][0]["other_bytes"] >= 900 * MIB, "it is there")
    daemon.ctl("clear")
    said = wait_until(lambda: texts(daemon, "urgent", "blocked"), "the unleased process is named")
    assert said[0].startswith(f"External: pid {unleased.pid} (simgpu-load, without a lease) holds"), said
    # The pause freed no memory, but that is not the program's fault: the pause counts as a success.
    assert texts(daemon, "batch", "paused")
    assert not any("still held" in text for text in texts(daemon, "batch", "resuming"))
    unleased.kill()
    unleased.wait()
    assert urgent.wait(timeout=90) == 0, urgent.communicate()
    until(daemon, "batch", "active")
    ends_well(daemon, "batch", batch)


def test_a_wait_for_an_unleased_process_is_told(daemon):
    unleased = daemon.spawn("simgpu-load", "--alloc", "2GiB", "--seconds", "600")
    wait_until(lambda: used_on_card(daemon) > 2 * GIB, "it holds its bytes")
    waits = daemon.api().post("/v1/leases", {"vram_bytes": 3 * GIB, "ttl_seconds": 60, "tag": "waits"})
    assert waits.status == 202 and waits["blocked"]["code"] == "External"
    assert waits["blocked"]["unleased_processes"][0]["pid"] == unleased.pid
    assert f"External: pid {unleased.pid} (simgpu-load)" in daemon.cli("ps", check=0).stdout


# --- orphaned leases ---

HOOK = """
import http.server, json
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        order = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["order"]
        body = json.dumps({"answer": {"yield": "yielded", "resume": "resumed"}[order]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.HTTPServer(("127.0.0.1", 0), Hook)
print(server.server_port, flush=True)
server.serve_forever()
"""


def parked_token_lease(daemon, program):
    """A lease of a token, with an attached cooperative program."""
    api = daemon.api()
    assert api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600, "tag": "tokens"})["owner"]["kind"] == "token"
    assert api.post("/v1/leases/tokens/attach", {"pid": program.pid}).status == 200
    url = f"http://127.0.0.1:{int(program.stdout.readline())}/"
    assert api.post("/v1/leases/tokens/cooperate", {"way": "webhook", "url": url}).status == 200
    assert api.post("/v1/leases/tokens/pause", {}).status in (200, 202)
    return until(daemon, "tokens", "paused")


def test_a_paused_token_lease_without_a_process_ends(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG + 'orphan_after = "1s"\n')
    program = daemon.spawn("/usr/bin/python3", "-c", HOOK)
    parked_token_lease(daemon, program)
    # The lease stays as long as its program lives, however long it is paused.
    later = daemon.api().post("/v1/leases", {"vram_bytes": MIB, "ttl_seconds": 2, "tag": "clock"})
    until(daemon, later["id"], "ended")
    assert lease_of(daemon, "tokens")["state"] == "paused"
    program.kill()
    program.wait()
    ended = until(daemon, "tokens", "ended")
    assert ended["end_reason"] == "expired"
    assert "none of its processes has lived" in texts(daemon, "tokens", "ended")[0]


# --- the ledger ---

def test_one_user_does_not_fill_the_ledger_for_all(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG + '[ledger]\nlimit = "3GiB"\nuser_share = 0.5\n')
    quick_checkpoints(daemon)
    other = daemon.api().post("/v1/leases", {"vram_bytes": MIB, "ttl_seconds": 600})
    run(daemon, "large", "2GiB", "1GiB")
    daemon.kill()
    with daemon.store() as store:
        store.execute("UPDATE leases SET uid = 65534, document = "
                      "json_set(document, '$.uid', 65534, '$.user', 'nobody') WHERE id = ?",
                      (int(other["id"].split("-")[1]),))
    daemon.start()
    until(daemon, "large", "active")
    wait_until(lambda: lease_of(daemon, "large")["used_bytes"] > GIB, "it is seen again")
    refused = daemon.api().post("/v1/leases/large/pause", {})
    assert (refused.status, refused["code"]) == (409, "HostMemory"), refused.body
    assert "0 B of the 1.5 GiB that one user may take" in refused["detail"], refused.body
    assert "ledger.user_share" in refused["hint"]
    assert daemon.get("/v1/ledger")["share_bytes"] == 3 * GIB // 2
    assert daemon.api().post(f"/v1/leases/{other['id']}/release", {}).status == 200
    assert daemon.cli("pause", "large").returncode == 0, "alone all of it is there"
    status = daemon.get("/v1/status")["ledger"]
    (entry,) = status["entries"]
    assert entry["settled"] and entry["class"] == "parked" and status["users"][0]["bytes"] == entry["bytes"]
    shown = daemon.cli("status", check=0).stdout
    assert re.search(r"in host memory: \S+ \S+ of 3.0 GiB", shown) and "  parked" in shown, shown
    limits = r"the least of: \S+ \S+ until ledger.limit, \S+ \S+ available on the machine.* control group"
    assert re.search(limits, shown), shown
    metrics = daemon.get("/metrics")
    assert 'sublet_ledger_bytes{state="limit"}' in str(metrics.body)


@contextlib.contextmanager
def swapped(pid, kibibytes, tmp_path):
    """Makes every reader see that so many bytes of the process are on a swap device."""
    fake = tmp_path / "status"
    with open(f"/proc/{pid}/status") as status:
        text = status.read()
    fake.write_text(re.sub(r"VmSwap:.*", f"VmSwap:\t{kibibytes} kB", text))
    path = f"/proc/{pid}/status"
    if subprocess.run(["mount", "--bind", fake, path], capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount: what the kernel says of swapped memory cannot be staged here")
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)


def test_a_parked_program_on_a_swap_device_is_reported(daemon, tmp_path):
    run(daemon, "parked", "2GiB", "512MiB")
    assert daemon.cli("pause", "parked").returncode == 0
    pid = lease_of(daemon, "parked")["owner"]["pid"]
    assert daemon.get("/v1/ledger")["entries"][0]["swapped_bytes"] == 0

    def warned():
        return [warning for warning in daemon.get("/v1/status")["warnings"] if warning["code"] == "parked-swapped"]
    with swapped(pid, 4096, tmp_path):
        (warning,) = wait_until(warned, "it is warned of")
        assert lease_of(daemon, "parked")["id"] in warning["text"]
        assert daemon.get("/v1/ledger")["entries"][0]["swapped_bytes"] == 4 * MIB
        assert "4.0 MiB swapped out" in daemon.cli("status", check=0).stdout
        assert 'sublet_ledger_bytes{state="swapped"} 4194304' in str(daemon.get("/metrics").body).replace("e+06", "")
    wait_until(lambda: not warned(), "it is over when it is back")


# --- progress ---

def test_progress_is_shown_during_pause_and_resume(daemon):
    run(daemon, "slow", "2GiB", "1GiB")
    daemon.ctl("fault", "checkpoint-hang")
    parking = daemon.spawn("sublet", "pause", "slow")

    def progress():
        return (lease_of(daemon, "slow")["pause"] or {}).get("progress")
    seen = wait_until(progress, "it says how far it is")
    assert seen["move"] == "pause" and seen["total_bytes"] > GIB and seen["moved_bytes"] <= seen["total_bytes"]
    assert re.search(r"\S+ \S+ of 1.3 GiB parked", daemon.cli("ps", check=0).stdout)
    said = read_until(parking.stderr, "is pausing")
    assert re.search(r"lease-\d+ is pausing: \S+ \S+ of 1.3 GiB parked", said), said
    daemon.ctl("clear")
    assert parking.wait(timeout=60) == 0, parking.communicate()
    assert lease_of(daemon, "slow")["pause"]["progress"] is None, "parked: nothing moves"
    daemon.ctl("fault", "restore-hang")
    back = daemon.spawn("sublet", "resume", "slow")
    assert wait_until(progress, "it says how far it is")["move"] == "resume"
    read_until(back.stderr, "restored")
    daemon.ctl("clear")
    assert back.wait(timeout=60) == 0, back.communicate()


def test_progress_on_a_terminal_is_one_line(daemon):
    run(daemon, "slow", "2GiB", "1GiB")
    daemon.ctl("fault", "checkpoint-hang")
    with Shell(daemon.env()) as shell:
        shell.type("sublet pause slow")
        shell.expect(r"\r[^\n]*is pausing: [^\n]* of 1\.3 GiB parked[^\n]*\r[^\n]*(parked|yielded)")
        daemon.ctl("clear")
        shell.expect(r"is paused: ")
        shell.type("sublet resume slow --json")
        assert "restored" not in shell.expect(r'\{"activity"[^\n]*').group(0)


# --- over a restart ---

def test_an_order_is_carried_out_by_the_next_daemon(start_daemon):
    daemon = start_daemon("1x4GiB", config=CONFIG + "automatic = false\n")
    quick_checkpoints(daemon)
    run(daemon, "holder", "3GiB", "1GiB")
    daemon.ctl("fault", "checkpoint-hang")
    waits = daemon.spawn("sublet", "run", "--vram", "2GiB", "--tag", "waits", "--", "sleep", "600")
    until(daemon, "waits", "queued")
    assert daemon.cli("preempt", "waits", "--no-wait").returncode == 0
    until(daemon, "holder", "pausing")
    daemon.kill()
    daemon.ctl("clear")
    daemon.start()
    until(daemon, "waits", "active")
    assert lease_of(daemon, "holder")["state"] in ("paused", "pausing")
    assert waits.poll() is None
    os.kill(wait_until(lambda: lease_of(daemon, "waits")["owner"]["pid"], "its program is its owner"), signal.SIGKILL)
    until(daemon, "holder", "active")


def test_results_of_pauses_are_not_forgotten(daemon):
    run(daemon, "first", "2GiB", "1GiB", "--name", "unlucky")
    daemon.ctl("fault", "checkpoint-fail")
    assert daemon.cli("pause", "first").returncode == 1
    daemon.kill()
    with daemon.store() as store:
        rows = store.execute("SELECT consumer, method, outcomes, tries FROM pause_records").fetchall()
        found = store.execute("SELECT json_extract(document, '$.resumed_at') FROM leases WHERE tag = 'first'")
        resumed_at, = found.fetchone()
    assert [tuple(row) for row in rows] == [("unlucky", "driver", 0, 1)]
    assert resumed_at is not None, "since then it has its room"
    daemon.start()
    until(daemon, "first", "active")
