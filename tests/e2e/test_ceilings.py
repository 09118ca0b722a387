# SPDX-License-Identifier: Apache-2.0
"""Ceilings hold until the memory is gone: over the grace of a program, and without a disk for the store."""
import datetime
import pathlib
import resource
import signal
import time

import pytest

from tests.support.keeping import daemon  # noqa: F401 (a fixture)
from tests.support.sublet import GIB, MIB, ROOT, living, wait_until

LEAK = ROOT / "tests" / "support" / "leak.py"
NEIGHBOUR = ("--vram", "2GiB", "--pausable", "no", "--tag", "good", "--", "simgpu-load", "--alloc", "1500MiB", "--step",
             "20MiB", "--rate", "250MiB/s", "--seconds", "2", "--verify")


REFUSED = {"vram_bytes": GIB, "ttl_seconds": 60}


def takes_memory(daemon, tag):
    wait_until(lambda: any(row["tag"] == tag and row["used_bytes"] > 0 for row in daemon.leases()), f"{tag} has memory")


def program(daemon, tag):
    return daemon.get(f"/v1/programs/{tag}").body


def reaches(daemon, tag, state):
    return wait_until(lambda: (now := program(daemon, tag))["state"] == state and now, f"{tag} is {state}")


def add(daemon, tag, *arguments, **fields):
    api = daemon.api()
    made = api.post("/v1/programs", {"tag": tag, "arguments": [*map(str, arguments)], "directory": str(daemon.dir),
                                     "environment": [f"PATH={daemon.env()['PATH']}"], **fields})
    api.close()
    assert made.status == 201, made


@pytest.mark.parametrize("way, rate", [("deaf", 200), ("deaf", 1024), ("deaf", 3072), ("saves", 1024)])
def test_a_leak_that_does_not_end_harms_no_neighbour(daemon, tmp_path, way, rate):
    good = daemon.spawn("sublet", "run", *NEIGHBOUR)
    takes_memory(daemon, "good")
    held = tmp_path / "held"
    done = daemon.cli("run", "--memory", "1GiB", "--tag", "leak", "--", "python3", LEAK, rate, held, way)
    assert done.returncode == 128 + signal.SIGKILL, done.stderr
    assert int(held.read_text()) <= 1024 + 256, "it was ended in time"
    lease, = (row for row in daemon.leases(all=True) if row["tag"] == "leak")
    assert lease["end_reason"] == "over_limit"
    out, errors = good.communicate(timeout=60)
    assert good.returncode == 0 and "0 wrong words" in out, out + errors


def test_a_program_that_ends_at_sigterm_keeps_its_grace(daemon):
    done = daemon.cli("run", "--memory", "1GiB", "--", "simgpu-load", "--alloc", "3GiB", "--step", "16MiB", "--rate",
                      "200MiB/s")
    assert done.returncode == 128 + signal.SIGTERM, done.stderr


def test_why_names_the_taker_of_promised_memory(daemon):
    slow = ["100MiB/s" if word.endswith("/s") else word for word in NEIGHBOUR]  # the other one is there before its end
    good = daemon.spawn("sublet", "run", *slow)
    takes_memory(daemon, "good")
    daemon.spawn("sublet", "run", "--vram", "1GiB", "--pausable", "no", "--tag", "greedy", "--", "simgpu-load",
                 "--alloc", "2900MiB", "--seconds", "600")
    assert good.wait(timeout=60) == 1

    def told():
        why = daemon.cli("why", "good", check=0).stdout
        return "was free on gpu0: lease-2 (simgpu-load~" in why and "has probably run out of memory" in why

    wait_until(told, "the remark that follows its end names the taker")


# --- the disk ---

def fail_writes(daemon, fails=True):
    """Like a full disk: every write of the daemon fails."""
    limit = 1 if fails else resource.RLIM_INFINITY
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


def is_back(daemon):
    return daemon.get("/healthz").status == 200


def pid_with_memory(daemon, tag):
    return wait_until(lambda: (now := program(daemon, tag))["used_bytes"] > 64 * MIB and now["pid"], f"{tag} fills")


def test_a_ceiling_needs_no_disk(daemon):
    add(daemon, "leak", "simgpu-load", "--alloc", "3GiB", "--step", "8MiB", "--rate", "150MiB/s", memory_bytes=GIB,
        vram_bytes=GIB, restart="never")
    pid = pid_with_memory(daemon, "leak")
    fail_writes(daemon)
    wait_until(lambda: not living(pid), "it was ended")
    fail_writes(daemon, False)
    wait_until(lambda: is_back(daemon), "the store is back")
    now = reaches(daemon, "leak", "failed")
    assert now["end_reason"] == "over_limit", now
    lease = daemon.api().lease(now["lease"])
    assert lease["peak_used_bytes"] <= GIB + 256 * MIB
    assert "its end is not stored yet" in daemon.log()


def test_a_stop_needs_no_disk_and_is_kept(daemon):
    add(daemon, "serve", "simgpu-load", "--alloc", "256MiB", "--seconds", "600", vram_bytes=GIB, restart="always")
    pid = pid_with_memory(daemon, "serve")
    fail_writes(daemon)
    wait_until(lambda: daemon.api().post("/v1/leases", REFUSED).status == 503, "it fails")
    done = daemon.cli("stop", "serve")
    assert done.returncode != 0 and "got SIGTERM, and gets SIGKILL in" in done.stderr, done.stderr
    wait_until(lambda: not living(pid), "it was ended")
    fail_writes(daemon, False)
    wait_until(lambda: is_back(daemon), "the store is back")
    assert reaches(daemon, "serve", "stopped")["starts"] == 1


def test_a_detached_run_tells_why_it_is_refused(daemon):
    fail_writes(daemon)
    wait_until(lambda: daemon.api().post("/v1/leases", REFUSED).status == 503, "it fails")
    done = daemon.cli("run", "--detach", "--tag", "serve", "--vram", "1GiB", "--", "true", timeout=60)
    assert done.returncode != 0 and "store" in done.stderr, done
    fail_writes(daemon, False)


def test_a_long_command_line_is_taken(daemon):
    words = [f"word-{i:05}" for i in range(20_000)]  # 240 KB
    assert daemon.cli("run", "--detach", "--tag", "long", "--vram", "1GiB", "--", "sh", "-c", "echo $#", "sh",
                      *words).returncode == 0
    reaches(daemon, "long", "exited")
    assert daemon.cli("logs", "--no-marks", "long", check=0).stdout == "20000\n"


# --- what the daemon waits for ---

def test_a_daemon_without_a_driver_says_so_in_its_log(start_daemon, tmp_path):
    nothing = tmp_path / "libnvidia-ml.so.1"
    daemon = start_daemon(None, config=f'[gpu]\nnvml = "{nothing}"\n', wait_for_cards=False)
    wait_until(lambda: "the GPUs cannot be read, no lease is granted" in daemon.log(), "its log tells")
    assert "the GPUs cannot be read" in daemon.cli("status").stdout


def test_files_of_the_daemon_are_for_its_user_alone(daemon):
    state = pathlib.Path(daemon.dir) / "state"
    wait_until((state / "meter.db").exists, "the meter writes")
    modes = {path.name: path.stat().st_mode & 0o077 for path in state.glob("*.db*")}
    assert modes and not any(modes.values()), modes


def test_the_end_of_a_program_has_its_own_time(daemon):
    add(daemon, "job", "sh", "-c", "sleep 1; exit 3", vram_bytes=GIB)
    pid = wait_until(lambda: program(daemon, "job")["pid"], "it runs")
    daemon.kill()
    wait_until(lambda: not living(pid), "it has ended")
    record = wait_until(lambda: next(pathlib.Path(daemon.dir).rglob("lease-*.json"), None), "its keeper recorded that")
    ended = record.stat().st_mtime
    wait_until(lambda: time.time() > ended + 1.5, "a while has passed")
    daemon.start()
    now = reaches(daemon, "job", "failed")
    since = datetime.datetime.fromisoformat(now["since"].replace("Z", "+00:00")).timestamp()
    assert since < ended + 1, (since, ended)
    assert now["exit_status"] == 3
