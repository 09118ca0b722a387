# SPDX-License-Identifier: Apache-2.0
"""Waiting for memory: progress, early ends, and requests that are withdrawn."""
import os
import pty
import signal
import threading

import pytest

import sublet
from sublet import _wait
from tests.support.python_place import CONFIG
from tests.support.sublet import GIB, wait_until


@pytest.fixture
def full(place):
    """A card that another lease fills."""
    holder = place.daemon.spawn("sublet", "hold", "--vram", "3GiB", "--tag", "holder", "--name", "big")
    wait_until(lambda: place.leases("active"), "the card is full")
    yield place
    place.daemon.cli("release", "holder")
    holder.wait(60)


def free(place):
    place.daemon.cli("release", "holder", check=0)


def test_a_waiting_lease_tells_its_progress(full):
    told = []

    def on_wait(waiting):
        told.append(waiting)
        if len(told) == 1:
            free(full)

    with sublet.lease("2GiB", on_wait=on_wait) as lease:
        assert lease.refresh()["state"] == "active", "the offer is claimed"
    first = told[0]
    assert first.lease == lease.id and first.place == 1 and 0 < first.short_bytes <= 2 * GIB and first.device
    assert first.device_name == "gpu0" and " short on gpu0 · start" in str(first) and first.basis in str(first)
    assert "holder" in first.holders and "place 1" in str(first) and first.fits_bytes == 0


WAITING = {"id": "lease-7", "state": "queued", "queue": {
    "place": 1, "short_bytes": GIB, "device": "GPU-0123456789", "free_bytes": 2 * GIB - 1, "unleased_bytes": 2 * GIB,
    "holders": [{"lease": None, "what": "process 12", "bytes": 2 * GIB}], "reserved_for": None, "eta_seconds": 125,
    "basis": "as usual"}}


@pytest.mark.parametrize("change, names, text", [
    ({}, {"GPU-0123456789": "gpu0"}, "1.0 GiB short on gpu0 · starts in about 2 min 5 s · held by process 12 2.0 GiB · "
                                     "1.9GiB or less would fit now, and min_vram= accepts a smaller lease · as usual"),
    ({"eta_seconds": None, "unleased_bytes": 0, "basis": ""}, {},
     "1.0 GiB short on GPU-01234567 · start unknown · held by process 12 2.0 GiB"),
    ({"eta_seconds": 0, "short_bytes": 0, "reserved_for": "lease-3"}, {},
     "starts at once · memory is reserved for lease-3 · as usual")])
def test_the_line_of_a_wait_has_the_words_of_the_command_line(change, names, text):
    document = {**WAITING, "queue": {**WAITING["queue"], **change}}
    assert str(_wait.waiting_of(document, 3.0, names)) == f"lease-7 waits: place 1 · {text}"


def test_the_line_of_a_lease_that_is_held_back():
    document = {**WAITING, "queue": {"place": 2, "held_back": True}}
    assert str(_wait.waiting_of(document, 3.0, {})) == "lease-7 is held back, and keeps place 2: sublet resume lease-7"


def test_a_lease_that_may_not_wait_is_refused(full):
    with pytest.raises(sublet.WouldWait) as refused:
        sublet.lease("2GiB", wait=False).acquire()
    assert refused.value.code == "Memory" and refused.value.status == 409
    assert refused.value.hint == "leave out wait=False, or ask for less"
    numbers = refused.value.numbers
    assert numbers["asked_bytes"] == 2 * GIB
    assert numbers["short_bytes"] == 2 * GIB - numbers["free_bytes"] > 0
    assert len(full.leases()) == 1


def test_a_timeout_withdraws_the_request(full):
    with pytest.raises(sublet.WaitTimeout) as gave_up:
        sublet.lease("2GiB", timeout=0.2).acquire()
    assert gave_up.value.numbers["place"] == 1 and gave_up.value.numbers["short_bytes"] > 0
    assert gave_up.value.message.startswith("gave up after ") and "short on gpu0" in gave_up.value.message
    assert isinstance(gave_up.value, TimeoutError) and len(full.leases()) == 1


def test_an_exception_of_the_callback_withdraws_the_request(full):
    def on_wait(waiting):
        raise LookupError(waiting.lease)

    with pytest.raises(LookupError):
        sublet.lease("2GiB", on_wait=on_wait).acquire()
    assert len(full.leases()) == 1


WAITER = ("import sublet, sys\n"
          "try:\n"
          "    with sublet.lease('2GiB', tag='waiter', timeout=600): print('granted', flush=True)\n"
          "except KeyboardInterrupt: print('interrupted', flush=True)\n"
          "sys.stdin.read()\n")


def test_ctrl_c_withdraws_the_request(full):
    child = full.python(WAITER)
    wait_until(lambda: full.leases("queued"), "it waits")
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted\n"
    assert full.leases("queued") == [], "the process lives, and its request is gone"
    child.stdin.close()
    assert child.wait(60) == 0


def test_a_lease_that_is_ended_while_it_waits_says_so(full):
    ended = []
    thread = threading.Thread(target=lambda: ended.append(pytest.raises(
        sublet.LeaseEnded, sublet.lease("2GiB", tag="waiter").acquire)))
    thread.start()
    wait_until(lambda: full.leases("queued"), "it waits")
    full.daemon.cli("release", "waiter", check=0)
    thread.join(60)
    assert ended[0].value.numbers == {"end_reason": "cancelled"}


def test_a_stopped_process_misses_its_offers_and_waits_on(start_place):
    place = start_place(config=CONFIG + '[queue]\nclaim_window = "3s"\n')
    holder = place.daemon.spawn("sublet", "hold", "--vram", "3GiB", "--tag", "holder")  # no parent of the child
    wait_until(lambda: place.leases("active"), "the card is full")
    child = place.python(WAITER)
    wait_until(lambda: place.leases("queued"), "it waits")
    child.send_signal(signal.SIGSTOP)
    free(place)
    holder.wait(60)
    wait_until(lambda: [lease for lease in place.leases() if lease["lapsed_offers"]], "an offer lapsed")
    child.send_signal(signal.SIGCONT)
    assert child.stdout.readline() == "granted\n"
    child.stdin.close()
    assert child.wait(60) == 0


def test_a_wait_outlives_a_restart_of_the_daemon(full):
    child = full.python(WAITER)
    wait_until(lambda: full.leases("queued"), "it waits")
    full.daemon.restart()
    assert [lease["tag"] for lease in full.leases("queued")] == ["waiter"]
    free(full)
    assert child.stdout.readline() == "granted\n"
    child.stdin.close()
    assert child.wait(60) == 0


def test_a_terminal_gets_one_line_that_is_written_anew(full):
    master, slave = pty.openpty()
    child = full.python(WAITER, stderr=slave, more={"TERM": "xterm"})
    os.close(slave)
    seen = ""
    while "short on gpu0" not in seen:
        seen += os.read(master, 4096).decode()
    assert seen.startswith("\r") and "\n" not in seen and "place 1" in seen
    free(full)
    assert child.stdout.readline() == "granted\n"
    while not seen.endswith("\r\x1b[K"):
        seen += os.read(master, 4096).decode()
    child.stdin.close()
    assert child.wait(60) == 0
    os.close(master)


def test_without_a_terminal_nothing_is_printed(full):
    child = full.python(WAITER)
    wait_until(lambda: full.leases("queued"), "it waits")
    free(full)
    assert child.stdout.readline() == "granted\n"
    child.stdin.close()
    assert child.wait(60) == 0 and child.stderr.read() == ""
