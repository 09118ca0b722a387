# SPDX-License-Identifier: Apache-2.0
"""The background thread that asks for orders.

All leases of a process share it. It starts with the first lease that has an `on_pause`, and is a daemon thread. It
never runs code of the program.
"""
from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import Dict, Optional, Protocol, Tuple

from ._aio import AsyncClient
from ._endpoint import Endpoint


class Watched(Protocol):
    """The pauses of a lease."""

    async def watch(self, client: AsyncClient) -> None: ...


class _Background:
    """The thread and its event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._tasks: Dict[Watched, "asyncio.Task[None]"] = {}
        threading.Thread(target=self._run, name="sublet-orders", daemon=True).start()

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())  # signals are for the program's threads
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def watch(self, watched: Watched, endpoint: Endpoint) -> None:
        def begin() -> None:
            task = self.loop.create_task(watched.watch(AsyncClient(endpoint)))
            self._tasks[watched] = task
            task.add_done_callback(lambda _: self._tasks.pop(watched))

        self.loop.call_soon_threadsafe(begin)

    def forget(self, watched: Watched) -> None:
        def cancel() -> None:
            if watched in self._tasks:
                self._tasks[watched].cancel()

        self.loop.call_soon_threadsafe(cancel)


_background: Tuple[Optional[_Background], threading.Lock] = (None, threading.Lock())


def watch(watched: Watched, endpoint: Endpoint) -> None:
    """Has the background thread ask for the orders of a registered lease."""
    global _background
    there, lock = _background
    with lock:
        there, _ = _background
        if there is None:
            there = _Background()
            _background = (there, lock)
    there.watch(watched, endpoint)


def forget(watched: Watched) -> None:
    """Has the background thread ask no more."""
    there, _ = _background
    if there is not None:
        there.forget(watched)


def _forked() -> None:
    global _background
    _background = (None, threading.Lock())  # the thread is not in the child


os.register_at_fork(after_in_child=_forked)
