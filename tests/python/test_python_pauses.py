# SPDX-License-Identifier: Apache-2.0
"""Cooperative pauses: callbacks at safe points, callbacks that fail, and ends during a pause."""
import asyncio
import os
import threading

import pytest

import sublet
from tests.support.sublet import GIB, MIB, ROOT, wait_until


class Program:
    """Callbacks that note their calls."""

    def __init__(self):
        self.calls = []
        self.threads = set()

    def on_pause(self, order):
        self.calls.append("pause")
        self.threads.add(threading.current_thread())
        self.order = order

    def on_resume(self):
        self.calls.append("resume")
        self.threads.add(threading.current_thread())


def ask(place, verb, lease):
    """Starts `sublet pause` or `sublet resume`, which waits for the result."""
    return place.daemon.spawn("sublet", verb, lease.id)


def is_asked(lease):
    wait_until(lambda: lease._pauses._phase.name == "ASKED", "the order is there")


def is_paused_and_resumed(place, lease):
    pause = ask(place, "pause", lease)
    is_asked(lease)
    thread = threading.Thread(target=lease.safe_point)
    thread.start()
    assert pause.wait(60) == 0 and ask(place, "resume", lease).wait(60) == 0
    thread.join(60)


def test_a_program_yields_at_a_safe_point(place):
    program = Program()
    with sublet.lease("1GiB", on_pause=program.on_pause, on_resume=program.on_resume, residue="64MiB") as lease:
        registered = place.get(f"/v1/leases/{lease.id}/cooperate")["registered"]
        assert registered["way"] == "poll" and registered["residue_bytes"] == 64 * MIB
        assert registered["pid"] == os.getpid()
        assert lease.safe_point() is False, "there is no order"
        pause = ask(place, "pause", lease)
        is_asked(lease)
        assert program.calls == [], "callbacks run in a safe point only"
        came_back = threading.Event()

        def others():
            assert pause.wait(60) == 0
            assert place.get(f"/v1/leases/{lease.id}")["state"] == "paused" and lease.paused
            assert ask(place, "resume", lease).wait(60) == 0
            came_back.set()

        thread = threading.Thread(target=others)
        thread.start()
        assert lease.safe_point() is True
        assert program.calls == ["pause", "resume"] and program.threads == {threading.current_thread()}
        assert program.order.lease == lease.id and 0 < program.order.deadline_seconds <= 3.0 and program.order.reason
        thread.join(60)
        assert came_back.is_set() and lease.refresh()["state"] == "active" and not lease.paused
        with sublet.lease("512MiB") as inner:
            assert inner.safe_point() is False
            with pytest.raises(sublet.InUse):
                sublet.lease("512MiB", on_pause=program.on_pause).acquire()
            assert sublet.current() is inner


def test_other_threads_wait_at_their_safe_points(place):
    program = Program()
    with sublet.lease("1GiB", on_pause=program.on_pause, on_resume=program.on_resume) as lease:
        pause = ask(place, "pause", lease)
        is_asked(lease)
        results = []
        threads = [threading.Thread(target=lambda: results.append(lease.safe_point())) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert pause.wait(60) == 0 and results == []
        assert ask(place, "resume", lease).wait(60) == 0
        for thread in threads:
            thread.join(60)
        assert results == [True] * 3 and program.calls == ["pause", "resume"]


def test_a_pause_outlives_a_restart_of_the_daemon(place):
    program = Program()
    with sublet.lease("1GiB", on_pause=program.on_pause, on_resume=program.on_resume) as lease:
        pause = ask(place, "pause", lease)
        is_asked(lease)
        thread = threading.Thread(target=lease.safe_point)
        thread.start()
        assert pause.wait(60) == 0
        place.daemon.restart()
        assert place.get(f"/v1/leases/{lease.id}")["state"] == "paused"
        assert ask(place, "resume", lease).wait(60) == 0
        thread.join(60)
        assert program.calls == ["pause", "resume"]


def test_an_exception_in_on_pause_refuses_the_pause(place):
    def on_pause(order):
        raise LookupError("no checkpoint")

    with sublet.lease("1GiB", pausable="cooperative", on_pause=on_pause) as lease:
        pause = ask(place, "pause", lease)
        is_asked(lease)
        with pytest.raises(LookupError, match="no checkpoint"):
            lease.safe_point()
        assert pause.wait(60) == 1
        wait_until(lambda: lease.refresh()["state"] == "active", "the pause is undone")
        assert any("no checkpoint" in reason.text for reason in lease.why().reasons), str(lease.why())
        assert lease.safe_point() is False


def test_a_callback_that_takes_too_long_is_undone_at_the_deadline(place):
    late = threading.Event()
    calls = []

    def on_pause(order):
        calls.append("pause")
        assert late.wait(60)

    with sublet.lease("1GiB", pausable="cooperative", on_pause=on_pause,
                      on_resume=lambda: calls.append("resume")) as lease:
        pause = ask(place, "pause", lease)
        is_asked(lease)
        thread = threading.Thread(target=lease.safe_point)
        thread.start()
        wait_until(lambda: lease.refresh()["state"] == "resuming", "the deadline (pause.yield_timeout) is over")
        assert lease.refresh()["reserved_bytes"] == GIB and calls == ["pause"], "it keeps its memory"
        late.set()
        thread.join(60)
        assert calls == ["pause", "resume"] and pause.wait(60) == 1
        assert lease.refresh()["state"] == "active"


def test_a_safe_point_that_is_not_reached_is_undone_at_the_deadline(place):
    program = Program()
    with sublet.lease("1GiB", pausable="cooperative", on_pause=program.on_pause) as lease:
        assert ask(place, "pause", lease).wait(60) == 1
        wait_until(lambda: lease.refresh()["state"] == "active", "the pause is undone")
        assert lease.safe_point() is False and program.calls == []


def test_an_exception_in_on_resume_leaves_the_lease_paused(place):
    tries = []

    def on_resume():
        tries.append(len(tries))
        if len(tries) == 1:
            raise MemoryError("once")

    with sublet.lease("1GiB", on_pause=lambda order: None, on_resume=on_resume) as lease:
        pause = ask(place, "pause", lease)
        is_asked(lease)
        resumed = []

        def others():
            assert pause.wait(60) == 0
            resumed.append(ask(place, "resume", lease))

        thread = threading.Thread(target=others)
        thread.start()
        with pytest.raises(MemoryError):
            lease.safe_point()
        assert lease.paused
        assert lease.safe_point() is True and tries == [0, 1] and not lease.paused
        thread.join(60)
        assert resumed[0].wait(60) == 0


def test_the_end_of_the_block_during_a_pause_ends_the_lease(place):
    def on_resume():
        raise MemoryError("always")

    with pytest.raises(MemoryError):
        with sublet.lease("1GiB", on_pause=lambda order: None, on_resume=on_resume) as lease:
            pause = ask(place, "pause", lease)
            is_asked(lease)
            thread = threading.Thread(target=lambda: pause.wait(60) or ask(place, "resume", lease))
            thread.start()
            lease.safe_point()
    thread.join(60)
    wait_until(lambda: not place.leases(), "the lease has ended")


def test_the_end_of_the_block_with_an_order_ends_the_lease(place):
    program = Program()
    with sublet.lease("1GiB", pausable="cooperative", on_pause=program.on_pause) as lease:
        ask(place, "pause", lease)
        is_asked(lease)
    wait_until(lambda: not place.leases(), "the lease has ended")
    assert program.calls == []


def test_the_end_of_the_lease_lets_a_paused_program_go_on(place):
    program = Program()
    lease = sublet.lease("1GiB", on_pause=program.on_pause, on_resume=program.on_resume).acquire()
    pause = ask(place, "pause", lease)
    is_asked(lease)
    thread = threading.Thread(target=lease.safe_point)
    thread.start()
    assert pause.wait(60) == 0
    place.daemon.cli("stop", lease.id, check=0)
    thread.join(60)
    assert program.calls == ["pause", "resume"]
    lease.release()


def test_coroutines_yield_without_blocking_the_loop(place):
    calls = []

    async def on_pause(order):
        await asyncio.sleep(0)
        calls.append("pause")

    async def on_resume():
        await asyncio.sleep(0)
        calls.append("resume")

    async def main():
        loop = asyncio.get_running_loop()
        async with sublet.lease("1GiB", on_pause=on_pause, on_resume=on_resume) as lease:
            assert await lease.async_safe_point() is False
            pause = ask(place, "pause", lease)
            await loop.run_in_executor(None, is_asked, lease)
            with pytest.raises(TypeError):
                lease.safe_point()
            points = [asyncio.create_task(lease.async_safe_point()) for _ in range(3)]
            assert await loop.run_in_executor(None, pause.wait, 60) == 0
            assert calls == ["pause"]
            assert await loop.run_in_executor(None, ask(place, "resume", lease).wait, 60) == 0
            assert await asyncio.gather(*points) == [True] * 3 and calls == ["pause", "resume"]

    asyncio.run(main())
    assert place.leases() == []


HOLDER = """
import ctypes, sublet, sys, threading
sys.path.insert(0, sys.argv[1])
from tests.support.cuda_calls import Cuda, begin

address = ctypes.c_uint64()
def fill(): cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 30))
def on_pause(order): cuda.cuMemFree_v2(address)

with sublet.lease("3GiB", tier="batch", tag="holder", on_pause=on_pause, on_resume=fill) as lease:
    cuda = Cuda()
    begin(cuda)
    fill()
    print("filled", flush=True)
    while not lease.safe_point():
        threading.Event().wait(0.01)
    print("resumed", flush=True)
    sys.stdin.readline()
"""


def test_a_preemptor_gets_memory_that_a_program_frees(place):
    """The daemon believes its readings of the card, not the program."""
    holder = place.python(HOLDER, str(ROOT))
    assert holder.stdout.readline() == "filled\n", holder.communicate()
    wait_until(lambda: place.get("/v1/leases/holder")["used_bytes"] > GIB, "its memory counts for its lease")
    urgent = place.daemon.spawn("sublet", "run", "--vram", "2GiB", "--tier", "interactive", "--", "simgpu-load",
                                "--alloc", "1GiB", "--seconds", "0")
    assert urgent.wait(60) == 0, urgent.communicate()
    assert holder.stdout.readline() == "resumed\n", holder.communicate()
    wait_until(lambda: place.get("/v1/leases/holder")["used_bytes"] > GIB, "it has its memory again")
    holder.stdin.close()
    assert holder.wait(60) == 0, holder.stderr.read()


def test_callbacks_of_a_nested_lease_end_with_it(place):
    program = Program()

    def registered(lease):
        return place.get(f"/v1/leases/{lease.id}/cooperate")["registered"]

    with sublet.lease("1GiB") as outer:
        for calls in (2, 4):
            with sublet.lease("512MiB", on_pause=program.on_pause, on_resume=program.on_resume) as inner:
                assert registered(outer) and inner.id == outer.id
                is_paused_and_resumed(place, inner)
                assert len(program.calls) == calls
            assert registered(outer) is None


INSIDE = """
import sublet, threading
with sublet.lease("512MiB", on_pause=lambda order: print("pause", flush=True),
                  on_resume=lambda: print("resume", flush=True)) as lease:
    print(lease.nested, flush=True)
    while not lease.safe_point():
        threading.Event().wait(0.01)
"""


def test_a_program_of_sublet_run_has_callbacks(place):
    child = place.daemon.spawn("sublet", "run", "-q", "--vram", "1GiB", "--tag", "it", "--", "python3", "-c", INSIDE,
                               env=place.env())
    assert child.stdout.readline() == "True\n", child.communicate()
    place.daemon.cli("pause", "it", check=0)
    assert child.stdout.readline() == "pause\n"
    place.daemon.cli("resume", "it", check=0)
    assert child.communicate(timeout=60)[0] == "resume\n" and child.returncode == 0


def test_several_cooperative_leases_share_one_thread(place):
    def threads():
        return [thread for thread in threading.enumerate() if thread.name == "sublet-orders"]

    leases, programs = [], [Program() for _ in range(3)]

    def take(program):
        leases.append(sublet.lease("512MiB", on_pause=program.on_pause, on_resume=program.on_resume).acquire())

    takers = [threading.Thread(target=take, args=(program,)) for program in programs]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    assert len(threads()) == 1
    for lease in leases:
        is_paused_and_resumed(place, lease)
    assert [program.calls for program in programs] == [["pause", "resume"]] * 3
    for lease in leases:
        lease.release()


def test_on_resume_needs_on_pause():
    with pytest.raises(ValueError):
        sublet.lease("1GiB", on_resume=print)
