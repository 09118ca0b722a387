# SPDX-License-Identifier: Apache-2.0
"""Pauses of programs with several threads or tasks, and callbacks that reach safe points."""
import asyncio
import threading

import pytest

import sublet
from tests.support.sublet import wait_until


def is_asked(place, lease):
    """Starts `sublet pause`, and returns it once the order is there."""
    pause = place.daemon.spawn("sublet", "pause", lease.id)
    wait_until(lambda: lease._pauses.asked, "the order is there")
    return pause


def test_a_waiting_thread_takes_over_from_one_that_failed(place):
    tries, results = [], []

    def on_resume():
        tries.append(threading.current_thread())
        if len(tries) == 1:
            raise MemoryError("once")

    def work():
        try:
            results.append((lease.safe_point(), lease.paused))
        except MemoryError:
            results.append("failed")

    with sublet.lease("1GiB", on_pause=lambda order: None, on_resume=on_resume) as lease:
        pause = is_asked(place, lease)
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        assert pause.wait(60) == 0
        place.daemon.cli("resume", lease.id, check=0)
        for thread in threads:
            thread.join(60)
        assert sorted(results, key=str) == [(True, False), "failed"] and set(tries) == set(threads)


def test_a_safe_point_inside_a_callback_does_not_wait(place):
    inside = []
    with sublet.lease("1GiB", on_pause=lambda order: inside.append(lease.safe_point()),
                      on_resume=lambda: inside.append(lease.safe_point())) as lease:
        pause = is_asked(place, lease)
        thread = threading.Thread(target=lambda: pause.wait(60) or place.daemon.cli("resume", lease.id, check=0))
        thread.start()
        assert lease.safe_point() is True and inside == [False, False]
        thread.join(60)


def test_a_safe_point_in_a_task_of_a_callback_does_not_wait(place):
    inside = []

    async def on_pause(order):
        inside.append(await asyncio.create_task(sublet.current().async_safe_point()))
        raise LookupError("refused")

    async def main():
        async with sublet.lease("1GiB", pausable="cooperative", on_pause=on_pause) as lease:
            pause = is_asked(place, lease)
            with pytest.raises(LookupError):
                await asyncio.wait_for(lease.async_safe_point(), 60)
            assert pause.wait(60) == 1 and inside == [False]

    asyncio.run(main())


def paused(place, program, **options):
    """Returns a lease that is paused, and the thread of its safe point."""
    lease = sublet.lease("3GiB", on_pause=program.append, on_resume=lambda: program.append("resume"), **options)
    lease.acquire()
    pause = is_asked(place, lease)
    errors = []

    def work():
        try:
            lease.safe_point()
        except sublet.SubletError as problem:
            errors.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    assert pause.wait(60) == 0
    return lease, thread, errors


def test_a_release_by_another_thread_during_a_pause_calls_no_on_resume(place):
    calls = []
    lease, thread, errors = paused(place, calls)
    with place.daemon.spawn("sublet", "hold", "--vram", "3GiB", "--tag", "other"):
        wait_until(lambda: place.leases("active"), "another program has the memory")
        lease.release()
        thread.join(60)
        assert len(calls) == 1 and "resume" not in calls, "the memory is not there"
        assert isinstance(errors[0], sublet.NotHeld) and lease.paused
        place.daemon.cli("release", "other", check=0)
    wait_until(lambda: not place.leases(), "the lease has ended")
    assert "resume" not in calls


def test_an_end_during_a_pause_without_a_resume_order_calls_no_on_resume(place):
    calls = []
    lease, thread, errors = paused(place, calls)
    with lease._pauses._changed:  # a daemon that ends a paused lease at once
        lease._pauses._over = True
        lease._pauses._notify()
    thread.join(60)
    assert len(calls) == 1 and type(errors[0]) is sublet.LeaseEnded
    lease.release()


def test_a_release_while_on_resume_fails_ends_the_lease(place):
    begun, released = threading.Event(), threading.Event()

    def on_resume():
        begun.set()
        assert released.wait(60)
        raise sublet.NotFound("no bytes")

    lease = sublet.lease("1GiB", on_pause=lambda order: None, on_resume=on_resume).acquire()
    pause = is_asked(place, lease)
    errors = []

    def work():
        try:
            lease.safe_point()
        except sublet.NotFound as problem:
            errors.append(problem)

    thread = threading.Thread(target=work)
    thread.start()
    assert pause.wait(60) == 0
    resume = place.daemon.spawn("sublet", "resume", lease.id)
    assert begun.wait(60)
    lease.release()
    released.set()
    thread.join(60)
    assert len(errors) == 1
    wait_until(lambda: not place.leases(), "the lease has ended")
    resume.wait(60)
