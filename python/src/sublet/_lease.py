# SPDX-License-Identifier: Apache-2.0
"""Leases as objects: context managers for threads and for asyncio."""
from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import os
from typing import Any, Dict, Optional, Tuple

from . import _background, _held, _outer
from ._aio import async_client
from ._flow import (BRIEF_SECONDS, Document, Flow, OnWait, Wish, acquire, device_names, drive, drive_async, path_of,
                    resize)
from ._http import ANSWER_SECONDS, RECONNECT_SECONDS, Call, Client, client_here
from ._pause import OnPause, OnResume, Pauses
from ._size import Seconds, Size, format_size_down, format_sizes_apart, lease_size, seconds_of
from ._why import Why, why_of
from .errors import ForkedLease, InUse, NotFound, NotHeld, PauseUnsafe, Stale, SubletError, TooLarge, ended_error

# The lease that the code of this thread or task runs under.
_current: "contextvars.ContextVar[Optional[Lease]]" = contextvars.ContextVar("sublet_lease", default=None)


class Lease:
    """The right to use GPU memory, from `sublet.lease`.

    The owner of the lease is this process. So the daemon ends the lease when the process ends in whatever way, and a
    restart of the daemon changes nothing. Attributes may be read by any thread, and in a forked child. All methods may
    be called by any thread of the process that took the lease.
    """

    def __init__(self, body: Dict[str, Any], wish: Wish, on_pause: Optional[OnPause], on_resume: Optional[OnResume],
                 residue: int) -> None:
        self._body, self._wish = body, wish
        self._on_pause, self._on_resume, self._residue = on_pause, on_resume, residue
        self._client: Optional[Client] = None
        self._document: Optional[Document] = None
        self._token = ""
        self._pid = 0  # the process that took it
        self._held = False
        self._nested_bytes = 0
        self._nested = False  # it uses the lease of others, and gives nothing back
        self._outer: Optional[Lease] = None  # the object of the outer lease, if it is one of this process
        self._previous: Optional[Lease] = None  # what the context had before
        self._entered = False  # it keeps connections of the event loop open
        self._pauses: Optional[Pauses] = None
        self._program_env: Optional[Dict[str, str]] = None
        self._names: Optional[Tuple[str, ...]] = None

    def __repr__(self) -> str:
        if self._document is None:
            return f"<sublet.Lease of {format_size_down(self._body['vram_bytes'])}, not acquired>"
        held = "held" if self._held else "given back"
        return f"<sublet.Lease {self.id} of {format_size_down(self.vram_bytes)}, {held}>"

    # --- facts ---

    def _known(self) -> Document:
        if self._document is None:
            raise NotHeld("the lease is not acquired yet", "use it inside `with`, or call acquire() first")
        return self._document

    @property
    def id(self) -> str:
        """The id, such as "lease-7". A nested lease has the id of the outer lease."""
        return str(self._known()["id"])

    @property
    def vram_bytes(self) -> int:
        """Bytes on each device. For a nested lease, the bytes that it asked for."""
        return self._nested_bytes if self._nested else int(self._known()["vram_bytes"])

    @property
    def devices(self) -> Tuple[str, ...]:
        """UUIDs of the devices, in the order of their indices."""
        return tuple(self._known()["devices"])

    @property
    def device(self) -> str:
        """UUID of the first device."""
        return self.devices[0]

    @property
    def device_names(self) -> Tuple[str, ...]:
        """Names of the devices as the command line shows them, such as "gpu0". The first use asks the daemon."""
        if self._names is None:
            names = device_names(self._here().call(Call("GET", "/v1/devices")))
            self._names = tuple(names.get(uuid, uuid) for uuid in self.devices)
        return self._names

    @property
    def held(self) -> bool:
        """True from the grant until the lease is given back by this object. The daemon is not asked."""
        return self._held

    @property
    def summary(self) -> str:
        """The state as one sentence for people, as of the last answer of the daemon; `refresh()` asks again."""
        return str(self._known()["summary"])

    @property
    def nested(self) -> bool:
        """True if it uses an outer lease and reserves nothing itself."""
        return self._nested

    @property
    def variables(self) -> Dict[str, str]:
        """The part of `env` that the lease itself sets. Makes no call."""
        assert self._client is not None or self._document is None
        size = int(self._known()["vram_bytes"])
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(self.devices),
                "SUBLET_HOST": self._client.endpoint.url if self._client else "", "SUBLET_LEASE": self.id,
                "SUBLET_LEASE_BYTES": str(size)}

    @property
    def env(self) -> Dict[str, str]:
        """Variables for child programs that work under this lease: `{**os.environ, **lease.env}`.

        The first use asks the daemon, and blocks for this call. Simulated cards need LD_LIBRARY_PATH too.
        """
        if self._program_env is None:
            status = self._here().call(Call("GET", "/v1/status"))
            self._program_env = {str(name): str(value) for name, value in status["program_env"].items()}
        return {**self.variables, **self._program_env}

    def why(self) -> Why:
        """Returns the decisions about the lease, and what would help. `str()` of it is a text for people."""
        return why_of(self._here().call(Call("GET", path_of(self.id, "/why"))))

    def refresh(self) -> Dict[str, Any]:
        """Asks the daemon for the lease. Returns its document; raises `LeaseEnded` if it has ended."""
        document: Document = self._here().call(Call("GET", path_of(self.id)))
        if document["state"] == "ended":
            raise ended_error(document)
        self._document = document
        return document

    # --- taking it ---

    def call_it(self, command: str) -> None:
        """Sets the command that the daemon shows, before the lease is taken."""
        self._body["command"] = command

    def acquire(self) -> "Lease":
        """Takes the lease and waits for it, as `with` does. Blocks this thread."""
        client = self._client = client_here()
        drive(self._take(), client)
        return self

    def release(self) -> None:
        """Gives the lease back. Nothing happens if it is given back already. If the daemon does not answer, it raises
        `Disconnected`, and the lease stays held: call it again.

        Memory that the process still uses stays charged to the ended lease until a reading shows it gone.
        """
        if self._pid != os.getpid() or not self._held:
            return
        drive(self._give_back(), self._here())

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()

    async def __aenter__(self) -> "Lease":
        self._client = client_here()
        client = async_client(self._client.endpoint)
        client.enter()
        try:
            await drive_async(self._take(), client)
            self._entered = True
        except BaseException:
            client.leave()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._pid != os.getpid():
            return
        client = async_client(self._here().endpoint)
        try:
            if self._held:
                await drive_async(self._give_back(), client)
        finally:
            if self._entered:
                self._entered = False
                client.leave()

    def _take(self) -> Flow[None]:
        if self._held and self._pid == os.getpid():
            raise InUse(f"{self.id} is held already", "make another object by sublet.lease(...)")
        assert self._client is not None
        self._previous = _current.get()
        self._nested, self._outer, self._pauses, self._program_env, self._token = False, None, None, None, ""
        outer = yield from self._find_outer()
        if outer is not None:
            self._join(outer, int(self._body["vram_bytes"]))
        else:
            body: Dict[str, Any] = {**self._body, "owner": {"pid": os.getpid()}}
            if body.get("device") is None:
                body["device"] = yield from _outer.wished_devices(int(body.get("devices", 1)))
            document = yield from acquire(body, self._wish)
            self._token = str(document.pop("token"))
            self._document = document
        self._pid, self._held, self._names = os.getpid(), True, None
        if not self._nested:
            _held.hold(self)
        _current.set(self)
        if self._on_pause is not None:
            yield from self._register()

    def _find_outer(self) -> Flow[Optional[Document]]:
        assert self._client is not None
        current = self._previous
        while current is not None and current._outer is not None:
            current = current._outer
        if current is not None and current._held and current._client is self._client:
            document: Document = yield Call("GET", path_of(current.id))
            if current._pid == os.getpid():
                if document["state"] == "ended":
                    raise ended_error(document)
                self._outer = current
                return document
            if document["state"] in _outer.GRANTED:  # it is a parent's
                return document
        found = yield from _outer.outer_lease(self._client.endpoint)
        return found

    def _join(self, outer: Document, wanted: int) -> None:
        """Uses the outer lease. Raises `TooLarge` if it is smaller or on other devices."""
        there = int(outer["vram_bytes"])
        wanted = min(wanted, max(int(self._body.get("min_vram_bytes", wanted)), there))
        if wanted > there:
            more, less = format_sizes_apart(wanted, there)
            how = "sublet.current().resize(SIZE)" if self._outer is not None else f"sublet resize {outer['id']} SIZE"
            raise TooLarge(f"the nested lease of {more} is larger than {outer['id']} ({less}), inside which the "
                           "program runs", f"ask for {format_size_down(there)} or less, or resize it first: {how}",
                           {"asked_bytes": wanted, "most_bytes": there})
        if int(self._body.get("devices", 1)) > len(outer["devices"]):
            raise TooLarge(f"the nested lease wants {self._body['devices']} devices, and {outer['id']}, inside which "
                           f"the program runs, has {len(outer['devices'])}", "take all devices by the outer lease",
                           {"asked_devices": self._body["devices"], "most_devices": len(outer["devices"])})
        self._document, self._nested, self._nested_bytes = outer, True, wanted

    # --- giving it back ---

    def _give_back(self) -> Flow[None]:
        self._forget()
        if self._pauses is not None:
            with contextlib.suppress(SubletError):
                yield from self._pauses.leave()
        if self._nested:
            if self._pauses is not None:
                with contextlib.suppress(SubletError):
                    yield from self._pauses.withdraw()
            return
        ended = False
        try:
            yield from self._end(RECONNECT_SECONDS, ANSWER_SECONDS)
            ended = True
        except SubletError:
            raise
        except BaseException:  # Ctrl-C or a cancellation: once more, and quickly
            with contextlib.suppress(SubletError, OSError):
                yield from self._end(BRIEF_SECONDS, BRIEF_SECONDS)
                ended = True
            raise
        finally:
            if ended:
                _held.let_go(self)
            else:
                self._stay()

    def _end(self, patience: float, answer_seconds: float) -> Flow[None]:
        release = Call("POST", path_of(self.id, "/release"), {"force": True}, lease_token=self._token,
                       patience=patience, answer_seconds=answer_seconds)
        with contextlib.suppress(Stale, NotFound):  # it has ended already
            try:
                yield release
            except PauseUnsafe:  # it is paused, or being paused: it ends once the background thread has answered
                yield dataclasses.replace(release, body={"force": True, "stop": True})

    def _forget(self) -> None:
        self._held = False
        if _current.get() is self:
            _current.set(self._previous)
        self._previous = None

    def _stay(self) -> None:
        """After a release that failed: it can be repeated."""
        self._held = True
        if self._pauses is not None:
            self._pauses.stay()

    def give_back_at_exit(self) -> None:
        """For the end of the interpreter: one short try, since the end of the process ends the lease anyway."""
        self._held = False
        drive(self._end(patience=0.0, answer_seconds=BRIEF_SECONDS), self._here())

    # --- changing it ---

    def resize(self, size: Size, *, timeout: Optional[Seconds] = None, wait: bool = True,
               on_wait: Optional[OnWait] = None) -> None:
        """Makes the lease larger or smaller, on each of its devices.

        Less takes effect at once. More may wait: `timeout` in seconds, `wait=False` and `on_wait` mean the same as for
        `sublet.lease`. If the wait ends early, the lease keeps its present size. Raises `InUse` if the memory is in
        use, `TooLarge` for a nested lease that would outgrow the outer lease.
        """
        drive(self._resize(lease_size(size), wait, Wish(seconds_of(timeout), on_wait)), self._here())

    async def async_resize(self, size: Size, *, timeout: Optional[Seconds] = None, wait: bool = True,
                           on_wait: Optional[OnWait] = None) -> None:
        """As `resize`, without blocking the event loop."""
        client = async_client(self._here().endpoint)
        await drive_async(self._resize(lease_size(size), wait, Wish(seconds_of(timeout), on_wait)), client)

    def _resize(self, size: int, wait: bool, wish: Wish) -> Flow[None]:
        self._must_be_held()
        if self._nested:
            self._join(self._outer._known() if self._outer is not None else self._known(), size)
            return
        self._document = yield from resize(self.id, self._token, size, wait, wish)
        _held.hold(self)

    # --- pauses ---

    def _register(self) -> Flow[None]:
        assert self._on_pause is not None and self._client is not None
        if self._outer is not None and self._outer._pauses is not None:
            self._forget()
            raise InUse(f"the outer lease {self.id} has the callbacks of this process",
                        "give on_pause and on_resume to the outer sublet.lease")
        token = self._outer._token if self._outer is not None else self._token
        pauses = Pauses(self._client, self.id, token, min(self._residue, self.vram_bytes), self._on_pause,
                        self._on_resume)
        try:
            yield pauses.registration()
        except BaseException:
            yield from self._give_back()
            raise
        self._pauses = pauses
        _background.watch(pauses, self._client.endpoint)

    def safe_point(self) -> bool:
        """A place where the program can be paused. Costs next to nothing without an order.

        After an order to yield it calls `on_pause` in this thread, blocks until the resume order, calls `on_resume`,
        and returns True. Other threads that get here block meanwhile. If `on_pause` raises, the pause is refused, the
        program keeps its memory, and the exception propagates. If `on_resume` raises, the exception propagates, the
        lease stays paused, and the next safe point calls `on_resume` again. If the lease is given back or ends during
        the pause, it raises `NotHeld` or `LeaseEnded` without `on_resume`. Returns False without an order, and inside
        a callback.
        """
        pauses = self._pauses_here()
        return pauses is not None and pauses.safe_point()

    async def async_safe_point(self) -> bool:
        """As `safe_point`, without blocking the event loop. Callbacks may be coroutine functions."""
        pauses = self._pauses_here()
        return pauses is not None and await pauses.async_safe_point()

    @property
    def paused(self) -> bool:
        """True between the return of `on_pause` and the return of `on_resume`."""
        pauses = self._all_pauses()
        return pauses is not None and pauses.paused

    def _all_pauses(self) -> Optional[Pauses]:
        return self._pauses if self._pauses is not None or self._outer is None else self._outer._pauses

    def _pauses_here(self) -> Optional[Pauses]:
        self._must_be_held()
        return self._all_pauses()

    # --- checks ---

    def _here(self) -> Client:
        self._known()
        assert self._client is not None
        return self._client

    def _must_be_held(self) -> None:
        self._known()
        if self._pid != os.getpid():
            raise ForkedLease(f"{self.id} belongs to process {self._pid}, and this is process {os.getpid()}",
                              "a forked child can read the lease; take a lease of its own in the child by sublet.lease")
        if not self._held:
            raise NotHeld(f"{self.id} was given back", "use it inside `with`, or call acquire() again")


def current() -> Optional[Lease]:
    """Returns the lease under which this thread or task runs, or None."""
    now = _current.get()
    return now if now is not None and now.held and now._pid == os.getpid() else None
