# SPDX-License-Identifier: Apache-2.0
"""Processes of a lease and the daemon that end at any step of a question for credit, and a process that writes anything
into the page that the daemon reads: nothing is given twice, nothing is lost, and the daemon is unharmed.
"""
import pytest
from test_shared_limit import BLOCK, CARDS, CONTEXT, LIMIT, OOM, Inside, learn_context

from tests.support.preload import preload, shared_library
from tests.support.sublet import MIB, ROOT, wait_until

AT_BEGIN = ("socket", "connect", "sendto", "recvmsg", "fcntl")
AT_MORE = ("socket", "connect", "sendto", "recvmsg", "close")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("limit")


def all_of_it(processes):
    """Blocks that one of these processes can have while the others have only their contexts."""
    return (LIMIT - processes * CONTEXT) // BLOCK


def test_a_process_that_ends_at_any_call_of_its_question_leaves_nothing(start_daemon, folder):
    daemon = start_daemon(CARDS)
    learn_context(daemon, folder)
    inside = Inside(daemon, folder).start()
    for call in AT_BEGIN:
        assert len(inside.ask(f"start TAKER_DIES_AT={call}")) == 1, f"it has ended at {call}"
    for number, call in enumerate(AT_MORE, 1 + len(AT_BEGIN)):
        inside.start()
        assert inside.ask(f"{number} die {call}") == [0, 0]
        assert inside.ask(f"{number} take 60") == [], f"it has ended at {call}"
    assert inside.ask("0 take 1000") == [OOM, all_of_it(1)] and inside.used() == LIMIT
    assert inside.lease()["interposer"]["processes"] == 1
    inside.end()


def test_a_daemon_that_is_killed_at_any_step_of_a_question_gives_no_byte_twice(start_daemon, folder, monkeypatch):
    order = folder / "step"
    library = shared_library(folder / "ends.so", ROOT / "tests/support/ends_asked.c")

    def start(start):
        with monkeypatch.context() as only_for_the_daemon:
            only_for_the_daemon.setenv("SUBLET_TEST_ENDS_ASKED", str(order))
            preload(only_for_the_daemon, library)
            return start()

    def ask(line, step):
        order.write_text(step)
        inside.say(line)
        wait_until(lambda: daemon.process.poll() is not None, f"the daemon has ended: {step}")
        assert not order.exists()
        start(daemon.start)
        return inside.read()

    daemon = start(lambda: start_daemon(CARDS))
    learn_context(daemon, folder)
    for step in ("accepted", "asked", "decided", "answered"):
        inside = Inside(daemon, folder).start(2)
        pid, result, _ = ask("start", step)
        inside.pids.append(pid)
        assert result == 0, f"it has asked again after {step}"
        result, blocks = ask("0 take 1000", step)
        assert result == OOM and 0 < blocks <= all_of_it(3) and inside.used() <= LIMIT
        held = inside.ask("all take 1000")
        assert held[::2] == [OOM] * 3 and LIMIT - 32 * MIB < inside.used() <= LIMIT, step
        assert inside.lease()["interposer"]["processes"] == 3
        assert inside.ask("all free 1000") == [0, 0] * 3
        assert inside.ask("1 take 1000") == [OOM, all_of_it(3)] and inside.used() == LIMIT
        inside.end()


def test_a_process_that_scribbles_in_its_page_harms_itself_only(start_daemon, folder):
    daemon = start_daemon(CARDS)
    learn_context(daemon, folder)
    neighbour, inside = Inside(daemon, folder).start(), Inside(daemon, folder).start(2)
    assert inside.ask("1 take 50") == [0, 50]
    inside.say("0 scribble 10000000")
    for _ in range(5):
        device = daemon.get(f"/v1/leases/{inside.lease()['id']}").body["interposer"]["devices"][0]
        assert 0 <= device["charged_bytes"] <= device["credit_bytes"] <= LIMIT
    assert inside.read() == [0, 0]
    # Its page says anything now, so that its own account is lost. The others go on.
    assert inside.ask("1 free 50") == [0, 0] and inside.ask("1 take 50") == [0, 50]
    assert neighbour.ask("0 take 1000") == [OOM, all_of_it(1)]
    counts = inside.lease()["interposer"]["counts"]
    assert all(counts[name] >= 0 for name in ("launches", "copied_bytes", "allocated_bytes", "other_errors"))
    assert "sublet_interposer_launches_total" in daemon.get("/metrics").body
    inside.ask("0 kill")
    assert inside.ask("1 take 1000") == [OOM, all_of_it(1)] and daemon.process.poll() is None
    inside.end(), neighbour.end()


def test_a_process_of_a_poisoned_lease_gets_no_memory(start_daemon, folder):
    daemon = start_daemon(CARDS)
    learn_context(daemon, folder)
    inside = Inside(daemon, folder).start()
    id = inside.lease()["id"]
    assert inside.ask("0 take 10") == [0, 10]
    daemon.cli("pause", id, check=0)
    wait_until(lambda: inside.lease()["state"] == "paused", "the lease is paused")
    daemon.ctl("fault", "restore-fail")
    daemon.cli("resume", id)
    wait_until(lambda: inside.lease()["state"] == "poisoned", "its program cannot come back")
    assert inside.ask("start")[1] == OOM, "it waits for nothing that may come"
    daemon.cli("stop", id, "--force", check=0)
    inside.child.kill(), inside.child.wait()
