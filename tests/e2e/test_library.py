# SPDX-License-Identifier: Apache-2.0
"""libsublet with a daemon of the test's own, which the test controls."""
import os
import signal
import subprocess
import sys

import pytest

from tests.support.fake_daemon import fake_daemon
from tests.support.sublet import BUILD, wait_until

# Prints its orders. Passes safe points without end, or lets the library's own thread carry the orders out.
PROGRAM = """
import ctypes, os, signal, sys
own_thread, refusals, failures = map(int, sys.argv[1:])
lib = ctypes.CDLL("libsublet.so.0")
PAUSE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
RESUME = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
class Callbacks(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("on_pause", PAUSE), ("on_resume", RESUME), ("context", ctypes.c_void_p),
                ("residue_bytes", ctypes.c_uint64), ("own_thread", ctypes.c_int)]
def on_pause(context, request):
    global refusals
    refusals -= 1
    print("refuses" if refusals >= 0 else "yields", flush=True)
    return refusals >= 0
def on_resume(context):
    global failures
    failures -= 1
    print("cannot resume" if failures >= 0 else "resumed", flush=True)
    return failures >= 0
callbacks = Callbacks(ctypes.sizeof(Callbacks), PAUSE(on_pause), RESUME(on_resume), None, 0, own_thread)
print("registers", lib.sublet_register(ctypes.byref(callbacks)), flush=True)
for word in sys.stdin:  # closed unless a test says when it does what
    if word.strip() == "leave":
        print("leaves", lib.sublet_unregister(), flush=True)
    elif lib.sublet_safe_point() == 1:
        print("works", flush=True)
while True:
    if own_thread:
        signal.pause()
    elif lib.sublet_safe_point() == 1:
        print("works", flush=True)
"""


@pytest.fixture
def daemon(tmp_path):
    with fake_daemon(tmp_path / "fake.sock") as daemon:
        daemon.path = tmp_path / "fake.sock"
        yield daemon


@pytest.fixture
def start(daemon):
    """Starts the program and waits until it has registered."""
    children = []

    def run(own_thread=0, refusals=0, failures=0, stdin=subprocess.DEVNULL):
        env = dict(os.environ, SUBLET_LEASE="lease-1", SUBLET_HOST=f"unix://{daemon.path}",
                   LD_LIBRARY_PATH=str(BUILD / "lib"))
        child = subprocess.Popen([sys.executable, "-c", PROGRAM, str(own_thread), str(refusals), str(failures)],
                                 stdin=stdin, stdout=subprocess.PIPE, text=True, env=env)
        children.append(child)
        assert child.stdout.readline() == "registers 0\n"
        return child

    yield run
    for child in children:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        if child.stdin:
            child.stdin.close()


def says(child, *lines):
    assert [child.stdout.readline().strip() for _ in lines] == list(lines)


def answered(daemon, *answers):
    daemon.wait(lambda: daemon.answers[-len(answers):] == list(answers), f"it answers {answers}")


def test_an_order_during_the_resumed_answer_is_not_lost(daemon, start):
    daemon.give_before_answering(2, "yield", 3)
    child = start()
    daemon.give("yield", 1)
    answered(daemon, (1, "yielded"))
    daemon.give("resume", 2)
    answered(daemon, (1, "yielded"), (2, "resumed"), (3, "yielded"))
    says(child, "yields", "resumed", "works", "yields")
    daemon.give("resume", 4)
    says(child, "resumed", "works")


def test_an_order_during_a_refusal_is_not_lost(daemon, start):
    daemon.give_before_answering(1, "yield", 2)
    child = start(refusals=1)
    daemon.give("yield", 1)
    answered(daemon, (1, "refused"), (2, "yielded"))
    says(child, "refuses", "yields")


@pytest.mark.parametrize("status", [403, 404, 409])
@pytest.mark.parametrize("own_thread", [0, 1])
def test_a_paused_program_resumes_when_its_lease_has_ended(daemon, start, status, own_thread):
    child = start(own_thread, failures=1)
    daemon.give("yield", 1)
    answered(daemon, (1, "yielded"))
    daemon.end(status)
    says(child, "yields", "cannot resume", "resumed", *([] if own_thread else ["works"]))
    assert daemon.answers == [(1, "yielded")], "nobody has asked whether it has resumed"


# 400: SUBLET_LEASE is a tag, which now names another user's lease too.
@pytest.mark.parametrize("status", [400, 503])
def test_a_paused_program_waits_for_a_failing_daemon(daemon, start, status):
    child = start()
    daemon.give("yield", 1)
    answered(daemon, (1, "yielded"))
    daemon.end(status)
    daemon.wait(lambda: daemon.asked_while_ended > 2, "it asks again and again")
    daemon.give("resume", 2)
    daemon.end(0)
    answered(daemon, (1, "yielded"), (2, "resumed"))
    says(child, "yields", "resumed", "works")


def test_a_paused_program_waits_for_its_identification(daemon, start):
    child = start()
    daemon.give("yield", 1)
    answered(daemon, (1, "yielded"))
    daemon.end(403, questions=3)
    daemon.wait(lambda: daemon.asked_while_ended == 3, "it asks again")
    daemon.give("resume", 2)
    answered(daemon, (1, "yielded"), (2, "resumed"))
    says(child, "yields", "resumed", "works")


# --- withdrawn registrations ---

USAGE = 4
PAUSING = (409, {"code": "PauseUnsafe", "detail": "lease-1 is pausing"})


def tell(child, word):
    child.stdin.write(word + "\n")
    child.stdin.flush()


@pytest.mark.parametrize("own_thread", [0, 1])
def test_a_pending_yield_precedes_leaving(daemon, start, own_thread):
    """This holds also if the order has not arrived yet: the program must get a resume order afterwards."""
    daemon.withdrawal = PAUSING
    child = start(own_thread, stdin=subprocess.PIPE)
    tell(child, "leave")
    says(child, f"leaves {USAGE}")
    daemon.give("yield", 1)
    if not own_thread:
        daemon.wait(lambda: daemon.heard == 1, "it knows what it is asked")
        tell(child, "leave")
        says(child, f"leaves {USAGE}")
        tell(child, "work")
    answered(daemon, (1, "yielded"))
    daemon.give("resume", 2)
    answered(daemon, (1, "yielded"), (2, "resumed"))
    says(child, "yields", "resumed", *([] if own_thread else ["works"]))
    daemon.withdrawal = (200, {})
    tell(child, "leave")
    says(child, "leaves 0")


@pytest.mark.parametrize("withdrawal", [(404, {}), (409, {"code": "Stale", "detail": "lease-1 has ended"})])
def test_a_program_without_a_lease_may_leave(daemon, start, withdrawal):
    daemon.withdrawal = withdrawal
    child = start(stdin=subprocess.PIPE)
    tell(child, "leave")
    says(child, "leaves 0")
    tell(child, "leave")
    says(child, f"leaves {USAGE}")


def test_a_program_that_cannot_leave_still_gets_orders(daemon, start):
    daemon.withdrawal = (503, {"code": "Unavailable", "detail": "the store"})
    child = start(stdin=subprocess.PIPE)
    tell(child, "leave")
    assert child.stdout.readline() not in ("leaves 0\n", f"leaves {USAGE}\n")
    daemon.give("yield", 1)
    daemon.wait(lambda: daemon.heard == 1, "it knows what it is asked")
    tell(child, "work")
    answered(daemon, (1, "yielded"))


def test_a_program_that_is_denied_repeatedly_may_leave(daemon, start):
    daemon.end(403)
    child = start(stdin=subprocess.PIPE)
    daemon.wait(lambda: daemon.asked_while_ended >= 6, "its lease counts as another's")
    daemon.withdrawal = (403, {"code": "Denied", "detail": "not its process"})

    def left():
        tell(child, "leave")
        return child.stdout.readline() == "leaves 0\n"
    wait_until(left, "nobody asks any more")
