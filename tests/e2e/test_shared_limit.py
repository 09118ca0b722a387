# SPDX-License-Identifier: Apache-2.0
"""`sublet run --interposer`: the processes of a lease share its size, and are refused beyond it at the allocation."""
import json
import os
import socket
import subprocess
import sys
import time

import pytest

from tests.support.credit import BEGIN, MORE, QUESTION, UNKNOWN, question
from tests.support.interposer import DRIVER, LIBRARY, SOURCES, compile_c
from tests.support.preload import preloaded
from tests.support.sublet import MIB, ROOT, Daemon, lent, wait_until

OOM = 2
BLOCK, CONTEXT, LIMIT = 2 * MIB, 4 * MIB, 512 * MIB
CARDS = "1x4GiB,context_bytes=4MiB"


class Inside:
    """Programs of taker.c in a lease of their own."""

    def __init__(self, daemon, folder, *words, run=("run", "--vram", "512MiB", "--interposer")):
        self.daemon = daemon
        taker = folder / "taker"
        if not taker.exists():
            compile_c(taker, SOURCES / "taker.c", DRIVER / "libcuda.so.1")
        env = daemon.env(ASAN_OPTIONS=preloaded(LIBRARY)["ASAN_OPTIONS"], SECOND_DRIVER=str(folder / "other.so"))
        self.child = daemon.spawn("sublet", *run, *words, "--", sys.executable, ROOT / "tests/support/relay.py", taker,
                                  stdin=subprocess.PIPE, stderr=None, env=env)
        self.pids = []

    def say(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()

    def read(self):
        return [int(word) for word in self.child.stdout.readline().split()]

    def ask(self, line):
        self.say(line)
        return self.read()

    def start(self, count=1):
        for _ in range(count):
            pid, result, files = self.ask("start")
            assert result == 0, f"it has not begun, with {files} files"
            self.pids.append(pid)
        return self

    def lease(self):
        [found] = [lease for lease in self.daemon.leases()
                   if (lease["owner"] or {}).get("keeper_pid") == self.child.pid]
        return self.daemon.get(f"/v1/leases/{found['id']}").body

    def used(self):
        """Bytes of its processes on the card, by the card's own word."""
        return sum(use["bytes"] for process in self.daemon.cards()["processes"] if process["pid"] in self.pids
                   for use in process["devices"])

    def end(self):
        self.child.stdin.close()
        assert self.child.wait(60) == 0


def learn_context(daemon, folder):
    """The daemon learns the size of a context by the readings of one process."""
    first = Inside(daemon, folder).start()
    assert first.ask("0 take 10") == [0, 10]
    wait_until(lambda: "a context takes 4.0 MiB on gpu0" in daemon.log(), "the size of a context is known")
    first.end()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("limit")


@pytest.fixture(scope="module")
def one_daemon(folder):
    daemon = Daemon(CARDS)
    try:
        daemon.start()
        learn_context(daemon, folder)
        yield daemon
    finally:
        daemon.close()


@pytest.fixture
def card(one_daemon):
    with lent(one_daemon):
        yield one_daemon


def test_processes_of_a_lease_share_its_size_and_touch_no_neighbour(card, folder):
    neighbour = Inside(card, folder).start()
    assert neighbour.ask("0 take 200") == [0, 200]
    inside = Inside(card, folder).start(3)
    held = inside.ask("all take 1000")
    assert held[::2] == [OOM] * 3
    assert LIMIT - 32 * MIB < inside.used() <= LIMIT
    assert inside.used() == sum(held[1::2]) * BLOCK + 3 * CONTEXT
    assert neighbour.used() == 200 * BLOCK + CONTEXT
    assert neighbour.ask("0 take 1000") == [OOM, (LIMIT - CONTEXT) // BLOCK], "the neighbour has all of its own"
    # Each process sees the lease as its device.
    assert inside.ask("0 info")[2] == LIMIT
    # Unused credit of one process goes to another.
    freed = inside.ask("0 free 1000")
    assert freed == [0, 0]
    assert inside.ask("1 take 1000")[0] == OOM and LIMIT - 2 * BLOCK < inside.used() <= LIMIT
    inside.end(), neighbour.end()


def test_show_and_why_tell_the_limit_in_force(card, folder):
    bare = Inside(card, folder, run=("run", "--vram", "512MiB")).start()
    assert bare.ask("0 take 300") == [0, 300] and bare.lease()["interposer"] is None
    bare.end()
    inside = Inside(card, folder).start(2)
    assert inside.ask("0 take 100") == [0, 100]
    limit = inside.lease()["interposer"]
    [device] = limit["devices"]
    assert limit["processes"] == 2 and device["limit_bytes"] == LIMIT
    assert device["charged_bytes"] == 200 * MIB + 2 * CONTEXT <= device["credit_bytes"] <= LIMIT
    assert "The interposer refuses allocations beyond it (2 processes)." in card.cli("why", inside.lease()["id"]).stdout
    inside.end()


def test_launches_copies_and_errors_of_a_lease_are_counted_and_kept_over_the_end_of_a_process(card, folder):
    def counts():
        return (inside.lease()["interposer"] or {}).get("counts")

    def metric(name, labels=""):
        lines = [line.split() for line in card.get("/metrics").body.splitlines()]
        return sum(float(line[-1]) for line in lines
                   if line[0].startswith(f"sublet_interposer_{name}{{") and labels in line[0])

    names = ("launches_total", "copied_bytes_total", "errors_total")
    before = [metric(name) for name in names]
    inside = Inside(card, folder).start(2)
    assert inside.ask("0 take 1") == [0, 1] and inside.ask("0 launch 5") == [0, 1]
    assert inside.ask("0 copy 3") == [0, 1] and inside.ask("0 kill") == [-9]
    assert inside.ask("1 launch 6") == [0, 0] and inside.ask("1 fail 2") == [400, 0]
    expected = {"launches": 11, "copied_bytes": 3 << 10, "allocated_bytes": BLOCK,
                "errors": [{"code": 400, "count": 2}], "other_errors": 0}
    wait_until(lambda: counts() == expected, "a reading has come")
    assert [metric(name) - then for name, then in zip(names, before)] == [11, 3 << 10, 2]
    assert metric("errors_total", 'code="400"') >= 2
    id = inside.lease()["id"]
    assert "launched 11 kernels and copied 3.0 KiB, with 2 errors (400)." in card.cli("why", id).stdout
    inside.ask("1 kill")
    inside.end()
    wait_until(lambda: card.get(f"/v1/leases/{id}").body["state"] == "ended", "the lease has ended")
    assert card.get(f"/v1/leases/{id}").body["interposer"]["counts"] == expected


def test_a_session_shows_the_interposer_of_its_lease(card, folder):
    Inside(card, folder).end()  # builds taker
    os.mkfifo(folder / "never")
    env = " ".join(f"{name}='{value}'" for name, value in preloaded(LIBRARY).items())
    script = (f"(echo take 1; echo launch 4; exec cat {folder / 'never'}) | "
              f"{env} SUBLET_CREDIT={card.dir / 'credit.sock'} {folder / 'taker'}")
    card.cli("session", "open", "--tag", "counted", "--vram", "512MiB", "--", "sh", "-c", script, check=0)

    def shown():
        return json.loads(card.cli("session", "show", "counted", "--json", check=0).stdout)["interposer"]

    wait_until(lambda: ((shown() or {}).get("counts") or {}).get("launches") == 4, "a reading has come")
    assert shown()["processes"] == 1 and shown()["counts"]["allocated_bytes"] == BLOCK
    card.cli("session", "close", "counted", "--no-park", check=0)


@pytest.mark.parametrize("words", [["-DLINKED", DRIVER / "libnvidia-ml.so.1"], []], ids=["linked", "opened"])
def test_nvml_in_a_lease_tells_the_same_as_the_driver(card, folder, words):
    tool = compile_c(folder / f"nvml{len(words)}", SOURCES / "nvml.c", *words)
    neighbour = Inside(card, folder).start()
    assert neighbour.ask("0 take 50") == [0, 50]
    inside = Inside(card, folder).start(2)
    assert inside.ask("0 take 100") == [0, 100] and inside.ask("1 take 20") == [0, 20]
    total, free, used, *second = inside.ask(f"run {tool}")
    assert (total, used) == (LIMIT, inside.used()) and second == [total, free, used, 0]
    wait_until(lambda: inside.ask("0 info") == [0, free, total], "a reading tells each process of the others")
    inside.end(), neighbour.end()
    # Outside of a lease it tells the card.
    bare = subprocess.run([tool], env=card.env(), check=True, capture_output=True, text=True).stdout
    env = card.env(SUBLET_CREDIT=str(card.dir / "credit.sock"), **preloaded(LIBRARY))
    assert subprocess.run([tool], env=env, check=True, capture_output=True, text=True).stdout == bare
    assert int(bare.split()[0]) > 3 * 1024 * MIB


def test_credit_of_a_killed_process_comes_back(card, folder):
    inside = Inside(card, folder).start(2)
    assert inside.ask("0 take 1000")[0] == OOM
    assert inside.ask("1 take 1") == [OOM, 0]
    assert inside.ask("0 kill") == [-9]
    result, blocks = inside.ask("1 take 1000")
    assert (result, blocks) == (OOM, (LIMIT - CONTEXT) // BLOCK) and inside.used() == LIMIT
    assert inside.ask("1 free 10")[0] == 0
    assert inside.start().ask("2 take 1000") == [OOM, 10 - CONTEXT // BLOCK]
    inside.end()


def test_a_process_that_executes_a_program_without_cuda_gives_its_credit_back(card, folder):
    inside = Inside(card, folder).start(2)
    assert inside.ask("0 take 200") == [0, 200]
    wait_until(lambda: inside.lease()["used_bytes"] == 200 * BLOCK + 2 * CONTEXT, "the card shows it")
    assert inside.ask("0 cat") == [0, 0]
    wait_until(lambda: inside.lease()["interposer"]["devices"][0]["charged_bytes"] == CONTEXT, "it holds nothing")
    assert inside.ask("1 take 1000") == [OOM, (LIMIT - CONTEXT) // BLOCK]
    inside.ask("0 kill")
    inside.end()


def test_the_limit_follows_the_size_of_the_lease(card, folder):
    inside = Inside(card, folder).start()
    id = inside.lease()["id"]
    assert inside.ask("0 take 1000") == [OOM, 254]
    card.cli("resize", id, "600MiB", check=0)
    assert inside.ask("0 take 1000") == [OOM, 298] and inside.ask("0 info")[2] == 600 * MIB
    assert inside.ask("0 free 250") == [0, 48]
    wait_until(lambda: card.cli("resize", id, "256MiB").returncode == 0, "the freed bytes are measured")
    assert inside.ask("0 take 1000") == [OOM, 126] and inside.ask("0 info")[2] == 256 * MIB
    inside.end()


def test_a_process_that_begins_in_a_paused_lease_waits_for_its_memory(card, folder):
    inside = Inside(card, folder, run=("run", "--vram", "512MiB", "--interposer", "--tier", "batch")).start()
    id = inside.lease()["id"]
    assert inside.ask("0 take 10") == [0, 10]
    card.cli("pause", id, check=0)
    wait_until(lambda: inside.lease()["state"] == "paused", "the lease is paused")
    inside.say("start")
    wait_until(lambda: inside.lease()["interposer"]["processes"] == 2, "it has begun")
    until = time.monotonic() + 4  # the daemon answers each question within 3 s
    wait_until(lambda: time.monotonic() > until, "it has asked more than once")
    assert sum(use["bytes"] for process in card.cards()["processes"] for use in process["devices"]) < 10 * BLOCK
    card.cli("resume", id, check=0)
    assert inside.read()[1] == 0, "it has its memory now"
    inside.end()


def test_a_program_outside_of_any_lease_has_no_limit_and_gets_no_credit(card, folder):
    inside = Inside(card, folder).start()
    env = card.env(SUBLET_CREDIT=str(card.dir / "credit.sock"), SUBLET_LEASE=inside.lease()["id"], **preloaded(LIBRARY))
    outside = card.spawn(folder / "taker", stdin=subprocess.PIPE, env=env)
    assert outside.stdout.readline().split()[0] == "0"
    outside.stdin.write("take 400\n")
    outside.stdin.flush()
    assert outside.stdout.readline().split() == ["0", "400"]
    for kind in (BEGIN, MORE):
        assert question(card.dir / "credit.sock", kind) == UNKNOWN
    assert inside.lease()["interposer"]["processes"] == 1
    outside.kill(), outside.wait()
    inside.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has other users")
def test_another_user_gets_no_credit_of_a_lease(card, folder):
    inside = Inside(card, folder).start()
    card.dir.chmod(0o711)
    for kind in (BEGIN, MORE):
        assert question(card.dir / "credit.sock", kind, user=54321, SUBLET_LEASE=inside.lease()["id"]) == UNKNOWN
    card.dir.chmod(0o700)
    assert inside.lease()["interposer"]["processes"] == 1
    inside.end()


def test_questions_of_another_version_and_odd_messages_get_no_answer(card):
    path = card.dir / "credit.sock"
    odd = [QUESTION.pack(QUESTION.size, 2, BEGIN, 0, 0), QUESTION.pack(8, 1, BEGIN, 0, 0), b"x",
           QUESTION.pack(QUESTION.size, 1, 9, 0, 0), b"x" * 4000]
    for message in odd:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
            asking.connect(str(path))
            asking.send(message)
            assert asking.recv(4096) == b"", message
    # A caller that sends nothing does not hold up others.
    silent = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(100)]
    for one in silent:
        one.connect(str(path))
    assert question(path, BEGIN) == UNKNOWN
    for one in silent:
        one.close()


def test_a_released_lease_gives_its_processes_no_more(card, folder):
    lease = card.api().post("/v1/leases", {"vram_bytes": LIMIT, "ttl_seconds": 3600})
    env = card.env(SUBLET_CREDIT=str(card.dir / "credit.sock"), **preloaded(LIBRARY))
    program = card.spawn("sh", "-c", f"read line; exec {folder / 'taker'}", stdin=subprocess.PIPE, stderr=None, env=env)

    def ask(line):
        program.stdin.write(line + "\n")
        program.stdin.flush()
        return program.stdout.readline().split()

    card.cli("attach", lease["id"], "--pid", program.pid, check=0)
    assert ask("begin")[0] == "0"
    assert ask("take 100") == ["0", "100"]
    card.cli("release", lease["id"], check=0)
    assert ask("take 100") == [str(OOM), "100"] and ask("free 10") == ["0", "90"] and ask("take 10") == ["0", "100"]
    program.kill(), program.wait()


# -------------------------------------------------------------------------------- processes that pass the limit

def uncontrolled(inside):
    return [(one["code"], one["pid"]) for one in (inside.lease()["interposer"] or {}).get("uncontrolled", ())]


def warned(daemon, pid):
    return [one["text"] for one in daemon.get("/v1/status")["warnings"]
            if one["code"] == "uncontrolled" and f"process {pid} " in one["text"]]


def test_a_process_without_the_library_is_told_and_takes_from_the_lease(card, folder):
    inside = Inside(card, folder).start()
    bare = inside.ask("start LD_PRELOAD")[0]
    inside.pids.append(bare)
    assert inside.ask("1 take 100") == [0, 100]
    wait_until(lambda: uncontrolled(inside) == [("never_asked", bare)], "it is seen by two readings")
    assert "(taker)" in warned(card, bare)[0] and "never_asked" in card.cli("why", inside.lease()["id"]).stdout
    result, blocks = inside.ask("0 take 1000")
    assert result == OOM and blocks == 254 - 100 - CONTEXT // BLOCK and inside.used() == LIMIT
    wait_until(lambda: inside.ask("0 info")[1] == 0, "the lease is full")
    assert inside.ask("1 kill") == [-9]
    wait_until(lambda: not uncontrolled(inside) and not warned(card, bare), "it is gone")
    wait_until(lambda: inside.ask("0 take 1000")[1] == 254, "its bytes are those of the others again")
    inside.end()


def test_a_process_that_asked_for_its_limit_and_passes_it_is_told(card, folder):
    inside = Inside(card, folder).start(2)
    assert inside.ask("0 take 10") == [0, 10]
    assert inside.ask("0 bare")[0] == 0 and inside.ask("0 take 254") == [0, 254]
    wait_until(lambda: uncontrolled(inside) == [("beyond_credit", inside.pids[0])], "the card shows it")
    assert warned(card, inside.pids[0])

    def device():
        return inside.lease()["interposer"]["devices"][0]

    # Reading by reading, the excess is taken from unused credit.
    wait_until(lambda: device()["credit_bytes"] == device()["charged_bytes"], "no unused credit is left")
    assert inside.ask("1 take 1000") == [OOM, 0]
    inside.end()


def test_a_process_with_a_driver_that_the_library_does_not_know_is_told(card, folder):
    # The loader takes a library of the same name for the same library, so this copy has another one.
    compile_c(folder / "other.so", "-shared", "-Wl,-soname,libcuda.so.999", SOURCES / "fake_driver.c")
    inside = Inside(card, folder).start()
    assert inside.ask("0 take 100") == [0, 100] and inside.ask("0 second") == [0, 100]
    wait_until(lambda: uncontrolled(inside) == [("uncovered", inside.pids[0])], "the daemon reads it")
    assert warned(card, inside.pids[0])
    inside.end()


def test_a_driver_that_is_opened_past_the_library_is_told(card, folder):
    apart = compile_c(folder / "apart", SOURCES / "apart.c")
    env = card.env(ASAN_OPTIONS=preloaded(LIBRARY)["ASAN_OPTIONS"])
    child = card.spawn("sublet", "run", "--vram", "512MiB", "--interposer", "--share", "100", "--", apart,
                       stdin=subprocess.PIPE, stderr=None, env=env)
    assert child.stdout.readline() == "0\n"
    told = wait_until(lambda: [one["code"] for lease in card.leases() if lease["interposer"]
                               for one in lease["interposer"]["uncontrolled"]], "it is told")
    assert told == ["bypassed"]
    child.stdin.close()
    assert child.wait(60) == 0


TRACE = """
import ctypes, sys
print(ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), None, None), flush=True)  # PTRACE_SEIZE
sys.stdin.read()
"""


def test_a_debugger_at_a_process_without_a_limit_is_told(card, folder):
    inside = Inside(card, folder).start()
    bare = inside.ask("start LD_PRELOAD")[0]
    debugger = subprocess.Popen([sys.executable, "-c", TRACE, str(bare)], stdin=subprocess.PIPE, text=True,
                                stdout=subprocess.PIPE)
    with debugger:
        if debugger.stdout.readline() != "0\n":
            pytest.skip("nothing can be traced here")
        assert inside.ask("1 take 100") == [0, 100]
        wait_until(lambda: uncontrolled(inside) == [("debugger", bare)], "it is told")
        inside.ask("0 take 1000")

    def told_to_the_end(code):
        inside.ask("0 take 1000")
        return uncontrolled(inside) == [(code, bare)]
    wait_until(lambda: told_to_the_end("never_asked"), "the debugger has left")
    assert inside.used() <= 512 * MIB, "its bytes were never free for the others"
    inside.end()


def test_required_leases_without_the_interposer_are_told(start_daemon, card, folder):
    strict = start_daemon(CARDS, config='[interposer]\nrequired = true\n[gpu]\ninterval_idle = "1s"\n')
    for daemon, expected in ((strict, 1), (card, 0)):
        inside = Inside(daemon, folder, run=("run", "--vram", "512MiB")).start()
        assert inside.ask("0 take 100") == [0, 100]
        wait_until(lambda inside=inside: inside.lease()["used_bytes"] >= 200 * MIB, "its memory is seen")
        if expected:
            told = [("never_asked", inside.pids[0])]
            wait_until(lambda inside=inside, told=told: uncontrolled(inside) == told, "it is told")
            assert inside.lease()["interposer"]["processes"] == 0 and warned(daemon, inside.pids[0])
        else:
            assert inside.lease()["interposer"] is None and not warned(daemon, inside.pids[0])
        inside.end()


# -------------------------------------------------------------------------------- restarts of the daemon

@pytest.fixture
def own(start_daemon, folder):
    daemon = start_daemon(CARDS)
    learn_context(daemon, folder)
    return daemon


def test_a_restarted_daemon_knows_the_credit_of_running_processes(own, folder):
    inside = Inside(own, folder).start(2)
    assert inside.ask("0 take 100") == [0, 100] and inside.ask("1 take 20") == [0, 20]
    own.kill()
    assert inside.ask("0 free 10") == [0, 90] and inside.ask("0 take 10") == [0, 100], "its credit is its own"
    own.start()
    # A new process gets what is surely left, before the others have asked.
    inside.start()
    assert inside.ask("2 take 1000")[0] == OOM and inside.used() <= LIMIT
    # They ask again, and unused credit goes around as before.
    held = inside.ask("all take 1000")
    assert held[::2] == [OOM] * 3 and LIMIT - 32 * MIB < inside.used() <= LIMIT
    [device] = inside.lease()["interposer"]["devices"]
    assert device["charged_bytes"] == inside.used() <= device["credit_bytes"] <= LIMIT
    assert inside.ask("all free 1000") == [0, 0] * 3
    assert inside.ask("1 take 1000") == [OOM, (LIMIT - 3 * CONTEXT) // BLOCK]
    inside.end()


def test_a_daemon_that_is_killed_while_processes_race_gives_no_byte_twice(own, folder):
    inside = Inside(own, folder).start(6)
    for _ in range(4):
        inside.say("all take 40")
        own.restart()
        inside.read()
        assert inside.used() <= LIMIT
        inside.ask("all free 25")
    held = inside.ask("all take 1000")
    assert held[::2] == [OOM] * 6 and LIMIT - 32 * MIB < inside.used() <= LIMIT
    inside.end()


def test_processes_that_end_while_the_daemon_is_away_give_their_credit_back(own, folder):
    inside = Inside(own, folder).start(2)
    assert inside.ask("0 take 1000")[0] == OOM
    own.kill()
    assert inside.ask("0 kill") == [-9]
    own.start()
    assert inside.ask("1 take 1000") == [OOM, (LIMIT - CONTEXT) // BLOCK]
    inside.end()
    lease = Inside(own, folder).start()
    assert lease.ask("0 take 1000") == [OOM, (LIMIT - CONTEXT) // BLOCK], "a new lease begins anew"
    lease.end()


def test_without_a_daemon_a_program_keeps_its_credit_and_a_new_program_has_no_limit(own, folder):
    inside = Inside(own, folder).start()
    assert inside.ask("0 take 100") == [0, 100]
    own.kill()
    assert inside.ask("0 take 1000")[0] == OOM and inside.used() <= LIMIT
    assert inside.start().ask("1 take 300") == [0, 300]
    own.start()
    inside.end()
