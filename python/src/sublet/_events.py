# SPDX-License-Identifier: Apache-2.0
"""The daemon's events as an iterator that goes on after an interruption."""
from __future__ import annotations

import json
import socket
import time
from dataclasses import dataclass
from typing import Any, Iterator, List, Mapping, Optional, Sequence
from urllib.parse import urlencode

from ._endpoint import Endpoint, resolve
from ._http import (ANSWER_SECONDS, FIRST_PAUSE, LONGEST_PAUSE, Broken, Call, Reader, connect, decode, encode,
                    unavailable)
from .errors import Disconnected, SubletError

HEARTBEAT_SECONDS = 15
SILENCE_SECONDS = 3.0 * HEARTBEAT_SECONDS  # after this silence the connection counts as broken


@dataclass(frozen=True)
class Event:
    """One event. `type` is lease, device, warning, verdict, stack, session, daemon or gap. A gap says in
    `data["text"]` what is missing.
    """

    id: Optional[str]  # for `since`; None: a gap
    type: str
    at: str  # RFC 3339, UTC
    data: Mapping[str, Any]


class Events(Iterator[Event]):
    """Events in their order. Belongs to one thread at a time; `close` may be called by any thread and ends it."""

    def __init__(self, endpoint: Endpoint, query: str, since: Optional[str], follow: bool,
                 patience: Optional[float]) -> None:
        self.last_id = since  # of the newest event or sign of life; a later `events(since=…)` goes on there
        self._endpoint, self._query, self._follow, self._patience = endpoint, query, follow, patience
        self._socket: Optional[socket.socket] = None
        self._reader = Reader()
        self._rest = b""
        self._blocks: List[bytes] = []
        self._met = False
        self._closed = False

    def __next__(self) -> Event:
        while True:
            while self._blocks:
                event = self._parse(self._blocks.pop(0))
                if event is not None:
                    return event
            if self._closed:
                self._lose()
                raise StopIteration
            self._receive()

    def __enter__(self) -> "Events":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the stream. A thread that waits for the next event gets StopIteration."""
        self._closed = True
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def _parse(self, block: bytes) -> Optional[Event]:
        fields = {}
        for line in block.decode().split("\n"):
            name, _, value = line.partition(": ")
            fields[name] = value
        self.last_id = fields.get("id", self.last_id)
        if not self._follow and fields.get("") == "end":
            self._closed = True
        if "data" not in fields:
            return None
        data = json.loads(fields["data"])
        return Event(fields.get("id"), str(data["type"]), str(data["at"]), data)

    def _receive(self) -> None:
        """Reads the next piece of the stream, and opens the stream again where it ended."""
        began, pause = time.monotonic(), FIRST_PAUSE
        while not self._closed:
            try:
                if self._socket is None:
                    self._open()
                    if self._blocks:
                        return
                assert self._socket is not None
                piece = self._socket.recv(65536)
                if not piece:
                    raise Broken("the daemon closed the stream")
                self._take(piece)
                return
            except (OSError, SubletError) as problem:
                self._lose()
                if self._closed:
                    return
                if isinstance(problem, SubletError) and not problem.is_passing():
                    raise
                if not self._met:
                    raise unavailable(self._endpoint, problem) from None
                if self._patience is not None and time.monotonic() - began > self._patience:
                    waited = time.monotonic() - began
                    raise Disconnected(f"the daemon at {self._endpoint.url} went away, and was not back after "
                                       f"{waited:.0f} s", "start it again, then continue with events(since=last_id)",
                                       {"waited_seconds": waited}) from None
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _take(self, piece: bytes) -> None:
        self._reader.feed(piece)
        blocks = (self._rest + self._reader.rest()).split(b"\n\n")
        self._rest = blocks.pop()
        self._blocks += blocks

    def _open(self) -> None:
        self._reader, self._rest = Reader(), b""
        made = connect(self._endpoint, ANSWER_SECONDS)
        self._socket = made
        last = f"Last-Event-ID: {self.last_id}\r\n" if self.last_id is not None else ""
        made.sendall(encode(Call("GET", f"/v1/events?{self._query}"), self._endpoint, last))
        while not self._reader.read_head():
            self._feed(made)
        if self._reader.status != 200:
            while (answer := self._reader.take()) is None:
                self._feed(made)
            decode(*answer)
        self._met = True
        made.settimeout(SILENCE_SECONDS)
        self._take(b"")

    def _feed(self, made: socket.socket) -> None:
        piece = made.recv(65536)
        if not piece:
            raise Broken("the daemon closed the stream")
        self._reader.feed(piece)

    def _lose(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def events(*, lease: Optional[str] = None, types: Sequence[str] = (), since: Optional[str] = None,
           follow: bool = True, patience: Optional[float] = None) -> Events:
    """Returns the events of the daemon, from now on, or after the event `since` ("0": all that are kept).

    `lease` is an id or tag, `types` are of lease, device, warning, verdict, stack, session and daemon. If the daemon
    restarts, the iterator reconnects and goes on after the last event. Missing events are reported by an event of the
    type `gap`. `patience` limits the time in seconds without a daemon; then the iterator raises `Disconnected`. With
    `follow=False` it ends after the stored events. Raises `DaemonUnavailable` if no daemon answers at first. The
    stream counts as one wait of the user. The stream begins when the first event is asked for.
    """
    query = {"heartbeat": f"{HEARTBEAT_SECONDS}s"}
    if lease is not None:
        query["lease"] = lease
    if types:
        query["type"] = ",".join(types)
    if not follow:
        query["follow"] = "false"
    return Events(resolve(), urlencode(query), since, follow, patience)
