# SPDX-License-Identifier: Apache-2.0
"""Cooperative pauses: orders come on a background thread, and callbacks run in the thread that reaches a safe point."""
from __future__ import annotations

import asyncio
import contextlib
import contextvars
import enum
import inspect
import threading
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional

from . import _background
from ._aio import AsyncClient, async_client
from ._flow import Flow, path_of
from ._http import Call, Client
from .errors import Denied, LeaseEnded, NotFound, NotHeld, Stale, SubletError

ORDER_SECONDS = 50.0  # the daemon answers the question for orders after this time
MOST_DENIALS = 6  # a restarted daemon may not know yet that this process belongs to the lease
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
LEAVING = "the program gives its lease back"
_GONE = "what on_pause saved is not back; take another lease before you load it"

# The pass of a pause whose callbacks this thread or task runs.
_turn: "contextvars.ContextVar[Optional[object]]" = contextvars.ContextVar("sublet_turn", default=None)


@dataclass(frozen=True)
class Order:
    """An order to yield, as `on_pause` gets it."""

    lease: str
    number: int
    deadline_seconds: float  # from the order on; later the daemon undoes the pause
    residue_bytes: int  # may stay on each device
    reason: str  # one sentence


class _Phase(enum.Enum):
    RUNNING = 0
    ASKED = 1  # told to yield at the next safe point
    YIELDING = 2  # on_pause runs
    PAUSED = 3  # on_pause returned
    RESUMING = 4  # on_resume runs


OnPause = Callable[[Order], Any]
OnResume = Callable[[], Any]


class Pauses:
    """The pauses of one lease. `safe_point` may be called by any thread; one of them runs the callbacks."""

    def __init__(self, client: Client, lease: str, token: str, residue: int, on_pause: OnPause,
                 on_resume: Optional[OnResume]) -> None:
        self.lease, self.residue = lease, residue
        self._client, self._token = client, token
        self._on_pause, self._on_resume = on_pause, on_resume
        self._changed = threading.Condition()
        self._listeners: List[Callable[[], None]] = []  # async safe points that wait
        self._phase = _Phase.RUNNING
        self._turn: Optional[object] = None  # of the thread or task that runs callbacks or waits for the resume order
        self._order: Optional[Order] = None
        self._resume_number = 0  # of an unanswered resume order; 0: none
        self._over = False  # the lease has ended: no more orders come
        self._leaving = False  # the program gives the lease back and is asked nothing more
        self._withdrawn = False  # the lease lives on without callbacks
        self._unsent: Optional[Call] = None  # an answer that did not reach the daemon

    @property
    def asked(self) -> bool:
        """True from an order to yield until a safe point is reached."""
        return self._phase is _Phase.ASKED

    @property
    def paused(self) -> bool:
        """True from the return of `on_pause` until `on_resume` has returned."""
        return self._phase in (_Phase.PAUSED, _Phase.RESUMING)

    @property
    def has_begun(self) -> bool:
        """True from the call of `on_pause` until `on_resume` has returned or the lease has ended."""
        return self._phase not in (_Phase.RUNNING, _Phase.ASKED) and not self._over

    def registration(self) -> Call:
        return Call("POST", path_of(self.lease, "/cooperate"), {"way": "poll", "residue_bytes": self.residue},
                    lease_token=self._token)

    # --- safe points ---

    def safe_point(self) -> bool:
        """See `Lease.safe_point`."""
        waited = False
        while self._phase is not _Phase.RUNNING and not self._is_mine():
            if inspect.iscoroutinefunction(self._on_pause) or inspect.iscoroutinefunction(self._on_resume):
                raise TypeError("the callbacks are coroutine functions: await async_safe_point() instead")
            with self._own_turn() as mine:
                if mine:
                    return self._pause() or waited
            with self._changed:
                self._changed.wait_for(lambda: self._turn is None)
            waited = True  # if the other thread failed, the program is still paused
        return waited

    def _pause(self) -> bool:
        if self._phase is _Phase.ASKED:
            order = self._start_yield()
            if order is None:
                return False
            try:
                self._on_pause(order)
            except BaseException as problem:
                self._say(self._refused(problem))
                raise
            self._say(self._yielded())
        with self._changed:
            self._changed.wait_for(self._may_resume)
        self._start_resume()
        try:
            if self._on_resume is not None:
                self._on_resume()
        except BaseException:
            self._say(self._resumed(False))
            raise
        self._say(self._resumed())
        return True

    async def async_safe_point(self) -> bool:
        """See `Lease.async_safe_point`."""
        waited = False
        while self._phase is not _Phase.RUNNING and not self._is_mine():
            with self._own_turn() as mine:
                if mine:
                    return await self._pause_async() or waited
            await self._until(lambda: self._turn is None)
            waited = True
        return waited

    async def _pause_async(self) -> bool:
        if self._phase is _Phase.ASKED:
            order = self._start_yield()
            if order is None:
                return False
            try:
                await _finish(self._on_pause(order))
            except BaseException as problem:
                await self._say_async(self._refused(problem))
                raise
            await self._say_async(self._yielded())
        await self._until(self._may_resume)
        self._start_resume()
        try:
            if self._on_resume is not None:
                await _finish(self._on_resume())
        except BaseException:
            await self._say_async(self._resumed(False))
            raise
        await self._say_async(self._resumed())
        return True

    def _is_mine(self) -> bool:
        """True inside a callback of this pause."""
        return self._turn is not None and _turn.get() is self._turn

    @contextlib.contextmanager
    def _own_turn(self) -> Iterator[bool]:
        """Gives True if no other thread or task runs the callbacks; then the caller runs them."""
        mine = object()
        before = _turn.get()
        try:
            with self._changed:
                if self._turn is None:
                    self._turn = mine
            if self._turn is mine:
                _turn.set(mine)
            yield self._turn is mine
        finally:
            with self._changed:
                if self._turn is mine:
                    _turn.set(before)
                    self._turn = None
                    self._notify()

    def listen(self, listener: Callable[[], None]) -> None:
        """Has the function called at each change, in any thread and with the lock held."""
        with self._changed:
            self._listeners.append(listener)

    def _notify(self) -> None:
        """Call with the lock."""
        self._changed.notify_all()
        for listener in self._listeners:
            listener()

    async def _until(self, condition: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        wake = asyncio.Event()

        def listener() -> None:
            loop.call_soon_threadsafe(wake.set)

        self.listen(listener)
        try:
            while not condition():
                await wake.wait()
                wake.clear()
        finally:
            with self._changed:
                self._listeners.remove(listener)

    def _may_resume(self) -> bool:
        return self._resume_number != 0 or self._over or self._leaving

    def _start_yield(self) -> Optional[Order]:
        with self._changed:
            if self._phase is not _Phase.ASKED:
                return None  # not needed any more
            self._phase = _Phase.YIELDING
            return self._order

    def _start_resume(self) -> None:
        """Raises an error without a resume order, since the memory may belong to another program then."""
        with self._changed:
            ordered = self._resume_number != 0
            self._phase = _Phase.RESUMING if ordered else _Phase.PAUSED
        if ordered:
            return
        if self._leaving:
            raise NotHeld(f"{self.lease} was given back while the program was paused", _GONE)
        raise LeaseEnded(f"{self.lease} has ended while the program was paused", _GONE)

    # --- answers ---

    def _refused(self, problem: BaseException) -> Optional[Call]:
        with self._changed:
            number, self._resume_number = self._resume_number, 0
            self._phase = _Phase.RUNNING
        if number != 0:  # the deadline is over, and the daemon has undone the pause
            return self._answer(number, "resumed")
        assert self._order is not None
        return self._answer(self._order.number, "refused", f"on_pause raised {problem!r}"[:500])

    def _yielded(self) -> Optional[Call]:
        with self._changed:
            self._phase = _Phase.PAUSED
            overtaken = self._resume_number != 0
        assert self._order is not None
        return None if overtaken else self._answer(self._order.number, "yielded")

    def _resumed(self, done: bool = True) -> Optional[Call]:
        with self._changed:
            self._phase = _Phase.RUNNING if done else _Phase.PAUSED
            if not done and not self._leaving:
                return None  # the next safe point tries again
            number, self._resume_number = self._resume_number, 0
        return self._answer(number, "resumed") if number else None

    def _answer(self, number: int, word: str, detail: str = "") -> Call:
        body = {"number": number, "answer": word, **({"detail": detail} if detail else {})}
        return Call("POST", path_of(self.lease, "/cooperate/answer"), body, lease_token=self._token, patience=0.0)

    def _say(self, answer: Optional[Call]) -> None:
        """An answer that is refused came too late: the next order tells. If the daemon is away, the background thread
        sends the answer.
        """
        if answer is None:
            return
        try:
            self._client.call(answer)
        except (SubletError, OSError) as problem:
            self._keep(answer, problem)

    async def _say_async(self, answer: Optional[Call]) -> None:
        if answer is None:
            return
        try:
            await async_client(self._client.endpoint).call(answer)
        except (SubletError, OSError) as problem:
            self._keep(answer, problem)

    def _keep(self, answer: Call, problem: Exception) -> None:
        if not isinstance(problem, SubletError) or problem.status is None or problem.status >= 500:
            self._unsent = answer

    # --- the background thread ---

    def leave(self) -> Flow[None]:
        """The program gives the lease back: from now on the thread answers for it. A present order is answered here,
        if no callback has it.
        """
        answer: Optional[Call] = None
        with self._changed:
            self._leaving = True
            self._notify()
            if self._phase is _Phase.ASKED and self._order is not None:
                answer = self._answer(self._order.number, "refused", LEAVING)
                self._phase = _Phase.RUNNING
            elif self._resume_number != 0 and self._turn is None:
                answer = self._answer(self._resume_number, "resumed")
                self._resume_number = 0
        if answer is not None:
            yield answer

    def stay(self) -> None:
        """After `leave`: the lease could not be given back."""
        with self._changed:
            self._leaving = False
            self._notify()

    def withdraw(self) -> Flow[None]:
        """Ends the registration for a lease that lives on. Refused while the program is paused."""
        yield Call("DELETE", path_of(self.lease, "/cooperate"), lease_token=self._token)
        self._withdrawn = True
        _background.forget(self)

    async def watch(self, client: AsyncClient) -> None:
        """Asks for orders until the lease has ended."""
        since = denials = 0
        pause = FIRST_PAUSE
        while not self._withdrawn:
            try:
                if self._unsent is not None:
                    await self._send_unsent(client)
                order = await client.call(self._question(since))
                if self._withdrawn:
                    return  # the order is for those that registered since
                denials, pause = 0, FIRST_PAUSE
                if order["order"] != "none" and order["number"] != since:
                    since = order["number"]
                    await self._told(order, client)
                continue
            except (NotFound, Stale):
                break
            except Denied:
                denials += 1
                if denials >= MOST_DENIALS:
                    break
            except (SubletError, OSError):
                pass
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
        with self._changed:
            self._over = True
            if self._phase is _Phase.ASKED:
                self._phase = _Phase.RUNNING
            self._notify()

    def _question(self, since: int) -> Call:
        return Call("GET", path_of(self.lease, f"/cooperate?wait={ORDER_SECONDS:.0f}s&since={since}"),
                    lease_token=self._token, answer_seconds=ORDER_SECONDS + 20, patience=0.0, alone=True)

    async def _send_unsent(self, client: AsyncClient) -> None:
        answer = self._unsent
        assert answer is not None
        try:
            await client.call(answer)
        except SubletError as problem:
            if problem.status is None or problem.status >= 500:
                raise
        if self._unsent is answer:
            self._unsent = None

    async def _told(self, order: Dict[str, Any], client: AsyncClient) -> None:
        answer = self._take(order)
        if answer is not None:
            self._unsent = answer
            await self._send_unsent(client)

    def _take(self, order: Dict[str, Any]) -> Optional[Call]:
        """Notes an order. Returns the answer if the program need not be asked."""
        number = order["number"]
        with self._changed:
            if order["order"] == "yield":
                if self._leaving:
                    return self._answer(number, "refused", LEAVING)
                if self._phase is _Phase.PAUSED:
                    return self._answer(number, "yielded")
                if self._phase in (_Phase.RUNNING, _Phase.ASKED):
                    self._order = Order(self.lease, number, order["deadline_seconds"] or 0.0, self.residue,
                                        order["reason"] or "")
                    self._phase = _Phase.ASKED
                    self._notify()
                return None
            if self._leaving or self._phase in (_Phase.RUNNING, _Phase.ASKED):
                if self._phase is _Phase.ASKED:
                    self._phase = _Phase.RUNNING
                return self._answer(number, "resumed")
            self._resume_number = number
            self._notify()
            return None


async def _finish(result: Any) -> None:
    if inspect.isawaitable(result):
        await result
