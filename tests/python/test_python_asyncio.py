# SPDX-License-Identifier: Apache-2.0
"""Leases in asyncio: many at once over few connections, waits over one stream, cancellation."""
import asyncio
import contextlib
import gc
import os
import signal
import weakref

import pytest

import sublet
from sublet import _aio
from tests.support.sublet import GIB, wait_until

MANY = 1000


def sockets():
    """Returns the number of open sockets of this process."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
    return count


def test_an_async_lease_reserves_and_releases(place):
    async def main():
        async with sublet.lease("1GiB") as lease:
            assert place.get(f"/v1/leases/{lease.id}")["state"] == "active" and sublet.current() is lease
            async with sublet.lease("512MiB") as inner:
                assert inner.nested
            await lease.async_resize("2GiB")
            assert lease.vram_bytes == 2 * GIB
            with pytest.raises(sublet.TooLarge):
                await lease.async_resize("64GiB")
        return lease.id

    before = sockets()
    ended = asyncio.run(main())
    assert place.get(f"/v1/leases/{ended}")["end_reason"] == "released"
    assert sockets() == before, "no connection is left open"


def test_a_decorated_coroutine_has_a_lease(place):
    @sublet.leased("1GiB")
    async def work():
        await asyncio.sleep(0)
        return sublet.current().id

    assert asyncio.run(work()) == "lease-1" and place.leases() == []


def test_a_thousand_leases_at_once_take_few_connections(place):
    async def main():
        most = before = sockets()
        gate = asyncio.Event()
        held = 0

        async def one():
            nonlocal held, most
            async with sublet.lease("1MiB") as lease:
                held += 1
                most = max(most, sockets())
                if held == MANY:
                    gate.set()
                await gate.wait()
                return lease.id

        ids = await asyncio.gather(*(one() for _ in range(MANY)))
        return ids, most - before

    ids, connections = asyncio.run(main())
    assert len(set(ids)) == MANY and connections <= _aio.MOST_CONNECTIONS + 2
    assert place.leases() == []


def test_waits_share_one_stream(place):
    async def main():
        before = sockets()
        most, running, peak = before, 0, 0

        async def one():
            nonlocal most, running, peak
            async with sublet.lease("1GiB"):
                running += 1
                most, peak = max(most, sockets()), max(peak, running)
                await asyncio.sleep(0)
                running -= 1

        await asyncio.gather(*(one() for _ in range(60)))
        return most - before, peak

    connections, peak = asyncio.run(main())
    assert connections <= _aio.MOST_CONNECTIONS + 2 and 1 <= peak <= 3
    assert place.leases() == []


def test_the_loop_runs_while_a_lease_waits(place):
    async def main():
        told = []

        async def on_wait(waiting):
            await asyncio.sleep(0)
            told.append(waiting)

        async with sublet.lease("3GiB") as first:
            context = asyncio.create_task(wait_outside(on_wait))
            while not told:
                await asyncio.sleep(0.01)
            assert told[0].place == 1
            await first.__aexit__()
            await context

    async def wait_outside(on_wait):
        from sublet import _lease
        _lease._current.set(None)  # a task begins inside the lease of the task that made it
        async with sublet.lease("2GiB", on_wait=on_wait) as second:
            assert not second.nested

    asyncio.run(main())
    assert place.leases() == []


@pytest.fixture
def full(place):
    with place.daemon.spawn("sublet", "hold", "--vram", "3GiB", "--tag", "holder"):
        wait_until(lambda: place.leases("active"), "the card is full")
        yield place
        place.daemon.cli("release", "holder")


def test_a_cancelled_wait_withdraws_the_request(full):
    async def main():
        waiting = asyncio.Event()
        task = asyncio.create_task(sublet.lease("2GiB", on_wait=lambda _: waiting.set()).__aenter__())
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(sublet.lease("2GiB").__aenter__(), 0.2)
        with pytest.raises(sublet.WaitTimeout):
            await sublet.lease("2GiB", timeout=0.2).__aenter__()

    asyncio.run(main())
    assert len(full.leases()) == 1


INTERRUPTED = """
import asyncio, sublet

async def main():
    async with sublet.lease("2GiB", tag="waiter"):
        pass

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted", flush=True)
input()
"""


def test_ctrl_c_withdraws_the_request_of_a_task(full):
    child = full.python(INTERRUPTED)
    wait_until(lambda: full.leases("queued"), "it waits")
    child.send_signal(signal.SIGINT)
    assert child.stdout.readline() == "interrupted\n" and full.leases("queued") == []


def test_a_cancelled_request_leaves_no_lease(place):
    async def main():
        for pauses in range(12):
            task = asyncio.create_task(sublet.lease("1GiB").__aenter__())
            for _ in range(pauses):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await (await task).__aexit__()

    asyncio.run(main())
    assert place.leases() == []


def test_a_cancelled_release_is_still_a_release(place):
    async def main():
        for pauses in range(8):
            lease = sublet.lease("1GiB")
            await lease.__aenter__()
            task = asyncio.create_task(lease.__aexit__())
            for _ in range(pauses):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            if lease.held:  # it was cancelled before its first step
                await lease.__aexit__()

    asyncio.run(main())
    assert place.leases() == []


def test_async_waits_outlive_a_restart_of_the_daemon(full):
    async def main():
        waiting = asyncio.Event()
        tasks = [asyncio.create_task(one(waiting)) for _ in range(5)]
        await waiting.wait()
        await asyncio.get_running_loop().run_in_executor(None, full.daemon.restart)
        full.daemon.cli("release", "holder", check=0)
        await asyncio.gather(*tasks)

    async def one(waiting):
        async with sublet.lease("2GiB", on_wait=lambda _: waiting.set()):
            pass

    asyncio.run(main())
    assert full.leases() == []


def test_no_daemon_is_an_error_here_too(place):
    place.daemon.kill()

    async def main():
        with pytest.raises(sublet.DaemonUnavailable):
            await sublet.lease("1GiB").__aenter__()

    asyncio.run(main())


def test_ended_loops_are_freed(place):
    async def main():
        async with sublet.lease("1GiB") as lease:
            await asyncio.gather(*(lease.async_resize("1GiB") for _ in range(_aio.MOST_CONNECTIONS + 1)))
            waits = asyncio.create_task(sublet.lease("4GiB", timeout=0.1).__aenter__())
            with pytest.raises(sublet.SubletError):
                await waits
        return weakref.ref(asyncio.get_running_loop())

    loops = [asyncio.run(main()) for _ in range(3)]
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3


class OtherTransport(asyncio.BaseTransport):
    """A transport that is no asyncio.Transport, as that of uvloop."""

    def __init__(self, inner):
        super().__init__()
        self.write, self.close = inner.write, inner.close


def test_an_event_loop_may_have_transports_of_its_own(place, monkeypatch):
    for kind in (_aio._Wire, _aio._EventWire):
        made = kind.connection_made
        monkeypatch.setattr(kind, "connection_made",
                            lambda self, transport, made=made: made(self, OtherTransport(transport)))

    async def main():
        async with sublet.lease("1GiB"):
            client = _aio.async_client(sublet._endpoint.resolve())
            async with client.listening("lease-1"):
                return sublet.current().id

    assert asyncio.run(main()) == "lease-1" and place.leases() == []
