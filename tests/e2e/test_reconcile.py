# SPDX-License-Identifier: Apache-2.0
"""A store that fails and comes back, and keepers that do not do their part."""
import ctypes
import os
import resource
import signal
import time
import urllib.parse

from tests.support.sublet import GIB, living, name_of, pidfds_have_inodes, state_of, wait_until

QUICK = ('[gpu]\ninterval_idle = "300ms"\ninterval_busy = "200ms"\n'
         '[lease]\nlinger = "500ms"\nreconnect = "1s"\ngrace = "1s"\n')
ASK = {"vram_bytes": GIB, "ttl_seconds": 600}


class FailingStore:
    """While it lasts every write of the daemon fails, as on a full disk."""

    def __init__(self, daemon, api):
        self.daemon, self.api = daemon, api

    def __enter__(self):
        resource.prlimit(self.daemon.process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        wait_until(lambda: self.api.post("/v1/leases", ASK).status == 503, "the store has failed")

    def __exit__(self, *_):
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(self.daemon.process.pid, resource.RLIMIT_FSIZE, unlimited)
        wait_until(lambda: self.api.get("/healthz").status == 200, "the store is back")


def test_an_owner_that_ends_while_the_store_fails_ends_its_lease(start_daemon):
    daemon = start_daemon(config=QUICK)
    api = daemon.api()
    owner = daemon.spawn("sleep", "600")
    lease = api.post("/v1/leases", {"vram_bytes": GIB, "owner": {"pid": owner.pid}})
    with FailingStore(daemon, api):
        owner.kill()
        owner.wait()
        wait_until(lambda: api.get("/healthz").status == 503, "still failing")
    ended = api.get(f"/v1/leases/{lease['id']}?wait=30s&since=active")
    assert ended["state"] == "ended"


def test_leases_held_over_a_failing_store_and_ids_are_not_given_twice(start_daemon):
    daemon = start_daemon(config=QUICK)
    api, other = daemon.api(), daemon.api()
    held = other.post("/v1/leases", {"vram_bytes": GIB})
    short = other.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 1, "owner": {"connection": True}})
    with FailingStore(daemon, api):
        lost = other.post("/v1/leases", {"vram_bytes": GIB})  # its connection stays open
        assert lost.status == 503
        wait_until(lambda: api.get("/v1/status")["warnings"], "a warning")
    assert daemon.process.poll() is None
    ended = api.get(f"/v1/leases/{short['id']}?wait=30s&since=active")
    assert ended["end_reason"] == "expired"
    assert api.lease(held["id"])["state"] == "active"
    mine = daemon.api()
    fresh = mine.post("/v1/leases", {"vram_bytes": GIB})
    assert fresh.status == 201
    mine.close()  # no other process may keep the lease alive
    ended = api.get(f"/v1/leases/{fresh['id']}?wait=30s&since=active")
    assert (ended["state"], ended["end_reason"]) == ("ended", "owner_gone")


def run_and_wait(daemon, *command):
    keeper = daemon.spawn("sublet", "run", "--vram", "1GiB", "--", *command)
    return keeper, wait_until(lambda: next((now for now in daemon.leases() if now["owner"]["pid"] and
                                             name_of(now["owner"]["pid"]) != "sublet"), None), "it runs")


def test_a_stopped_keeper_is_woken_when_its_program_should_end(start_daemon):
    daemon = start_daemon(config=QUICK)
    keeper, lease = run_and_wait(daemon, "sleep", "600")
    os.kill(lease["owner"]["pid"], signal.SIGSTOP)
    keeper.send_signal(signal.SIGSTOP)
    wait_until(lambda: state_of(keeper.pid) == "T", "the keeper is stopped")
    daemon.api().post(f"/v1/leases/{lease['id']}/release", {"stop": True})
    assert keeper.wait(60) == 128 + signal.SIGTERM
    assert daemon.api().get(f"/v1/leases/{lease['id']}?wait=30s&since=active")["exit_status"] == 128 + signal.SIGTERM


def test_an_unresponsive_keeper_does_not_protect_its_program(start_daemon):
    daemon = start_daemon(config=QUICK)
    keeper, lease = run_and_wait(daemon, "sleep", "600")
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    seize, interrupt = 0x4206, 0x4207  # the numbers of linux/ptrace.h
    assert ptrace(seize, keeper.pid, None, None) == 0 and ptrace(interrupt, keeper.pid, None, None) == 0
    wait_until(lambda: state_of(keeper.pid) == "t", "the keeper does not run")
    daemon.api().post(f"/v1/leases/{lease['id']}/release", {"stop": True})
    wait_until(lambda: not living(lease["owner"]["pid"]), "the program is killed after the grace")
    detach = 17
    os.waitpid(keeper.pid, os.WUNTRACED)
    assert ptrace(detach, keeper.pid, None, None) == 0
    assert keeper.wait(60) == 128 + signal.SIGKILL
    assert daemon.api().get(f"/v1/leases/{lease['id']}?wait=30s&since=active")["exit_status"] == 128 + signal.SIGKILL


def test_after_a_restart_only_proof_lets_a_program_be_stopped(start_daemon):
    daemon = start_daemon(config=QUICK)
    keeper, lease = run_and_wait(daemon, "sleep", "600")
    keeper.kill()
    daemon.restart()
    api = daemon.api()
    stop = api.post(f"/v1/leases/{lease['id']}/release", {"stop": True})
    if pidfds_have_inodes():
        assert stop.status == 200
        ended = api.get(f"/v1/leases/{lease['id']}?wait=30s&since=active")
        assert (ended["end_reason"], ended["exit_status"]) == ("released", None)
        assert not living(lease["owner"]["pid"])
    else:
        assert stop.status == 409 and stop["code"] == "Unkillable", stop
        assert str(lease["owner"]["pid"]) in stop["detail"]
        assert living(lease["owner"]["pid"])


def test_without_proof_a_stop_is_refused(start_daemon):
    daemon = start_daemon(config=QUICK)
    keeper, lease = run_and_wait(daemon, "sleep", "600")
    keeper.kill()
    daemon.kill()
    with daemon.store() as store:
        store.execute("UPDATE leases SET document = json_remove(document, '$.owner.inode')")  # as on an older kernel
    daemon.start()
    stop = daemon.api().post(f"/v1/leases/{lease['id']}/release", {"stop": True})
    assert stop.status == 409 and stop["code"] == "Unkillable", stop
    assert str(lease["owner"]["pid"]) in stop["detail"]
    assert living(lease["owner"]["pid"])
    os.kill(lease["owner"]["pid"], signal.SIGKILL)
    ended = daemon.api().get(f"/v1/leases/{lease['id']}?wait=30s&since=active")
    assert ended["state"] == "ended"


def test_attached_processes_are_neither_ended_nor_awaited(start_daemon):
    daemon = start_daemon(config=QUICK)
    keeper, lease = run_and_wait(daemon, "sh", "-c", "trap '' TERM; while :; do sleep 1; done")
    stranger = daemon.spawn("sh", "-c", "sleep 600 & echo $!; wait", start_new_session=True)
    child = int(stranger.stdout.readline())
    daemon.cli("attach", lease["id"], "--pid", stranger.pid, check=0)
    keeper.kill()
    daemon.api().post(f"/v1/leases/{lease['id']}/release", {"stop": True})
    ended = daemon.api().get(f"/v1/leases/{lease['id']}?wait=30s&since=active")
    assert ended["end_reason"] == "released"
    assert not living(lease["owner"]["pid"])
    assert stranger.poll() is None and living(child), "not started by us, so not ours to end"
    os.kill(child, signal.SIGKILL)


def test_old_exit_records_are_swept(start_daemon):
    daemon = start_daemon(config=QUICK)
    keeper, lease = run_and_wait(daemon, "sleep", "600")
    exits = daemon.dir / "state" / "exits" / str(os.geteuid())
    daemon.kill()
    (exits / "lease-4711-1.json").write_text("{}")
    (exits / "notes.json").write_text("mine")
    os.kill(lease["owner"]["pid"], signal.SIGTERM)
    wait_until(lambda: list(exits.glob(f"{lease['id']}-*.json")), "the keeper left its note")
    daemon.start()
    assert keeper.wait(60) == 128 + signal.SIGTERM
    assert daemon.api().get(f"/v1/leases/{lease['id']}?wait=30s&since=active")["exit_status"] == 128 + signal.SIGTERM
    assert not (exits / "lease-4711-1.json").exists()
    assert (exits / "notes.json").exists()


def test_a_refused_attach_books_nothing(start_daemon):
    daemon = start_daemon(config=QUICK)
    api = daemon.api()
    program = daemon.spawn("simgpu-load", "--alloc", "1GiB", "--seconds", "600")
    lease = api.post("/v1/leases", ASK)
    refused = api.post(f"/v1/leases/{lease['id']}/attach", {"pid": program.pid, "generation": 1})
    assert (refused.status, refused["code"]) == (409, "Stale")
    row = wait_until(lambda: next((p for p in api.get("/v1/processes")["processes"] if p["pid"] == program.pid and
                                   (p["used_bytes"] or 0) >= GIB), None), "it is listed")
    assert row["lease"] is None
    keeper = api.post(f"/v1/leases/{lease['id']}/attach",
                      {"pid": program.pid, "keeper_pid": daemon.process.pid, "owner": True})
    assert keeper.status == 400 and "parent of a program" in keeper["hint"]
    if os.geteuid() == 0:  # other users may not name foreign processes
        asks = {f"/v1/leases/{lease['id']}/attach": {"pid": 1}, "/v1/leases": {**ASK, "owner": {"pid": 1}}}
        for path, body in asks.items():
            all_of_them = api.post(path, body)
            assert all_of_them.status == 400 and "every process" in all_of_them["detail"]


def test_a_retry_on_another_connection_holds_the_lease(start_daemon):
    daemon = start_daemon(config=QUICK)
    watcher, first, second = daemon.api(), daemon.api(), daemon.api()
    lease = first.post("/v1/leases", {"vram_bytes": GIB}, Idempotency_Key="again")
    same = second.post("/v1/leases", {"vram_bytes": GIB}, Idempotency_Key="again")
    assert (same.status, same["id"], same["token"]) == (201, lease["id"], lease["token"])
    assert same.headers["Location"] == f"/v1/leases/{lease['id']}"
    first.close()
    assert watcher.get(f"/v1/leases/{lease['id']}?wait=1500ms&since=active")["state"] == "active"
    second.close()
    assert watcher.get(f"/v1/leases/{lease['id']}?wait=30s&since=active")["state"] == "ended"


def test_names_in_any_alphabet_and_a_long_command_are_fine(start_daemon):
    daemon = start_daemon(config=QUICK)
    api = daemon.api()
    command = "python " + "é" * 300
    tag = "训练 № 1"
    lease = api.post("/v1/leases", dict(ASK, tag=tag, consumer="ü" * 64, command=command))
    assert lease.status == 201
    assert api.lease(urllib.parse.quote(tag))["command"] == command
    assert tag in daemon.cli("ps", check=0).stdout
    assert daemon.cli("release", tag, check=0)
    for field in ("tag", "consumer"):
        for bad in ("team/job", "ü" * 65, "a\nb", "a\u202eb"):
            assert api.post("/v1/leases", dict(ASK, **{field: bad})).status == 400, (field, bad)
    escape = api.post("/v1/leases", dict(ASK, command="x" * 300 + "\x1b[31m"))
    assert escape.status == 400


def test_an_existing_directory_keeps_its_rights(tmp_path, start_daemon):
    daemon = start_daemon(config=QUICK)
    daemon.process.terminate()
    daemon.process.wait(30)
    daemon.dir.chmod(0o755)
    daemon.start()
    assert daemon.dir.stat().st_mode & 0o777 == 0o755
    assert (daemon.dir / "state").stat().st_mode & 0o777 == 0o700


def test_a_clock_gap_expires_nothing(start_daemon):
    daemon = start_daemon(config=QUICK.replace('reconnect = "1s"', 'reconnect = "3s"'))
    api = daemon.api()
    lease = api.post("/v1/leases", {"vram_bytes": GIB, "ttl_seconds": 600})
    run = daemon.spawn("sublet", "run", "--vram", "1GiB", "--ttl", "10s", "--", "sleep", "600")
    running = wait_until(lambda: next((now for now in daemon.leases() if now["owner"]["pid"]), None), "it runs")
    assert api.post(f"/v1/leases/{lease['id']}/renew", {"ttl_seconds": 2}).status == 200
    assert api.post(f"/v1/leases/{running['id']}/renew", {"ttl_seconds": 2}).status == 200
    daemon.process.send_signal(signal.SIGSTOP)
    over = time.monotonic() + 2.5  # its time, and the threshold of a clock gap
    wait_until(lambda: time.monotonic() > over, "its time is over")
    daemon.process.send_signal(signal.SIGCONT)
    renewed = api.post(f"/v1/leases/{lease['id']}/renew", {"ttl_seconds": 600})
    assert (renewed.status, renewed["state"]) == (200, "active"), renewed
    assert api.post(f"/v1/leases/{running['id']}/renew", {"ttl_seconds": 600})["state"] == "active"
    assert run.poll() is None
    assert "stood still for" in daemon.log()
