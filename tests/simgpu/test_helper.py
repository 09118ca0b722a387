# SPDX-License-Identifier: Apache-2.0
"""`sublet-gpu checkpoint` driven from outside: it parks and restores an unmodified simgpu-load, and gives its reasons.
"""

import ctypes
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile

import pytest

import helper
import simcards
from simcards import MIB

QUICK = "1x1GiB,reserve=0,context_bytes=64MiB,link_bandwidth=0,checkpoint_us=0,restore_us=0"
QUICK += ",checkpoint_bandwidth=0,restore_bandwidth=0"
CONTEXT, RESIDUE = 64 * MIB, 4 * MIB
LOCK = {"timeout_ms": 10_000}
PTRACE_SEIZE = 0x4206


@pytest.fixture
def quick(make_cards):
    return make_cards(QUICK)


@pytest.fixture
def helpers():
    made = []

    def make(cards, pid, *arguments, **how):
        made.append(helper.Helper(cards, pid, *arguments, **how))
        return made[-1]

    yield make
    for one in made:
        one.kill()


@pytest.fixture
def load(quick):
    return quick.load("--alloc", "256MiB", "--seconds", "1h", "--dense").wait_filled()


def used(cards):
    return cards.show()["devices"][0]["used_bytes"]


def card(cards):
    return cards.show()["devices"][0]["uuid"]


def state_of(cards, load):
    (found,) = [process["state"] for process in cards.show()["processes"] if process["pid"] == load.pid]
    return found


def hits(cards, name):
    return sum(fault["hits"] for fault in cards.show()["faults"] if fault["name"] == name)


def until(condition):
    while not condition():
        pass


def ends_right(load):
    status, said = load.end(simcards.SIGTERM)
    assert status == 128 + simcards.SIGTERM and said["ok"] and said["verified_bytes"] >= 256 * MIB


def parked(one):
    one.ok("lock", **LOCK)
    one.ok("checkpoint")


def test_a_round_with_the_time_of_each_step(quick, helpers, load):
    quick.ctl("set", "checkpoint_us", 20_000)
    quick.ctl("set", "restore_us", 10_000)
    before = used(quick)
    one = helpers(quick, load.pid)
    checked = one.ok("preflight")
    assert checked["state"] == "running" and checked["name"] == "CUDA_SUCCESS" and checked["code"] == 0
    assert one.ok("lock", **LOCK)["state"] == "locked"
    out = one.ok("checkpoint")
    assert out["state"] == "checkpointed" and out["took_ns"] >= 20_000_000
    assert out["resident_bytes"] >= checked["resident_bytes"] + 256 * MIB
    assert used(quick) == RESIDUE and one.ok("state")["state"] == "checkpointed"
    back = one.ok("restore", ballast=[{"device": card(quick), "bytes": 512 * MIB}])
    assert back["state"] == "locked" and back["took_ns"] >= 10_000_000 and back["prepared_ns"] > 0
    assert back["held_bytes"] == 0 and used(quick) == before
    assert back["resident_bytes"] <= checked["resident_bytes"] + 64 * MIB
    assert one.ok("unlock")["state"] == "running"
    one.hang_up()
    assert one.process.wait() == 0
    ends_right(load)


def test_many_rounds_by_one_helper(quick, helpers, load):
    one = helpers(quick, load.pid)
    for _ in range(5):
        parked(one)
        one.ok("restore")
        one.ok("unlock")
    ends_right(load)


# ------------------------------------------------------------------------------------------- refusals


def test_a_process_that_is_gone(quick, helpers, load):
    for one in (helpers(quick, 4_194_303), helpers(quick, load.pid, "--start", 1)):
        for call in ("preflight", "state", "checkpoint", "restore", "unlock"):
            assert one(call)["reason"] == "gone"
    one = helpers(quick, load.pid)
    parked(one)
    load.kill()
    assert one("restore")["reason"] == "gone" and used(quick) == 0


def test_the_start_time_names_the_process(quick, helpers, load):
    ticks = pathlib.Path(f"/proc/{load.pid}/stat").read_text().rpartition(")")[2].split()[19]
    assert helpers(quick, load.pid, "--start", ticks)("preflight")["ok"]


def test_a_process_without_cuda(quick, helpers):
    reply = helpers(quick, os.getpid())("preflight")
    assert reply["reason"] == "no_cuda" and reply["name"] == "CUDA_ERROR_NOT_INITIALIZED"


def test_a_traced_process(quick, helpers, load):
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.ptrace(PTRACE_SEIZE, load.pid, None, None) == 0
    reply = helpers(quick, load.pid)("preflight")
    assert reply["reason"] == "traced" and str(os.getpid()) in reply["detail"]


def test_a_stopped_process_gets_no_call(quick, helpers, load):
    load.process.send_signal(signal.SIGSTOP)
    stat = pathlib.Path(f"/proc/{load.pid}/stat")
    until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
    one = helpers(quick, load.pid)
    for call, more in (("preflight", {}), ("state", {}), ("lock", LOCK), ("unlock", {})):
        assert one(call, **more)["reason"] == "stopped"
    load.process.send_signal(signal.SIGCONT)
    until(lambda: one("preflight")["ok"])


def test_a_process_in_another_state(quick, helpers, load):
    one = helpers(quick, load.pid)
    one.ok("lock", **LOCK)
    reply = helpers(quick, load.pid)("preflight")
    assert reply["reason"] == "wrong_state" and reply["state"] == "locked"


def test_a_driver_that_cannot(quick, helpers, load, tmp_path):
    missing = helpers(quick, load.pid, driver=tmp_path / "libcuda.so.1")("preflight")
    assert missing["reason"] == "no_driver" and "libcuda.so.1" in missing["detail"]
    other = helpers(quick, load.pid, driver=simcards.DRIVER / "libnvidia-ml.so.1")("lock", **LOCK)
    assert other["reason"] == "unsupported_driver" and "cuInit" in other["detail"]
    quick.ctl("set", "driver_version", 12060)
    old = helpers(quick, load.pid)("preflight")
    assert old["reason"] == "unsupported_driver" and "12.6" in old["detail"]


@pytest.fixture
def open_place():
    """A folder that any user can read, with the helper and the driver: a checkout may be closed to others."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        for source in (helper.PROGRAM, simcards.DRIVER / "libcuda.so.1"):
            shutil.copy(source, folder)
        yield folder


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_a_process_of_another_user_or_closed(helpers, open_place):
    cards = simcards.Cards(open_place / "cards", QUICK)
    nobody = {"user": 65534, "group": 65534, "extra_groups": []}
    how = {"program": open_place / "sublet-gpu", "driver": open_place / "libcuda.so.1", **nobody}
    load = cards.load("--alloc", "2MiB", "--seconds", "1h").wait_filled()
    assert helpers(cards, load.pid, **how)("preflight")["reason"] == "no_right"
    cards.end()
    # A user who may run a program but not read it gets a process that only root may inspect.
    closed = shutil.copy("/bin/sleep", open_place)
    os.chmod(closed, 0o711)
    sleeper = subprocess.Popen([closed, "3600"], **nobody)
    try:
        assert helpers(cards, sleeper.pid, **how)("preflight")["reason"] == "not_dumpable"
    finally:
        sleeper.kill()
        sleeper.wait()


CLOSES = """
import ctypes, sys
cuda, libc = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(64 << 20)) == 0
print("ready", flush=True)
for word in sys.stdin:
    assert libc.prctl(4, int(word)) == 0  # PR_SET_DUMPABLE
    print("done", flush=True)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_a_process_that_closes_itself_while_parked_can_be_restored(helpers, open_place):
    cards = simcards.Cards(open_place / "cards", QUICK)
    (cards.dir / "simgpu").chmod(0o1777)
    nobody = {"user": 65534, "group": 65534, "extra_groups": []}
    program = subprocess.Popen(["python3", "-c", CLOSES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env=cards.env(LD_LIBRARY_PATH=str(open_place)), **nobody)
    try:
        assert program.stdout.readline() == "ready\n"
        how = {"program": open_place / "sublet-gpu", "driver": open_place / "libcuda.so.1", **nobody}
        one = helpers(cards, program.pid, **how)
        parked(one)
        print("0", file=program.stdin, flush=True)
        assert program.stdout.readline() == "done\n"
        for call in ("state", "restore", "state"):
            reply = one(call)
            assert reply["reason"] == "not_dumpable" and not reply["final"], reply
            assert f"process {program.pid} forbids tracing" in reply["detail"]
        print("1", file=program.stdin, flush=True)
        assert program.stdout.readline() == "done\n"
        assert one.ok("state")["state"] == "checkpointed"
        one.ok("restore")
        one.ok("unlock")
    finally:
        program.kill()
        program.communicate()


def test_a_lock_that_runs_out_of_time_ends_unlocked(quick, helpers, load):
    quick.fault("launch-hang", "--pid", load.pid)
    until(lambda: hits(quick, "launch-hang") > 0)
    one = helpers(quick, load.pid)
    reply = one("lock", timeout_ms=20)
    assert reply["reason"] == "timeout" and reply["code"] == 600 and reply["state"] == "running"
    assert reply["took_ns"] >= 20_000_000
    quick.ctl("clear")
    ends_right(load)


# ------------------------------------------------------------------------------------------- reserved memory


def test_without_memory_for_the_ballast_no_restore_is_tried(quick, helpers, load):
    one = helpers(quick, load.pid)
    parked(one)
    other = quick.load("--alloc", "600MiB", "--seconds", "1h").wait_filled()
    reply = one("restore", ballast=[{"device": card(quick), "bytes": 400 * MIB}])
    assert reply["reason"] == "no_room" and not reply["final"] and reply["state"] == "checkpointed"
    assert card(quick) in reply["detail"] and "400 MiB" in reply["detail"]
    assert "cuCheckpointProcessRestore" not in quick.show()["calls"]
    other.end(simcards.SIGTERM)
    assert used(quick) == RESIDUE
    one.ok("restore", ballast=[{"device": card(quick), "bytes": 400 * MIB}])
    one.ok("unlock")
    ends_right(load)


def test_ballast_is_held_until_it_is_given_back(quick, helpers, load):
    one = helpers(quick, load.pid)
    parked(one)
    wish = [{"device": card(quick), "bytes": 300 * MIB}]
    assert one.ok("hold", ballast=wish)["held_bytes"] == 300 * MIB
    assert used(quick) == RESIDUE + CONTEXT + 300 * MIB
    assert one.ok("hold")["held_bytes"] == 0 and used(quick) == RESIDUE
    one.ok("hold", ballast=wish)
    one.ok("restore")
    one.ok("unlock")
    ends_right(load)
    assert used(quick) == 0


def test_the_margin_is_taken_only_if_it_is_free(quick, helpers, load):
    one = helpers(quick, load.pid)
    parked(one)
    wish = {"device": card(quick), "bytes": 300 * MIB, "margin": 200 * MIB}
    assert one.ok("hold", ballast=[wish])["held_bytes"] == 500 * MIB
    assert one.ok("hold", ballast=[{**wish, "bytes": 800 * MIB}])["held_bytes"] > 800 * MIB, "what there is of it"
    one.ok("hold")
    # Memory is free only for the restore. It includes the context that holds the ballast, which goes before the
    # restore.
    quick.load("--alloc", "636MiB", "--seconds", "1h").wait_filled()
    assert one("hold", ballast=[{**wish, "bytes": 321 * MIB}])["reason"] == "no_room"
    assert one.ok("restore", ballast=[{**wish, "bytes": 316 * MIB}])["held_bytes"] == 0
    one.ok("unlock")
    ends_right(load)


def test_ballast_on_a_card_that_is_not_there(quick, helpers, load):
    one = helpers(quick, load.pid)
    reply = one("hold", ballast=[{"device": "GPU-nowhere", "bytes": MIB}])
    assert reply["reason"] == "no_room" and "GPU-nowhere" in reply["detail"]


# ------------------------------------------------------------------------------------------- failures


def test_a_restore_that_fails_is_final(quick, helpers, load):
    one = helpers(quick, load.pid)
    parked(one)
    quick.fault("restore-fail")
    reply = one("restore")
    assert reply["reason"] == "driver" and reply["code"] == 2 and reply["name"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert reply["final"]
    quick.ctl("clear")
    reply = one("restore")
    assert reply["final"] and reply["code"] == 304


def test_a_restore_refused_for_a_debugger_that_has_gone_is_tried_once_more(quick, helpers, load):
    one = helpers(quick, load.pid)
    parked(one)
    quick.fault("restore-refused", "--nth", 1)
    back = one.ok("restore", ballast=[{"device": card(quick), "bytes": 300 * MIB}])
    assert back["state"] == "locked" and back["held_bytes"] == 0 and hits(quick, "restore-refused") == 2
    one.ok("unlock")
    ends_right(load)


def test_a_card_that_is_lost_before_the_restore_is_not_final(quick, helpers, load):
    one = helpers(quick, load.pid)
    parked(one)
    quick.fault("device-lost")
    reply = one("restore", ballast=[{"device": card(quick), "bytes": 300 * MIB}])
    assert reply["reason"] == "driver" and not reply["final"] and reply["state"] == "checkpointed", reply
    quick.ctl("clear")
    one.ok("restore", ballast=[{"device": card(quick), "bytes": 300 * MIB}])
    one.ok("unlock")
    ends_right(load)


def test_a_call_in_the_wrong_state_is_not_final(quick, helpers, load):
    one = helpers(quick, load.pid)
    for call in ("checkpoint", "restore", "unlock"):
        reply = one(call)
        assert reply["code"] == 401 and not reply["final"] and reply["state"] == "running"
    ends_right(load)


def test_a_checkpoint_that_fails_says_what_is_left(quick, helpers, load):
    one = helpers(quick, load.pid)
    quick.fault("checkpoint-fail", "--nth", 1)
    one.ok("lock", **LOCK)
    reply = one("checkpoint")
    assert reply["code"] == 999 and reply["state"] == "locked"
    quick.ctl("clear")
    quick.fault("checkpoint-fail", "--after", 50)
    assert one("checkpoint")["state"] == "failed"


# ------------------------------------------------------------------------------------------- processes that die


@pytest.mark.parametrize("steps, afterwards", [(["lock"], "running"), (["lock", "checkpoint", "restore"], "running"),
                                               (["lock", "checkpoint"], "checkpointed")])  # fmt: skip
def test_the_sockets_end_unlocks_a_locked_process(quick, helpers, load, steps, afterwards):
    one = helpers(quick, load.pid)
    for step in steps:
        one.ok(step, **(LOCK if step == "lock" else {}))
    one.hang_up()
    assert one.process.wait() == 0
    assert state_of(quick, load) == afterwards
    if afterwards == "checkpointed":
        other = helpers(quick, load.pid)
        other.ok("restore")
        other.ok("unlock")
    ends_right(load)


def test_a_lock_of_another_helper_stays(quick, helpers, load):
    one, other = helpers(quick, load.pid), helpers(quick, load.pid)
    one.ok("lock", **LOCK)
    assert other.ok("state")["state"] == "locked"
    other.hang_up()
    assert other.process.wait() == 0 and state_of(quick, load) == "locked"


def test_the_sockets_end_undoes_a_pending_lock(quick, helpers, load):
    quick.fault("lock-hang")
    one = helpers(quick, load.pid)
    one.send("lock", **LOCK)
    until(lambda: hits(quick, "lock-hang") == 1)
    one.hang_up()
    one.process.send_signal(signal.SIGTERM)
    assert one.process.poll() is None
    quick.ctl("clear")
    assert one.process.wait() == 0 and state_of(quick, load) == "running"
    ends_right(load)


def test_the_sockets_end_abandons_a_pending_query(quick, helpers, load):
    quick.fault("state-hang")
    one = helpers(quick, load.pid)
    one.send("state")
    until(lambda: hits(quick, "state-hang") == 1)
    one.hang_up()
    assert one.process.wait() == 1


def test_a_pending_query_is_kept_while_the_process_waits_for_us(quick, helpers, load):
    one = helpers(quick, load.pid)
    one.ok("lock", **LOCK)
    quick.fault("state-hang")
    one.send("state")
    until(lambda: hits(quick, "state-hang") == 1)
    one.hang_up()
    quick.ctl("clear")
    assert one.process.wait() == 0 and state_of(quick, load) == "running"
    ends_right(load)


@pytest.mark.parametrize("fault, before", [("lock-hang", []), ("checkpoint-hang", ["lock"])])
def test_the_process_dies_while_the_driver_is_inside_a_call(quick, helpers, load, fault, before):
    one = helpers(quick, load.pid)
    for step in before:
        one.ok(step, **LOCK)
    quick.fault(fault)
    one.send(*(["checkpoint"] if before else ["lock"]), **({} if before else LOCK))
    until(lambda: hits(quick, fault) == 1)
    load.kill()
    assert one.answer()["reason"] == "gone" and used(quick) == 0


def test_the_next_helper_finds_the_process_of_a_killed_one(quick, helpers, load):
    one = helpers(quick, load.pid)
    one.ok("lock", **LOCK)
    one.process.kill()
    one.process.wait()
    other = helpers(quick, load.pid)
    assert other("preflight")["reason"] == "wrong_state"
    other.ok("unlock")
    ends_right(load)


# ------------------------------------------------------------------------------------------- usage


@pytest.mark.parametrize(
    "line",
    [b"lock\n", b'{"id":1,"do":"lock"}\n', b'{"id":1,"do":"lock","timeout_ms":0}\n', b'{"id":1,"do":"park"}\n',
     b'{"id":1,"do":"unlock","ballast":[]}\n', b'{"id":1,"do":"hold","ballast":[{"device":"a","bytes":-1}]}\n',
     b"x" * 10_000],
)  # fmt: skip
def test_an_unknown_command_ends_the_helper(quick, helpers, load, line):
    one = helpers(quick, load.pid)
    one.socket.sendall(line)
    assert one.lines.readline() == "" and one.process.wait() == 1


def support(cards, library, *arguments):
    command = [helper.PROGRAM, "support", "--driver", str(library), *arguments]
    return subprocess.run(command, env={"SIMGPU_DIR": str(cards.dir / "simgpu")}, capture_output=True, text=True)


def test_says_whether_the_driver_can_park(quick):
    library = simcards.DRIVER / "libcuda.so.1"
    done = support(quick, library)
    assert (done.returncode, done.stderr) == (0, "") and f"{library} can park processes (CUDA 1" in done.stdout
    said = json.loads(support(quick, library, "--json").stdout)
    assert said["supported"] and said["library"] == str(library) and said["version"] >= 12080 and not said["problem"]
    quick.ctl("set", "driver_version", 12040)
    done = support(quick, library)
    assert done.returncode == 1 and "12.4" in done.stdout and "570" in done.stdout
    said = json.loads(support(quick, "/nowhere/libcuda.so.1", "--json").stdout)
    assert not said["supported"] and "/nowhere" in said["problem"]


def test_wrong_usage_is_refused():
    left, right = socket.socketpair()
    fd = str(right.fileno())
    for words in (
        ["checkpoint", "--fd", fd],
        ["checkpoint", "--pid", "1"],
        ["checkpoint", "--fd", fd, "--pid", "0"],
        ["checkpoint", "--fd", fd, "--pid", "1", "--start", "x"],
        ["checkpoint", "--fd", fd, "--pid", "1", "--driver", "libcuda.so.1"],
        ["checkpoint", "--fd", fd, "--pid", "1", "--nvml", "/x"],
        ["probe", "--fd", fd, "--pid", "1"],
        ["snapshot", "--driver", "/x"],
        ["support", "--nvml", "/x"],
        ["support", "--pid", "1"],
    ):
        done = subprocess.run([helper.PROGRAM, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and done.stderr.startswith("sublet-gpu: "), words
    left.close()
    right.close()
