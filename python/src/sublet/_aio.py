# SPDX-License-Identifier: Apache-2.0
"""The daemon's API for asyncio: calls over a few shared connections, and all waits over one stream of events.

An `AsyncClient` belongs to one event loop and is used on its thread only. It keeps connections open while a lease of
the loop is held or waits (`enter`, `leave`), so that nothing is left open when the loop ends.
"""
from __future__ import annotations

import asyncio
import contextlib
import json
import weakref
from typing import Any, AsyncIterator, Dict, List, Optional, Tuple, TypeVar, cast

from ._endpoint import Endpoint
from ._http import Broken, Call, Reader, Retry, address_of, decode, encode
from .errors import SubletError

MOST_CONNECTIONS = 64  # at the same time; `limits.connections` of a user is 256
MOST_IDLE = 4  # connections that stay open while a lease is held
_T = TypeVar("_T", bound=asyncio.BaseProtocol)


class _Wire(asyncio.Protocol):
    """A connection that carries one call after the other."""

    def __init__(self) -> None:
        self.reader = Reader()
        self.transport: Optional[asyncio.Transport] = None
        self.answer: Optional[asyncio.Future[Tuple[int, bytes]]] = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # other event loops have transports of their own class

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)
        try:
            taken = self.reader.take()
        except Broken as problem:
            self._fail(problem)
            return
        if taken is not None and self.answer is not None and not self.answer.done():
            self.answer.set_result(taken)

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self.transport = None
        self._fail(Broken("the daemon closed the connection"))

    def _fail(self, problem: Exception) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(problem)

    async def ask(self, request: bytes, seconds: float) -> Tuple[int, bytes]:
        if self.transport is None:
            raise Broken("the daemon closed the connection")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Tuple[int, bytes]] = loop.create_future()
        self.answer = answer
        late = loop.call_later(seconds, self._fail, Broken(f"no answer within {seconds:.0f} s"))
        self.transport.write(request)
        try:
            return await answer
        finally:
            late.cancel()

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


class _EventWire(asyncio.Protocol):
    """The stream of lease events. Wakes the waits of the leases that are no longer queued."""

    def __init__(self, client: "AsyncClient") -> None:
        self._client = client
        self._reader = Reader()
        self._rest = b""
        self.transport: Optional[asyncio.Transport] = None
        self.opened: asyncio.Future[None] = client.loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # other event loops have transports of their own class

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        if not self._reader.read_head():
            return
        if self._reader.status != 200:
            taken = self._reader.take()
            if taken is not None and not self.opened.done():
                self.opened.set_exception(_error_in(taken))
            return
        if not self.opened.done():
            self.opened.set_result(None)
        blocks = (self._rest + self._reader.rest()).split(b"\n\n")
        self._rest = blocks.pop()
        for block in blocks:
            for line in block.split(b"\n"):
                if line.startswith(b"data: "):
                    self._heard(json.loads(line[6:]))

    def _heard(self, event: Dict[str, Any]) -> None:
        if event["type"] == "gap":
            self._client.wake_all()
        elif event["type"] == "lease" and event["state"] != "queued":
            self._client.wake(event["lease"])

    def connection_lost(self, exc: Optional[Exception]) -> None:
        self.transport = None
        if not self.opened.done():
            self.opened.set_exception(Broken("the daemon closed the connection"))
            self.opened.exception()  # nobody need be there to hear it
        self._client.stream_lost(self)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.close()


def _error_in(taken: Tuple[int, bytes]) -> Exception:
    try:
        decode(*taken)
    except (SubletError, OSError) as problem:
        return problem
    return Broken(f"the daemon answered {taken[0]} instead of a stream")


class AsyncClient:
    """Calls to one daemon on one event loop. While no lease uses it, it refers to nothing of the loop, so that an ended
    loop is freed.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.met = False
        self._idle: List[_Wire] = []
        self._slots: Optional[asyncio.Semaphore] = None
        self._users = 0
        self._waits: Dict[str, List[asyncio.Future[None]]] = {}
        self._stream: Optional[_EventWire] = None
        self._opening: Optional[asyncio.Future[None]] = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that runs now."""
        return asyncio.get_running_loop()

    def enter(self) -> None:
        """Keeps the connections open until the matching `leave`."""
        self._users += 1

    def leave(self) -> None:
        """The last user closes all connections."""
        self._users -= 1
        if self._users > 0:
            return
        while self._idle:
            self._idle.pop().close()
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self._slots = None

    async def call(self, call: Call) -> Any:
        """Returns the document of the answer; errors as for `Client.call`. A cancelled call may have been made."""
        retry = Retry(call, self.endpoint)
        request = encode(call, self.endpoint)
        fresh = call.alone
        slots = self._slots = self._slots or asyncio.Semaphore(MOST_CONNECTIONS)
        while True:
            try:
                if call.alone:
                    return await self._try(request, call, fresh=True)
                async with slots:
                    return await self._try(request, call, fresh)
            except (OSError, SubletError) as problem:
                if not fresh and isinstance(problem, OSError) and self.met:
                    fresh = True
                    continue
                pause = retry.pause_after(problem, self.met)
            await asyncio.sleep(pause)

    async def _try(self, request: bytes, call: Call, fresh: bool) -> Any:
        wire = self._idle.pop() if self._idle and not fresh else await self._open(_Wire())
        try:
            status, body = await wire.ask(request, call.answer_seconds)
        except BaseException:
            wire.close()
            raise
        self.met = True
        needed = len(self._idle) < MOST_IDLE or (self._slots is not None and self._slots.locked())
        if self._users > 0 and needed and not call.alone:
            self._idle.append(wire)
        else:
            wire.close()
        return decode(status, body)

    async def _open(self, protocol: _T) -> _T:
        if self.endpoint.port:
            await self.loop.create_connection(lambda: protocol, self.endpoint.host, self.endpoint.port)
        else:
            with address_of(self.endpoint.path) as address:
                await self.loop.create_unix_connection(lambda: protocol, address)
        return protocol

    # --- waits ---

    @contextlib.asynccontextmanager
    async def listening(self, lease: str) -> "AsyncIterator[asyncio.Future[None]]":
        """Gives a future that is done once the lease may no longer be queued. Look at the lease before you wait for it:
        the stream may be younger than the change. Raises OSError or an error if the stream cannot be opened.
        """
        heard: asyncio.Future[None] = self.loop.create_future()
        self._waits.setdefault(lease, []).append(heard)
        try:
            await self._open_stream()
            yield heard
        finally:
            left = self._waits[lease]
            left.remove(heard)
            if not left:
                del self._waits[lease]

    async def _open_stream(self) -> None:
        while self._stream is None:
            if self._opening is not None:
                await asyncio.shield(self._opening)
                continue
            self._opening = self.loop.create_future()
            try:
                stream = await self._open(_EventWire(self))
                try:
                    assert stream.transport is not None
                    stream.transport.write(encode(Call("GET", "/v1/events?type=lease"), self.endpoint))
                    await stream.opened
                except BaseException:
                    stream.close()
                    raise
                self._stream = stream
            finally:
                self._opening.set_result(None)
                self._opening = None

    def wake(self, lease: str) -> None:
        for heard in self._waits.get(lease, ()):
            if not heard.done():
                heard.set_result(None)

    def wake_all(self) -> None:
        for lease in list(self._waits):
            self.wake(lease)

    def stream_lost(self, stream: _EventWire) -> None:
        """The stream has ended: every wait looks at its lease, and opens another stream if it must wait on."""
        if self._stream is stream:
            self._stream = None
            self.wake_all()


_clients: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Dict[Endpoint, AsyncClient]]" = (
    weakref.WeakKeyDictionary())


def async_client(endpoint: Endpoint) -> AsyncClient:
    """Returns the client of the running event loop."""
    loop = asyncio.get_running_loop()
    clients = _clients.setdefault(loop, {})
    if endpoint not in clients:
        clients[endpoint] = AsyncClient(endpoint)
    return clients[endpoint]
