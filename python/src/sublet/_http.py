# SPDX-License-Identifier: Apache-2.0
"""HTTP/1.1 with JSON to the daemon: the wire format, blocking connections, and calls that survive its restart.

A `Client` may be used by any thread: each call takes an idle connection or opens one. `_aio.py` has the same for
asyncio. A child of a fork closes the connections of its parent and opens its own.
"""
from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ._endpoint import Endpoint, resolve
from .errors import DaemonUnavailable, Denied, Disconnected, SubletError, error_of

ANSWER_SECONDS = 60.0  # an answer that takes longer counts as a broken connection
RECONNECT_SECONDS = 30.0  # the default of lease.reconnect: so long a call survives the absence of the daemon
BUSY_SECONDS = 10.0  # a call is repeated for so long after 503
MOST_IDLE = 4  # connections that a client keeps open
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0


@dataclass(frozen=True)
class Call:
    """One call of the API."""

    method: str
    target: str
    body: Optional[Dict[str, Any]] = None
    key: str = ""  # Idempotency-Key
    lease_token: str = ""
    answer_seconds: float = ANSWER_SECONDS
    patience: float = RECONNECT_SECONDS  # how long to look for a daemon that went away
    alone: bool = False  # a long wait: asyncio gives it a connection of its own


class Broken(OSError):
    """The connection ended before the answer was complete."""


def encode(call: Call, endpoint: Endpoint, extra: str = "") -> bytes:
    """Returns the request as bytes. `extra` are more header lines, each with its line end."""
    head = f"{call.method} {call.target} HTTP/1.1\r\nHost: {endpoint.authority}\r\n{extra}"
    if endpoint.token:
        head += f"Authorization: Bearer {endpoint.token}\r\n"
    if call.key:
        head += f"Idempotency-Key: {call.key}\r\n"
    if call.lease_token:
        head += f"Sublet-Lease-Token: {call.lease_token}\r\n"
    if call.body is None:
        return f"{head}\r\n".encode("latin-1")
    body = json.dumps(call.body).encode()
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode("latin-1") + body


class Reader:
    """Parses answers from bytes that arrive in pieces."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._body_at = -1
        self._length: Optional[int] = None  # None: the body ends with the connection
        self.status = 0

    def feed(self, piece: bytes) -> None:
        self._bytes += piece

    def read_head(self) -> bool:
        """True once the head is there; then `status` is set."""
        if self._body_at >= 0:
            return True
        end = self._bytes.find(b"\r\n\r\n")
        if end < 0:
            return False
        lines = self._bytes[:end].decode("latin-1").split("\r\n")
        words = lines[0].split(" ", 2)
        if not lines[0].startswith("HTTP/1.") or len(words) < 2 or not words[1].isdigit():
            raise Broken(f"the daemon does not speak HTTP: {lines[0][:40]!r}")
        self.status = int(words[1])
        for line in lines[1:]:
            name, _, value = line.partition(":")
            if name.lower() == "content-length":
                self._length = int(value)
        self._body_at = end + 4
        return True

    def take(self) -> Optional[Tuple[int, bytes]]:
        """Returns status and body of the next complete answer, or None."""
        if not self.read_head() or self._length is None or len(self._bytes) < self._body_at + self._length:
            return None
        end = self._body_at + self._length
        answer = self.status, bytes(self._bytes[self._body_at:end])
        del self._bytes[:end]
        self._body_at, self._length = -1, None
        return answer

    def rest(self) -> bytes:
        """Takes the bytes behind the head of a stream."""
        piece = bytes(self._bytes[self._body_at:])
        del self._bytes[self._body_at:]
        return piece


def decode(status: int, body: bytes) -> Any:
    """Returns the document of an answer. Raises the error of a refusal."""
    try:
        document = json.loads(body)
    except ValueError:
        raise Broken(f"the daemon answered {status} without JSON") from None
    if status >= 400:
        raise error_of(status, document)
    return document


@contextlib.contextmanager
def address_of(path: str) -> Iterator[str]:
    """Gives an address for the socket at `path`. A path too long for an address is reached through its folder."""
    if len(os.fsencode(path)) < 108:
        yield path
        return
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)


def connect(endpoint: Endpoint, timeout: float) -> socket.socket:
    """Opens a connection. Raises OSError."""
    if endpoint.port:
        return socket.create_connection((endpoint.host, endpoint.port), timeout)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(timeout)
        with address_of(endpoint.path) as address:
            made.connect(address)
    except BaseException:
        made.close()
        raise
    return made


class _Connection:
    def __init__(self, endpoint: Endpoint) -> None:
        self.socket = connect(endpoint, ANSWER_SECONDS)
        self.reader = Reader()

    def ask(self, request: bytes, seconds: float) -> Tuple[int, bytes]:
        self.socket.settimeout(seconds)
        self.socket.sendall(request)
        while (answer := self.reader.take()) is None:
            piece = self.socket.recv(65536)
            if not piece:
                raise Broken("the daemon closed the connection")
            self.reader.feed(piece)
        return answer


class Retry:
    """Decides after a failed try whether a call is tried again, and after which pause."""

    def __init__(self, call: Call, endpoint: Endpoint) -> None:
        self._began = time.monotonic()
        self._pause = FIRST_PAUSE
        self._call, self._endpoint = call, endpoint

    def pause_after(self, problem: Exception, met: bool) -> float:
        """Returns the pause in seconds before the next try, or raises the error for the caller. `met`: the daemon has
        answered before.
        """
        spent = time.monotonic() - self._began
        if isinstance(problem, SubletError):
            if not problem.is_passing() or spent > min(BUSY_SECONDS, self._call.patience):
                raise problem
        elif isinstance(problem, PermissionError):
            raise Denied(f"this user may not open the socket {self._endpoint.path}",
                         "ask an admin to add you to the group that may use the socket (usually 'sublet')") from None
        elif not met:
            raise unavailable(self._endpoint, problem) from None
        elif spent > self._call.patience:
            raise Disconnected(f"the daemon at {self._endpoint.url} went away, and was not back after {spent:.0f} s",
                               "start the daemon again; leases of living processes outlive its restart",
                               {"waited_seconds": spent}) from None
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        return pause


def unavailable(endpoint: Endpoint, problem: Exception) -> DaemonUnavailable:
    """Returns the error for a daemon that was never reached."""
    start = "systemctl start subletd" if os.path.isdir("/run/systemd/system") else "subletd"
    reason = getattr(problem, "strerror", None) or problem
    return DaemonUnavailable(f"no daemon answers at {endpoint.url}: {reason}",
                             f"start it with: {start}; or name another daemon: SUBLET_HOST=unix://PATH")


class Client:
    """Blocking calls to one daemon, from any thread."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.met = False  # the daemon has answered at least once
        self.pid = os.getpid()
        self._idle: List[_Connection] = []
        self._lock = threading.Lock()

    def call(self, call: Call) -> Any:
        """Returns the document of the answer.

        Raises the class of a refusal, `DaemonUnavailable` if no daemon was ever reached, and `Disconnected` if it does
        not come back in time. A call that changes something must be safe to repeat.
        """
        retry = Retry(call, self.endpoint)
        request = encode(call, self.endpoint)
        fresh = False
        while True:
            try:
                return self._try(request, call.answer_seconds, fresh)
            except (OSError, SubletError) as problem:
                # An idle connection may be older than the daemon: the first new one tells.
                if not fresh and isinstance(problem, OSError) and self.met:
                    fresh = True
                    continue
                time.sleep(retry.pause_after(problem, self.met))

    def _try(self, request: bytes, seconds: float, fresh: bool) -> Any:
        connection = self._take(fresh)
        try:
            status, body = connection.ask(request, seconds)
        except BaseException:
            connection.socket.close()
            raise
        self.met = True
        self._give(connection)
        return decode(status, body)

    def _take(self, fresh: bool) -> _Connection:
        with self._lock:
            if fresh:
                self._drop()
            elif self._idle:
                return self._idle.pop()
        return _Connection(self.endpoint)

    def _give(self, connection: _Connection) -> None:
        with self._lock:
            if len(self._idle) < MOST_IDLE:
                self._idle.append(connection)
                return
        connection.socket.close()

    def _drop(self) -> None:
        while self._idle:
            self._idle.pop().socket.close()

    def close(self) -> None:
        """Closes the idle connections. The client can still be used."""
        with self._lock:
            self._drop()

    def forked(self) -> None:
        """For the child of a fork: forgets the connections, which the parent still uses."""
        self._lock = threading.Lock()
        self._drop()
        self.pid = os.getpid()


_clients: Dict[Endpoint, Client] = {}
_clients_lock = threading.Lock()


def client_here() -> Client:
    """Returns the client of this process for the daemon that the environment names."""
    endpoint = resolve()
    with _clients_lock:
        return _clients.setdefault(endpoint, Client(endpoint))


def _forked() -> None:
    global _clients_lock
    _clients_lock = threading.Lock()
    for client in _clients.values():
        client.forked()


os.register_at_fork(after_in_child=_forked)
