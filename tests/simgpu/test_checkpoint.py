# SPDX-License-Identifier: Apache-2.0
"""Another process parks an unmodified simgpu-load, another program takes its memory, and simgpu-load resumes with its
bytes intact.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

import simcards
from simcards import GIB, MIB

HERE = pathlib.Path(__file__).parent
QUICK = "1x1GiB,reserve=0,context_bytes=64MiB,link_bandwidth=0,checkpoint_us=0,restore_us=0"
QUICK += ",checkpoint_bandwidth=0,restore_bandwidth=0"
RUNNING, LOCKED, CHECKPOINTED, FAILED = range(4)
OK, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED = range(4)
OPERATING_SYSTEM, ILLEGAL_STATE, NOT_READY, NOT_SUPPORTED, UNKNOWN = 304, 401, 600, 801, 999
RESIDUE = 4 * MIB


class Parker:
    """A process that parks others; a test may have several."""

    def __init__(self, cards, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, HERE / "parker.py", *map(str, arguments)],
            env=cards.env(),
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def send(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        assert line, "the parking process has ended"
        return json.loads(line)

    def __call__(self, *words):
        self.send(*words)
        return self.answer()["result"]

    def state(self, pid):
        self.send("state", pid)
        answer = self.answer()
        assert answer["result"] == OK
        return answer["value"]

    def kill(self):
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            stream.close()


@pytest.fixture
def quick(make_cards):
    return make_cards(QUICK)


@pytest.fixture
def parkers():
    made = []

    def make(cards, *arguments):
        made.append(Parker(cards, *arguments))
        return made[-1]

    yield make
    for parker in made:
        if parker.process.returncode is None:
            parker.kill()


def nvml(cards):
    script = [sys.executable, HERE / "nvml.py"]
    answer = json.loads(subprocess.run(script, env=cards.env(), capture_output=True, check=True).stdout)
    return {int(pid) for pid in answer["processes"]}, answer["used"]


def used(cards):
    return cards.show()["devices"][0]["used_bytes"]


def hits(cards, name):
    (fault,) = [fault for fault in cards.show()["faults"] if fault["name"] == name]
    return fault["hits"]


def until(condition):
    while not condition():
        pass


def resident(pid):
    text = pathlib.Path(f"/proc/{pid}/statm").read_text()
    return int(text.split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_program_is_parked_and_restored_around_another(quick, parkers):
    load = quick.load("--alloc", "600MiB", "--seconds", "1h", "--verify").wait_filled()
    before = used(quick)
    assert nvml(quick) == ({load.pid}, before)
    parker = parkers(quick)
    assert parker("lock", load.pid, 10_000) == OK and parker("checkpoint", load.pid) == OK
    assert nvml(quick) == (set(), RESIDUE)
    status, said = quick.load("--alloc", "800MiB", "--seconds", 0, "--seed", 99).end()
    assert status == 0 and said["ok"]
    assert parker("restore", load.pid) == OK and parker("unlock", load.pid) == OK
    assert nvml(quick) == ({load.pid}, before)
    status, said = load.end(simcards.SIGTERM)
    assert status == 128 + simcards.SIGTERM and said["ok"] and said["wrong_words"] == 0
    assert said["verified_bytes"] >= 600 * MIB and used(quick) == 0
    assert quick.show()["violations"] == 0


def test_many_rounds_while_it_computes(quick, parkers):
    load = quick.load("--alloc", "64MiB", "--seconds", "1h", "--verify", "--busy", 90).wait_filled()
    parker = parkers(quick)
    for _ in range(20):
        for call in ("lock", "checkpoint", "restore", "unlock"):
            assert parker(call, load.pid) == OK
    status, said = load.end(simcards.SIGTERM)
    assert status == 128 + simcards.SIGTERM and said["ok"]


def test_a_program_reports_the_duration_of_its_pause(quick, parkers):
    # Nothing runs on the card, so the load does not wait for the device: its next call finds the process locked.
    load = quick.load("--alloc", "16MiB", "--seconds", "1h", "--verify", "--busy", 0).wait_filled()
    parker = parkers(quick)
    assert parker("lock", load.pid) == OK and parker("checkpoint", load.pid) == OK
    quick.load("--alloc", "16MiB", "--seconds", "1s").end()  # pauses the load for about a second
    assert parker("restore", load.pid) == OK and parker("unlock", load.pid) == OK
    _, said = load.end(simcards.SIGTERM)
    assert said["ok"] and 900 <= said["longest_stall_ms"] < 10_000, said


def test_a_large_sparse_program_is_parked_without_ram(make_cards, parkers):
    cards = make_cards(QUICK.replace("1x1GiB", "1x24GiB"))
    load = cards.load("--alloc", "20GiB", "--seconds", "1h").wait_filled()
    before = resident(load.pid)
    parker = parkers(cards)
    assert parker("lock", load.pid) == OK and parker("checkpoint", load.pid) == OK
    written = 20 * GIB // (2 * MIB) * 4096
    assert before + written <= resident(load.pid) < before + 2 * written
    assert parker("restore", load.pid) == OK and parker("unlock", load.pid) == OK
    status, said = load.end(simcards.SIGTERM)
    assert said["ok"] and said["verified_bytes"] == 20 * GIB


def test_a_signal_to_a_parked_program_waits_for_its_return(quick, parkers):
    load = quick.load("--alloc", "64MiB", "--seconds", "1h").wait_filled()
    parker = parkers(quick)
    assert parker("lock", load.pid) == OK and parker("checkpoint", load.pid) == OK
    load.process.send_signal(simcards.SIGTERM)
    assert parker.state(load.pid) == CHECKPOINTED
    assert parker("restore", load.pid) == OK and parker("unlock", load.pid) == OK
    status, said = load.end()
    assert status == 128 + simcards.SIGTERM and said["ok"]


STEPS = ["lock", "checkpoint", "restore", "unlock"]


@pytest.mark.parametrize("step", range(5))
def test_the_program_is_killed_after_each_step(quick, parkers, step):
    load = quick.load("--alloc", "64MiB", "--seconds", "1h").wait_filled()
    parker = parkers(quick)
    for call in STEPS[:step]:
        assert parker(call, load.pid) == OK
    load.kill()
    assert used(quick) == 0 and nvml(quick) == (set(), 0)
    assert load.pid not in {process["pid"] for process in quick.show()["processes"]}
    assert parker("lock", load.pid) == INVALID_VALUE


@pytest.mark.parametrize("step", range(4))
def test_the_program_is_killed_in_the_middle_of_each_step(quick, parkers, step):
    fault = f"{STEPS[step]}-hang"
    load = quick.load("--alloc", "64MiB", "--seconds", "1h").wait_filled()
    parker = parkers(quick)
    for call in STEPS[:step]:
        assert parker(call, load.pid) == OK
    quick.fault(fault, "--pid", load.pid)
    parker.send(STEPS[step], load.pid)
    until(lambda: hits(quick, fault) == 1)
    load.kill()
    assert parker.answer()["result"] == OPERATING_SYSTEM
    assert used(quick) == 0


@pytest.mark.parametrize("step", range(4))
def test_another_helper_continues_after_a_kill_in_each_step(quick, parkers, step):
    fault = f"{STEPS[step]}-hang"
    load = quick.load("--alloc", "64MiB", "--seconds", "1h").wait_filled()
    first = parkers(quick)
    for call in STEPS[:step]:
        assert first(call, load.pid) == OK
    quick.fault(fault)
    first.send(STEPS[step], load.pid)
    until(lambda: hits(quick, fault) == 1)
    first.kill()
    second = parkers(quick)
    # No caller waits for the call any more, but it is still in progress and ends as usual.
    assert second("unlock", load.pid) == ILLEGAL_STATE
    quick.ctl("clear", fault)
    assert second.state(load.pid) == [LOCKED, CHECKPOINTED, LOCKED, RUNNING][step]
    for call in STEPS[step + 1 :]:
        assert second(call, load.pid) == OK
    status, said = load.end(simcards.SIGTERM)
    assert said["ok"] and said["wrong_words"] == 0


def test_a_hang_with_a_duration_delays_the_call(quick, parkers):
    load = quick.load("--alloc", "64MiB", "--seconds", "1h").wait_filled()
    quick.fault("lock-hang", "--duration", "50ms", "--nth", 1)
    assert parkers(quick)("lock", load.pid) == OK


def test_a_stopped_program_answers_when_it_continues(quick, parkers):
    load = quick.load("--alloc", "64MiB", "--seconds", "1h").wait_filled()
    load.process.send_signal(signal.SIGSTOP)
    stat = pathlib.Path(f"/proc/{load.pid}/stat")
    until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
    parker = parkers(quick)
    parker.send("lock", load.pid, 1)  # its timeout does not run either
    until(lambda: quick.show()["calls"].get("cuCheckpointProcessLock") == 1)
    (process,) = [p for p in quick.show()["processes"] if p["pid"] == load.pid]
    assert process["state"] == "running"
    load.process.send_signal(signal.SIGCONT)
    assert parker.answer()["result"] in (OK, NOT_READY)


def test_without_memory_a_restore_fails_for_ever(quick, parkers):
    load = quick.load("--alloc", "600MiB", "--seconds", "1h").wait_filled()
    parker = parkers(quick)
    assert parker("lock", load.pid) == OK and parker("checkpoint", load.pid) == OK
    other = quick.load("--alloc", "600MiB", "--seconds", "1h").wait_filled()
    assert parker("restore", load.pid) == OUT_OF_MEMORY
    assert other.end(simcards.SIGTERM)[1]["ok"]
    assert parker("restore", load.pid) == OPERATING_SYSTEM
    assert parker("unlock", load.pid) == ILLEGAL_STATE
    assert used(quick) == RESIDUE
    load.kill()
    assert used(quick) == 0


@pytest.mark.parametrize(
    "fault, call, result, state",
    [
        (["checkpoint-fail"], "checkpoint", UNKNOWN, LOCKED),
        (["checkpoint-fail", "--code", 2], "checkpoint", OUT_OF_MEMORY, LOCKED),
        (["checkpoint-fail", "--after", 50], "checkpoint", UNKNOWN, FAILED),
        (["restore-fail"], "restore", OUT_OF_MEMORY, CHECKPOINTED),
        (["restore-fail", "--after", 50, "--code", 999], "restore", UNKNOWN, CHECKPOINTED),
    ],
)
def test_steps_that_fail(quick, parkers, fault, call, result, state):
    load = quick.load("--alloc", "64MiB", "--seconds", "1h").wait_filled()
    parker = parkers(quick)
    quick.fault(*fault, "--pid", load.pid)
    for step in STEPS[: STEPS.index(call)]:
        assert parker(step, load.pid) == OK
    assert parker(call, load.pid) == result
    assert parker.state(load.pid) == state
    quick.ctl("clear")
    if state == LOCKED:
        assert parker("unlock", load.pid) == OK
        assert load.end(simcards.SIGTERM)[1]["ok"]
    else:
        assert parker("unlock", load.pid) == ILLEGAL_STATE


def test_a_slow_link_slows_it_down(quick, parkers):
    load = quick.load("--alloc", "64MiB", "--seconds", "1h").wait_filled()
    parker = parkers(quick)
    quick.fault("bandwidth", "--bandwidth", "512MiB/s")
    before = quick.show()["devices"][0]["to_host_bytes"]
    assert parker("lock", load.pid) == OK and parker("checkpoint", load.pid) == OK
    assert quick.show()["devices"][0]["to_host_bytes"] >= before + 64 * MIB


def test_rights_to_park(quick, parkers):
    if os.getuid() != 0:
        pytest.skip("only root can be two users")
    load = quick.load("--alloc", "64MiB", "--seconds", "1h").wait_filled()
    other = parkers(quick, 65534)
    for call in ("state", *STEPS):
        assert other(call, load.pid) == OPERATING_SYSTEM
    assert parkers(quick).state(load.pid) == RUNNING


def test_an_old_driver_cannot(quick, parkers):
    load = quick.load("--alloc", "64MiB", "--seconds", "1h").wait_filled()
    parker = parkers(quick)
    quick.ctl("set", "driver_version", 12060)
    for call in ("state", *STEPS):
        assert parker(call, load.pid) == NOT_SUPPORTED


def test_a_process_without_the_driver_has_nothing_to_park(quick, parkers):
    assert parkers(quick)("lock", os.getpid()) == NOT_INITIALIZED
