# SPDX-License-Identifier: Apache-2.0
"""Sessions as objects: leases that live while they are used."""
from __future__ import annotations

import contextlib
import datetime
import os
import secrets
import time
from typing import Any, Dict, Optional, Sequence, Tuple, Union
from urllib.parse import quote

from . import _held, _outer
from ._devices import Gpus, device_field
from ._flow import BRIEF_SECONDS, path_of
from ._http import Call, Client, client_here
from ._make import script_name
from ._size import Seconds, Size, format_size_down, lease_size, seconds_of
from .errors import CheckpointFailed, LeaseEnded, LeaseExpired, NotHeld, Stale, SubletError, WaitTimeout

LOOK_SECONDS = 20.0  # the longest time between two looks at a session that waits
ON_ITS_WAY = ("starting", "queued")


class Session:
    """A session of the user, from `sublet.session` or `sublet.current_session`.

    Its lease is renewed by GPU work and by `touch()`. A session whose program uses no GPU rests: its memory is given
    back, and is taken again when the program uses a GPU. All methods block, and may be called by any thread.
    """

    def __init__(self, body: Dict[str, Any], timeout: Optional[float], session_id: str = "") -> None:
        self._body, self._timeout, self._id = body, timeout, session_id
        self._client: Optional[Client] = client_here() if session_id else None
        self._document: Optional[Dict[str, Any]] = None
        self._lease: Optional[Dict[str, Any]] = None
        self._opener = 0  # the process that opened it; 0: it was opened elsewhere
        self._pid = 0  # the process that opened it, while it is open; 0: none here
        self._previous: Optional[Session] = None

    def __repr__(self) -> str:
        if not self._id:
            return f"<sublet.Session of {format_size_down(self._body['vram_bytes'])}, not open>"
        state = f", {self._document['state']}" if self._document else ""
        return f"<sublet.Session {self._id}{state}>"

    # --- facts ---

    @property
    def session_id(self) -> str:
        """The id, such as "session-7"."""
        self._here()
        return self._id

    @property
    def id(self) -> str:
        """The id of its lease, such as "lease-9"."""
        return str(self._known()["lease"])

    @property
    def devices(self) -> Tuple[str, ...]:
        """UUIDs of the devices of its lease."""
        if self._lease is None:
            self._lease = self._here().call(Call("GET", path_of(self.id)))
        return tuple(self._lease["devices"])

    @property
    def variables(self) -> Dict[str, str]:
        """The variables that show the lease to CUDA and to child programs."""
        devices = self.devices
        return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(devices),
                "SUBLET_HOST": self._here().endpoint.url, "SUBLET_LEASE": self.id,
                "SUBLET_LEASE_BYTES": str(self._known()["wanted_vram_bytes"])}

    @property
    def state(self) -> str:
        """The state now, such as "active", "resting" or "paused". Asks the daemon."""
        return str(self.refresh()["state"])

    @property
    def left(self) -> Optional[float]:
        """Seconds until its time is over without activity; None if no time runs. Asks the daemon."""
        document = self.refresh()
        if document["state"] != "active" or document["expires_at"] is None:
            return None
        ends = datetime.datetime.fromisoformat(document["expires_at"].replace("Z", "+00:00"))
        return max(0.0, ends.timestamp() - time.time())

    def refresh(self) -> Dict[str, Any]:
        """Asks the daemon for the session. Returns its document."""
        self._document = self._here().call(Call("GET", self._path()))
        assert self._document is not None
        return self._document

    # --- while it is open ---

    def touch(self) -> None:
        """Tells that the session is in use. Raises `LeaseExpired` if it has ended."""
        self._post("/touch")

    def checkpoint(self, timeout: Optional[Seconds] = None) -> str:
        """Runs its checkpoint command, and waits for the end of the command. Returns the locator.

        Raises `CheckpointFailed` if the command has failed.
        """
        document = self._post("/checkpoint")
        until = _deadline(seconds_of(timeout))
        while document["checkpoint"]["running"]:
            if time.monotonic() >= until:
                raise WaitTimeout(f"the checkpoint command of {self._id} still runs", "it goes on")
            time.sleep(0.1)
            document = self.refresh()
        if document["checkpoint"]["problem"]:
            raise CheckpointFailed(f"the checkpoint of {self._id} failed: {document['checkpoint']['problem']}",
                                   "the session goes on; mend its checkpoint command")
        return str(document["checkpoint"]["locator"])

    def resume(self, timeout: Optional[Seconds] = None) -> None:
        """Brings it back, and waits until it has its memory. A session that has ended gets a new lease, under which
        the process that opened the session runs again.
        """
        document: Dict[str, Any] = self._here().call(Call("POST", self._path("/resume"), {}))
        if document["lease"] != self.id:
            _held.let_go(self)  # the lease that has ended
            self._lease = None
        self._document = document
        self._wait(seconds_of(timeout))
        if self._opener == os.getpid() and not _held.is_held(self.id):
            self._join()

    # --- opening and closing ---

    def open(self) -> "Session":
        """Opens the session for this process and waits for its memory, as `with` does."""
        if self._id:
            raise Stale(f"{self._id} is open", "make another object by sublet.session(...)")
        client = self._client = client_here()
        document: Dict[str, Any] = client.call(Call("POST", "/v1/sessions", self._body, key=secrets.token_hex(16)))
        self._id, self._opener, self._document = str(document["id"]), os.getpid(), document
        try:
            self._wait(self._timeout)
            self._join()
        except BaseException:
            with contextlib.suppress(SubletError, OSError):
                self._end(BRIEF_SECONDS)
            self._id = ""
            raise
        return self

    def _join(self) -> None:
        """This process runs under its lease from now on."""
        global _current
        self._here().call(Call("POST", path_of(self.id, "/attach"), {"pid": os.getpid(), "owner": False}))
        self._pid = os.getpid()
        _held.hold(self)
        if _current is not self:
            self._previous, _current = _current, self

    def close(self, park: bool = False, force: bool = False) -> None:
        """Ends the session, and waits for its checkpoint command. Nothing happens if it has ended.

        Memory that this process still uses stays charged. Raises `CheckpointFailed` if the daemon did not end the
        session's program, because its work could not be saved; `force` ends it all the same.
        """
        global _current
        if not self._id:
            return
        self._document = self._here().call(Call("POST", self._path("/close"), {"park": park, "force": force}))
        while self._known()["state"] == "ending":
            self._document = self._here().call(Call("GET", self._path(f"?wait={LOOK_SECONDS:.0f}s&since=ending")))
        document = self._known()
        if document["state"] not in ("closed", "parked"):
            problem = (document["checkpoint"] or {}).get("problem") or f"it is {document['state']}"
            raise CheckpointFailed(f"{self._id} was not closed: {problem}", "close(force=True) ends it all the same")
        if self._pid == os.getpid():
            _held.let_go(self)
            self._pid = 0
        if _current is self:
            _current = self._previous

    __enter__ = open

    def __exit__(self, *_: object) -> None:
        if self._pid == os.getpid():
            self.close()

    def give_back_at_exit(self) -> None:
        """For the end of the interpreter: one short try."""
        self._end(BRIEF_SECONDS)

    # --- calls ---

    def _end(self, seconds: float) -> None:
        self._here().call(Call("POST", self._path("/close"), {"park": False}, patience=seconds,
                               answer_seconds=seconds))

    def _wait(self, timeout: Optional[float]) -> None:
        until = _deadline(timeout)
        document = self._known()
        while document["state"] in ON_ITS_WAY:
            left = until - time.monotonic()
            if left <= 0:
                raise WaitTimeout(f"{self._id} has no memory after {timeout:g} s", f"sublet why {document['tag']}")
            query = f"?wait={max(1, int(min(left, LOOK_SECONDS) * 1000))}ms&since={document['state']}"
            document = self._here().call(Call("GET", self._path(query)))
            self._document = document
        if document["state"] == "closed":
            kind = LeaseExpired if document["end_reason"] in ("idle", "expired") else LeaseEnded
            raise kind(f"{self._id} has ended ({document['end_reason']}): {document['why']}")

    def _post(self, action: str) -> Dict[str, Any]:
        self._document = self._here().call(Call("POST", self._path(action), {}))
        assert self._document is not None
        return self._document

    def _path(self, rest: str = "") -> str:
        return f"/v1/sessions/{quote(self._id, safe='')}{rest}"

    def _here(self) -> Client:
        if self._client is None or not self._id:
            raise NotHeld("the session is not open yet", "use it inside `with`, or call open() first")
        return self._client

    def _known(self) -> Dict[str, Any]:
        self._here()
        return self._document if self._document is not None else self.refresh()


_current: Optional[Session] = None


def _deadline(timeout: Optional[float]) -> float:
    return float("inf") if timeout is None else time.monotonic() + timeout


def session(vram: Size, *, ttl: Optional[Seconds] = None, tier: Optional[str] = None, name: Optional[str] = None,
            tag: Optional[str] = None, gpu: Gpus = None, gpus: int = 1,
            min_vram: Optional[Size] = None, priority: int = 0, pausable: Optional[str] = None,
            checkpoint: Union[str, Sequence[str], None] = None, checkpoint_every: Optional[Seconds] = None,
            timeout: Optional[Seconds] = None) -> Session:
    """Returns a session of `vram` for this process. `with` opens it, waits for its memory and closes it.

    `ttl` is the time after which it ends without activity. `checkpoint` is a command that saves the work, as a line
    for `sh -c` or as its words. The other options are those of `sublet.lease`.
    """
    body: Dict[str, Any] = {"vram_bytes": lease_size(vram), "consumer": name or script_name(),
                            "remember": name is not None, "command": _outer.command_line()}
    seconds = {"ttl": seconds_of(ttl, "ttl"), "every": seconds_of(checkpoint_every, "checkpoint_every")}
    optional = {"tier": tier, "tag": tag, "device": device_field(gpu), "pausable": pausable,
                "min_vram_bytes": None if min_vram is None else lease_size(min_vram),
                "devices": gpus if gpus != 1 else None, "priority": priority or None,
                "ttl_seconds": None if seconds["ttl"] is None else max(1, int(seconds["ttl"]))}
    body.update({field: value for field, value in optional.items() if value is not None})
    if checkpoint is not None:
        words = ["sh", "-c", checkpoint] if isinstance(checkpoint, str) else list(checkpoint)
        body["checkpoint"] = {"arguments": words}
        if seconds["every"] is not None:
            body["checkpoint"]["every_seconds"] = max(1, int(seconds["every"]))
        body["directory"] = os.getcwd()
        body["environment"] = [f"{variable}={os.environ[variable]}" for variable in ("PATH", "HOME", "USER", "LANG")
                               if variable in os.environ]
    elif checkpoint_every is not None:
        raise ValueError("checkpoint_every needs checkpoint")
    return Session(body, seconds_of(timeout))


def current_session() -> Optional[Session]:
    """Returns the session that this process has opened or is the program of, or None."""
    if _current is not None and _current._pid == os.getpid():
        return _current
    named = os.environ.get("SUBLET_SESSION", "")
    return Session({}, None, named) if named else None
