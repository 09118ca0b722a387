# SPDX-License-Identifier: Apache-2.0
"""Leases on GPU memory.

    import sublet

    with sublet.lease("8GiB") as lease:
        ...  # the memory is reserved here

docs/python.md of the project describes the package.
"""
from ._events import Event, Events, events
from ._lease import Lease, current
from ._make import lease, leased
from ._pause import Order
from ._run import run
from ._session import Session, current_session, session
from ._status import Device, Status, Warn, status
from ._version import __version__
from ._wait import Waiting
from ._why import Reason, Why
from .errors import (BadRequest, CannotPreempt, CheckpointFailed, ClientError, DaemonUnavailable, Denied, Disconnected,
                     Draining, External, ForkedLease, GpuLost, HostMemory, InUse, LeaseEnded, LeaseExpired, Memory,
                     NotFound, NotHeld, Overcommit, PauseUnsafe, Priority, Quota, Refusal, ResumeBlocked, Settling,
                     Share, Stale, SubletError, TooLarge, Unavailable, Unkillable, Unverified, WaitTimeout, WouldWait)

__all__ = ["BadRequest", "CannotPreempt", "CheckpointFailed", "ClientError", "DaemonUnavailable", "Denied", "Device",
           "Disconnected", "Draining", "Event", "Events", "External", "ForkedLease", "GpuLost", "HostMemory", "InUse",
           "Lease", "LeaseEnded", "LeaseExpired", "Memory", "NotFound", "NotHeld", "Order", "Overcommit", "PauseUnsafe",
           "Priority", "Quota", "Reason", "Refusal", "ResumeBlocked", "Session", "Settling", "Share", "Stale", "Status",
           "SubletError", "TooLarge", "Unavailable", "Unkillable", "Unverified", "WaitTimeout", "Waiting", "Warn",
           "Why", "WouldWait", "__version__", "current", "current_session", "events", "lease", "leased", "run",
           "session", "status"]
