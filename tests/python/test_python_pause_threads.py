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
