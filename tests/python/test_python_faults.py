# SPDX-License-Identifier: Apache-2.0
"""Forks, ends of the process, restarts and absence of the daemon."""
import os
import signal
import subprocess
import threading

import pytest

import sublet
from tests.support.python_place import CONFIG
from tests.support.sublet import GIB, wait_until
from tests.support.tcp import free_port


def is_gone(place):
    """Waits until the lease has ended. A process without a keeper has no exit status, so each end is a release."""
    wait_until(lambda: not place.leases(), "the lease has ended")
    assert place.get("/v1/leases/lease-1")["end_reason"] == "released"


HOLD = ("import sublet, sys\n"
        "lease = sublet.lease('1GiB').acquire()\n"
        "print(lease.id, flush=True)\n"
        "sys.stdin.readline()\n")


def held(place, text=HOLD, **options):
    child = place.python(text, **options)
    assert child.stdout.readline() == "lease-1\n"
    return child


def test_the_end_of_the_interpreter_gives_the_lease_back(place):
    child = held(place)
    child.stdin.close()
    assert child.wait(60) == 0 and child.stderr.read() == ""
    is_gone(place)


def test_sigkill_ends_the_lease(place):
    child = held(place)
    child.kill()
    child.wait()
    is_gone(place)


def test_sigkill_of_a_waiting_process_withdraws_its_request(place):
    # Held by a token: below a process that has this memory, the request would wait for itself.
    place.daemon.api().post("/v1/leases", {"vram_bytes": 3 << 30, "ttl_seconds": 600})
    child = place.python("import sublet; sublet.lease('2GiB', tag='waiter').acquire()")
    wait_until(lambda: place.leases("queued"), "it waits")
    child.kill()
    child.wait()
    wait_until(lambda: not place.leases("queued"), "its request is gone")


def test_a_lease_outlives_a_restart_of_the_daemon(place):
    with sublet.lease("1GiB") as lease:
        place.daemon.restart()
        assert lease.refresh()["state"] == "active"
        lease.resize("2GiB")
        assert place.get(f"/v1/leases/{lease.id}")["vram_bytes"] == 2 * GIB
    assert place.leases() == []


def test_a_call_waits_for_a_daemon_that_restarts(place):
    with sublet.lease("1GiB") as lease:
        place.daemon.kill()
        grown = []
        thread = threading.Thread(target=lambda: grown.append(lease.resize("2GiB")))
        thread.start()
        place.daemon.start()
        thread.join(60)
        assert grown == [None] and lease.vram_bytes == 2 * GIB


def test_no_daemon_is_an_error_with_a_hint(place, monkeypatch):
    place.daemon.kill()
    with pytest.raises(sublet.DaemonUnavailable) as missing:
        sublet.lease("1GiB").acquire()
    assert str(place.daemon.socket) in missing.value.message and "start it" in missing.value.hint
    assert missing.value.code == "DaemonUnavailable" and missing.value.to_dict()["status"] is None
    with pytest.raises(sublet.DaemonUnavailable):
        sublet.status()
    with pytest.raises(sublet.DaemonUnavailable):
        next(sublet.events())
    for host in ("ftp://somewhere", "http://198.51.100.7:80", "http://127.0.0.1"):
        monkeypatch.setenv("SUBLET_HOST", host)
        with pytest.raises(sublet.BadRequest):
            sublet.lease("1GiB").acquire()


def test_a_daemon_that_stays_away_is_disconnected(place, monkeypatch):
    from sublet import _http
    client = _http.client_here()
    client.call(_http.Call("GET", "/v1/status"))
    place.daemon.kill()
    with pytest.raises(sublet.Disconnected) as away:
        client.call(_http.Call("GET", "/v1/status", patience=0.1))
    assert isinstance(away.value, sublet.DaemonUnavailable) and away.value.numbers["waited_seconds"] >= 0.1


def test_a_release_that_failed_can_be_repeated(place, monkeypatch):
    lease = sublet.lease("1GiB", on_pause=lambda order: None).acquire()
    place.daemon.kill()
    with monkeypatch.context() as patch:
        patch.setattr("sublet._lease.RECONNECT_SECONDS", 0.1)
        with pytest.raises(sublet.Disconnected):
            lease.release()
    assert lease.held and lease.safe_point() is False
    place.daemon.start()
    assert len(place.leases()) == 1
    lease.release()
    assert not lease.held and place.leases() == []


def test_the_interpreter_ends_soon_although_the_daemon_stands_still(place):
    text = "import sublet._lease; sublet._lease.BRIEF_SECONDS = 0.5\n" + HOLD
    child = held(place, text)
    place.daemon.process.send_signal(signal.SIGSTOP)
    try:
        child.stdin.close()
        assert child.wait(20) == 0
    finally:
        place.daemon.process.send_signal(signal.SIGCONT)
    is_gone(place)


def test_a_socket_with_a_long_path_is_found(place, tmp_path, monkeypatch):
    folder = tmp_path / ("deep" * 30)
    folder.mkdir()
    (folder / "s").symlink_to(place.daemon.socket)
    monkeypatch.setenv("SUBLET_HOST", f"unix://{folder}/s")
    assert len(f"{folder}/s") > 108 and sublet.status().devices


def test_over_tcp_tables_are_read_and_leases_refused(start_place, monkeypatch, tmp_path):
    port = free_port()
    place = start_place(config=CONFIG + f'[api]\ntcp = "127.0.0.1:{port}"\n')
    place.daemon.cli("token", "create", "--scope", "submit", "--name", "it", "--file", tmp_path / "token", check=0)
    monkeypatch.setenv("SUBLET_HOST", f"http://127.0.0.1:{port}")
    with pytest.raises(sublet.SubletError):
        sublet.status()
    monkeypatch.setenv("SUBLET_TOKEN_FILE", str(tmp_path / "token"))
    assert sublet.status().devices and list(sublet.events(since="0", follow=False))
    with pytest.raises(sublet.Denied) as refused:
        sublet.lease("1GiB").acquire()
    assert "process" in refused.value.message and refused.value.hint
    (tmp_path / "token").write_text("two words")
    with pytest.raises(sublet.BadRequest):
        sublet.status()


# --- forks ---

def in_child(work):
    """Runs `work` in a forked child, and returns the text that it returns."""
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = "failed"
        try:
            text = str(work())
        except BaseException as problem:
            text = f"{type(problem).__name__}: {problem}"
        finally:
            os.write(theirs, text.encode())
            os._exit(0)
    os.close(theirs)
    with open(ours) as reader:
        text = reader.read()
    os.waitpid(pid, 0)
    return text


def test_a_forked_child_reads_the_lease_and_does_not_own_it(place):
    with sublet.lease("2GiB") as lease:
        assert in_child(lambda: (lease.id, lease.vram_bytes, lease.devices, lease.refresh()["state"])) == str(
            (lease.id, 2 * GIB, lease.devices, "active"))
        assert in_child(lambda: lease.resize("1GiB")).startswith("ForkedLease: lease-1 belongs to process")
        assert in_child(lease.safe_point).startswith("ForkedLease")
        assert in_child(lease.release) == "None"
        assert in_child(lambda: lease.__exit__()) == "None"
        assert lease.refresh()["state"] == "active", "nothing that the child did ended it"


def test_a_forked_child_may_end_in_the_middle_of_the_block(place):
    text = ("import os, sublet, sys\n"
            "with sublet.lease('1GiB') as lease:\n"
            "    print(lease.id, flush=True)\n"
            "    if os.fork() == 0: sys.exit()\n"
            "    os.wait()\n"
            "    print(lease.refresh()['state'], flush=True)\n")
    child = held(place, text)
    assert child.stdout.readline() == "active\n" and child.wait(60) == 0


def test_a_lease_in_a_forked_child_is_inside_that_of_its_parent(place):
    def nested():
        with sublet.lease("1GiB") as inner:
            return inner.nested, inner.id

    with sublet.lease("2GiB") as lease:
        assert in_child(nested) == str((True, lease.id))

        def after_its_end():
            place.daemon.cli("release", lease.id, "--force", check=0)
            return nested()

        assert in_child(after_its_end) == str((False, "lease-2"))


def test_a_child_does_not_take_its_ended_parents_devices_for_a_wish(start_place):
    place = start_place("3x4GiB")
    text = "import sublet\nwith sublet.lease('1GiB') as lease: print(lease.nested)\n"

    def own():
        place.daemon.cli("release", lease.id, "--force", check=0)
        with sublet.lease("1GiB") as mine:
            return mine.nested

    with sublet.lease("1GiB", gpus=2) as lease:
        env = {**place.env(), **lease.env}
        assert in_child(own) == "False"
        child = place.daemon.spawn("python3", "-c", text, env=env)
        assert child.communicate(timeout=60)[0] == "False\n", "a program started by it does not either"


def test_a_process_that_was_attached_later_is_inside_its_lease(place):
    text = ("import sublet\ninput()\nwith sublet.lease('2GiB') as lease: print(lease.nested, lease.id)\n"
            "with sublet.lease('1GiB') as again: print(again.nested)\n")
    kernel = place.daemon.spawn("python3", "-c", text, env=place.env(), stdin=subprocess.PIPE)
    held = place.daemon.cli("hold", "--vram", "3GiB", "--pid", kernel.pid, check=0).stdout.strip()
    out, _ = kernel.communicate("\n", timeout=60)
    assert out == f"True {held}\nTrue\n"


def test_a_spawned_child_is_inside_the_lease_of_its_parent(place):
    text = "import sublet\nwith sublet.lease('1GiB') as lease: print(lease.nested, lease.id)\n"
    with sublet.lease("3GiB") as lease:
        child = place.daemon.spawn("python3", "-c", text, env={**place.env(), **lease.env})
        assert child.communicate(timeout=60)[0] == f"True {lease.id}\n"


# --- threads ---

def test_threads_have_leases_of_their_own(place):
    ids, problems = [], []
    barrier = threading.Barrier(8)

    def work():
        try:
            with sublet.lease("256MiB") as lease:
                ids.append(lease.id)
                barrier.wait(60)
        except BaseException as problem:
            problems.append(problem)
            raise

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems and len(set(ids)) == 8 and place.leases() == []


def test_ctrl_c_in_the_block_gives_the_lease_back(place):
    text = ("import sublet, signal\n"
            "try:\n"
            "    with sublet.lease('1GiB') as lease:\n"
            "        print(lease.id, flush=True)\n"
            "        signal.pause()\n"
            "except KeyboardInterrupt: print('interrupted', flush=True)\n"
            "input()\n")
    child = held(place, text)
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted\n" and place.leases() == []
