# SPDX-License-Identifier: Apache-2.0
"""The steps of taking, changing and giving back a lease, as generators that do no input or output.

A generator yields steps and gets their results. `drive` carries the steps out by blocking calls, `drive_async` by
asyncio. Both hand the generator every exception, Ctrl-C and cancellation included, so that it can withdraw a request.
"""
from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import secrets
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Generator, Mapping, Optional, TypeVar, Union
from urllib.parse import quote

from ._aio import AsyncClient
from ._http import Call, Client, Retry
from ._size import format_duration, format_size
from ._wait import Line, Waiting, waiting_of
from .errors import ClientError, Refusal, Stale, SubletError, Unavailable, WaitTimeout, ended_error

Document = Dict[str, Any]
OnWait = Callable[[Waiting], Any]
_T = TypeVar("_T")

PROGRESS_SECONDS = 2.0  # between two states of a wait that somebody looks at
LOOK_SECONDS = 50.0  # the longest time between two looks at a waiting lease
BRIEF_SECONDS = 3.0  # patience of what must not hold an exception up


@dataclass(frozen=True)
class Look:
    """Look at the lease when it is no longer queued, or after `seconds`."""

    lease: str
    token: str
    seconds: float


@dataclass(frozen=True)
class Tell:
    """Call `on_wait`; asyncio awaits what it returns."""

    on_wait: OnWait
    waiting: Waiting


Step = Union[Call, Look, Tell]
Flow = Generator[Step, Any, _T]


@dataclass(frozen=True)
class Wish:
    """How a caller wants to wait."""

    timeout: Optional[float]  # seconds; None: without end
    on_wait: Optional[OnWait]  # None: the line on a terminal


def device_names(answer: Mapping[str, Any]) -> Dict[str, str]:
    """Reads the answer of /v1/devices. Returns names such as "gpu0" by UUID."""
    return {str(device["uuid"]): str(device["id"]) for device in answer["devices"]}


def path_of(lease: str, action: str = "") -> str:
    """Returns the path of a lease by id or tag."""
    return f"/v1/leases/{quote(lease, safe='')}{action}"


# ------------------------------------------------------------------------------------------------ flows

def acquire(body: Mapping[str, Any], wish: Wish, key: str = "") -> Flow[Document]:
    """Asks for a lease and waits for it. Returns the lease document, with the token, in a granted state.

    Whatever ends the wait early withdraws the request. Processes that ask with the same secret key get one lease.
    """
    call = Call("POST", "/v1/leases", dict(body), key=key or secrets.token_hex(16))
    made: Optional[Document] = None
    waits = _Waits(wish)
    try:
        document: Document = yield call
        made, token = document, str(document["token"])
        while document["state"] in ("queued", "offered"):
            if document["state"] == "queued":
                document = yield from waits.wait(document, token)
                continue
            try:
                document = yield Call("POST", path_of(document["id"], "/claim"), {}, lease_token=token)
            except Stale:  # the offer lapsed before: its state tells
                document = yield Call("GET", path_of(document["id"]), lease_token=token)
        if document["state"] == "ended":
            raise ended_error(document)
    except BaseException as problem:
        waits.done()
        yield from _withdraw(call, made, problem)
        raise
    waits.done()
    return {**document, "token": token}


def _withdraw(call: Call, made: Optional[Document], problem: BaseException) -> Flow[None]:
    made_nothing = isinstance(problem, Refusal) and not isinstance(problem, Unavailable)
    if made is None and (made_nothing or isinstance(problem, ClientError)):
        return
    with contextlib.suppress(SubletError, OSError):
        if made is None:  # it may have been made: the same key tells
            made = yield dataclasses.replace(call, patience=BRIEF_SECONDS, answer_seconds=BRIEF_SECONDS)
        assert made is not None
        yield Call("POST", path_of(made["id"], "/release"), {"force": True}, patience=BRIEF_SECONDS,
                   answer_seconds=BRIEF_SECONDS)


class _Waits:
    """The waiting of one request: its deadline and its progress."""

    def __init__(self, wish: Wish) -> None:
        self._wish = wish
        self._began = time.monotonic()
        self._line = Line() if wish.on_wait is None and Line.is_live() else None
        self._names: Optional[Dict[str, str]] = None  # of the devices, once they are needed
        self.watched = wish.on_wait is not None or self._line is not None

    def left(self) -> float:
        """Returns the seconds until the deadline; infinite without one."""
        waited = time.monotonic() - self._began
        return float("inf") if self._wish.timeout is None else self._wish.timeout - waited

    def tell(self, document: Document) -> Flow[None]:
        """Tells the state of the wait. Raises `WaitTimeout` after the deadline."""
        over = self.left() <= 0
        if not over and not self.watched:
            return
        if self._names is None:
            self._names = {}
            with contextlib.suppress(SubletError):
                self._names = device_names((yield Call("GET", "/v1/devices")))
        waiting = waiting_of(document, time.monotonic() - self._began, self._names)
        if over:
            raise _gave_up(waiting, document)
        if self._wish.on_wait is not None:
            yield Tell(self._wish.on_wait, waiting)
        if self._line is not None:
            self._line.show(waiting)

    def wait(self, document: Document, token: str) -> Flow[Document]:
        yield from self.tell(document)
        seconds = min(self.left(), PROGRESS_SECONDS if self.watched else LOOK_SECONDS)
        looked: Document = yield Look(document["id"], token, max(0.0, seconds))
        return looked

    def done(self) -> None:
        if self._line is not None:
            self._line.clear()


def _gave_up(waiting: Waiting, document: Document) -> WaitTimeout:
    resize = document.get("resize")
    aim = f" to grow to {format_size(resize['vram_bytes'])}" if resize else ""
    numbers = {"waited_seconds": waiting.waited_seconds, "place": waiting.place, "short_bytes": waiting.short_bytes,
               "eta_seconds": waiting.eta_seconds}
    numbers = {name: number for name, number in numbers.items() if number is not None}  # the known ones
    return WaitTimeout(f"gave up after {format_duration(waiting.waited_seconds)}{aim}: {waiting}",
                       "give a longer timeout, or ask for less", numbers)


def resize(lease: str, token: str, size: int, queue: bool, wish: Wish) -> Flow[Document]:
    """Changes the size of a lease. Waits until a larger size is there; an early end of the wait keeps the old size."""
    call = Call("POST", path_of(lease, "/resize"), {"vram_bytes": size, "queue": queue}, lease_token=token)
    document: Document = yield call
    if not document["resize"]:
        return document
    before = document["vram_bytes"]
    waits = _Waits(wish)
    try:
        while document["resize"]:
            yield from waits.tell(document)
            # The same request again waits for the size; its answer has the place.
            seconds = min(PROGRESS_SECONDS, waits.left())
            body = {"vram_bytes": size, "wait_seconds": max(1, round(seconds))}
            document = yield Call("POST", path_of(lease, "/resize"), body, lease_token=token, alone=True)
            if document["state"] == "ended":
                raise ended_error(document)
    except BaseException:
        with contextlib.suppress(SubletError, OSError):
            yield Call("POST", path_of(lease, "/resize"), {"vram_bytes": before}, lease_token=token,
                       patience=BRIEF_SECONDS, answer_seconds=BRIEF_SECONDS)
        raise
    finally:
        waits.done()
    return document


# ------------------------------------------------------------------------------------------------ drivers

def drive(flow: Flow[_T], client: Client) -> _T:
    """Carries the steps out on this thread."""
    send: Callable[[Any], Step] = flow.send
    value: Any = None
    while True:
        try:
            step = send(value)
        except StopIteration as end:
            result: _T = end.value
            return result
        try:
            value = _do(step, client)
            send = flow.send
        except BaseException as problem:
            value, send = problem, flow.throw


def _do(step: Step, client: Client) -> Any:
    if isinstance(step, Call):
        return client.call(step)
    if isinstance(step, Look):
        milliseconds = max(1, round(step.seconds * 1000))
        return client.call(Call("GET", path_of(step.lease, f"?wait={milliseconds}ms&since=queued"),
                                lease_token=step.token, answer_seconds=step.seconds + 30))
    return step.on_wait(step.waiting)


async def drive_async(flow: Flow[_T], client: AsyncClient) -> _T:
    """Carries the steps out on the running event loop."""
    send: Callable[[Any], Step] = flow.send
    value: Any = None
    while True:
        try:
            step = send(value)
        except StopIteration as end:
            result: _T = end.value
            return result
        try:
            value = await _do_async(step, client)
            send = flow.send
        except BaseException as problem:
            value, send = problem, flow.throw


async def _do_async(step: Step, client: AsyncClient) -> Any:
    if isinstance(step, Call):
        return await client.call(step)
    if isinstance(step, Look):
        return await _look_async(step, client)
    said = step.on_wait(step.waiting)
    return await said if inspect.isawaitable(said) else said


async def _look_async(look: Look, client: AsyncClient) -> Any:
    """All waiting leases of the loop share one stream of events: so a thousand waits take one connection."""
    call = Call("GET", path_of(look.lease), lease_token=look.token)
    retry = Retry(call, client.endpoint)
    while True:
        try:
            async with client.listening(look.lease) as heard:
                document = await client.call(call)
                if document["state"] != "queued":
                    return document
                await asyncio.wait([heard], timeout=look.seconds)
            return await client.call(call)
        except OSError as problem:
            await asyncio.sleep(retry.pause_after(problem, True))
        except SubletError as problem:
            if not problem.is_passing():
                raise
            await asyncio.sleep(retry.pause_after(problem, True))
