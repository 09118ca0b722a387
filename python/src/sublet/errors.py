# SPDX-License-Identifier: Apache-2.0
"""Errors of the package.

Every error is a `SubletError`. A refusal of the daemon has the class of its code: `error.code` is "TooLarge" for
`TooLarge`. The codes are those of the contract in api/; a test compares the two lists. The classes below `ClientError`
report what the daemon cannot report itself.
"""
from __future__ import annotations

from typing import Any, ClassVar, Dict, Mapping, Optional, Type

from ._hints import in_python

_CLASSES: Dict[str, Type["SubletError"]] = {}


class SubletError(Exception):
    """Base of all errors of the package.

    `message` is one sentence that names the object and the numbers, `hint` is the next step. `numbers` has the known
    numbers by name, with the unit at the end of each name (`_bytes`, `_seconds`). `status` is the HTTP status of a
    refusal, or None.
    """

    code: str = "Unknown"

    def __init__(self, message: str, hint: str = "", numbers: Optional[Mapping[str, Any]] = None,
                 status: Optional[int] = None, code: Optional[str] = None) -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.hint = hint
        self.numbers: Dict[str, Any] = dict(numbers or {})
        self.status = status
        if code is not None:
            self.code = code

    def is_passing(self) -> bool:
        """Tells whether the same call may succeed later: the daemon cannot answer now. A part of the daemon that is
        switched off stays off.
        """
        return self.status == 503 and not self.numbers.get("switched_off")

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self.message, self.hint, self.numbers, self.status, self.code)

    def to_dict(self) -> Dict[str, Any]:
        """Returns the error as plain values, for logs."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "numbers": dict(self.numbers),
                "status": self.status}


def _rebuild(kind: Type[SubletError], message: str, hint: str, numbers: Mapping[str, Any], status: Optional[int],
             code: str) -> SubletError:
    return kind(message, hint, numbers, status, code)


class Refusal(SubletError):
    """The daemon refused the call. There is a class for each code."""

    refusals: ClassVar[Mapping[str, Type[SubletError]]] = _CLASSES

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.code = cls.__name__
        _CLASSES[cls.code] = cls


class Memory(Refusal):
    """The memory is not free, and the call said that it does not wait (`wait=False`)."""


class Priority(Refusal):
    """Other leases are more urgent."""


class Quota(Refusal):
    """The user has as many leases or bytes as are allowed."""


class Share(Refusal):
    """The share of the tenant is used up."""


class Settling(Refusal):
    """Bytes of an ended lease are not yet measured gone."""


class External(Refusal):
    """A process without a lease holds the memory."""


class HostMemory(Refusal):
    """Host memory for a parked program is short."""


class TooLarge(Refusal):
    """No device can ever hold the size, or the outer lease is smaller than the size."""


class Draining(Refusal):
    """The device takes no new leases."""


class GpuLost(Refusal):
    """The device of the lease is gone."""


class PauseUnsafe(Refusal):
    """The program cannot be paused, or is paused and cannot lose its lease now."""


class CannotPreempt(Refusal):
    """The possible victims are not enough."""


class ResumeBlocked(Refusal):
    """A process without a lease has the memory of a paused program."""


class Unverified(Refusal):
    """No reading tells whether the bytes are gone."""


class Unkillable(Refusal):
    """A process does not end."""


class InUse(Refusal):
    """A tag, or memory that the call would give away, is in use."""


class Stale(Refusal):
    """The lease has ended or has changed since the caller looked."""


class Overcommit(Refusal):
    """The session has ended because its program used more memory than it may."""


class NotFound(Refusal):
    """There is no such lease, device or program."""


class Denied(Refusal):
    """The user may not do this."""


class BadRequest(Refusal):
    """The daemon does not understand the call."""


class Unavailable(Refusal):
    """The daemon cannot answer at the moment: its store failed, a limit is reached, or it is in safe mode."""


WouldWait = Memory  # the name by its effect: `lease(..., wait=False)` would have to wait


class ClientError(SubletError):
    """The package itself reports the error. `code` is the name of the class."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.code = cls.__name__


class DaemonUnavailable(ClientError):
    """No daemon answers at the socket."""


class Disconnected(DaemonUnavailable):
    """The daemon went away during a call, or the session of the call ended with its program."""


class WaitTimeout(ClientError, TimeoutError):
    """The memory did not become free within `timeout`. The request is withdrawn."""


class LeaseEnded(ClientError):
    """The lease has ended, by itself or by a request. `numbers["end_reason"]` has the reason."""


class LeaseExpired(LeaseEnded):
    """The time to live of the lease is over, or the session of the call has ended."""


class CheckpointFailed(ClientError):
    """The checkpoint command of the session has failed: its work is not saved."""


class NotHeld(ClientError):
    """The lease was not acquired yet, or was given back."""


class ForkedLease(ClientError):
    """The lease belongs to another process, usually the parent of this one."""


# The daemon reports these two about sessions.
_CLASSES.update(LeaseExpired=LeaseExpired, Disconnected=Disconnected)


def error_of(status: int, problem: Mapping[str, Any]) -> SubletError:
    """Returns the error for a problem document. An unknown code of a newer daemon gives a `SubletError`."""
    code = str(problem.get("code", "Unknown"))
    message = str(problem.get("detail") or f"the daemon answered with status {status}")
    numbers = problem.get("numbers")
    return _CLASSES.get(code, SubletError)(message, in_python(str(problem.get("hint", ""))),
                                           numbers if isinstance(numbers, dict) else None, status, code)


def ended_error(lease: Mapping[str, Any]) -> LeaseEnded:
    """Returns the error for a lease document in the state `ended`."""
    reason = str(lease.get("end_reason"))
    kind = LeaseExpired if reason == "expired" else LeaseEnded
    return kind(f"{lease.get('id')} has ended: {reason}", f"see: sublet why {lease.get('id')}",
                {"end_reason": reason})
