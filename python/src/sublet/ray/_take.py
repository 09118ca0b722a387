# SPDX-License-Identifier: Apache-2.0
"""Taking a lease in a worker: consent to pauses, the tenant, and a daemon that is away."""
from __future__ import annotations

import time
from typing import Callable, Optional, TypeVar
from urllib.parse import quote

from .. import _make
from .._http import Call, client_here
from .._lease import Lease
from .._size import seconds_of
from ..errors import DaemonUnavailable, Denied
from ._job import Job, Progress, Want, log, tenant_of

LOOK_SECONDS = 0.5  # between two looks for a daemon that is away
_T = TypeVar("_T")


def take(want: Want, job: Job) -> Lease:
    """Takes the lease of this process and waits for it."""
    consent(want, job)
    return as_tenant(want, job, lambda tenant: _wish(want, job, tenant).acquire())


def _wish(want: Want, job: Job, tenant: Optional[str]) -> Lease:
    lease = _make.lease(want.vram, tier=want.tier, name=want.name or job.consumer, tag=job.tag, gpu=want.gpu,
                        gpus=want.gpus, min_vram=want.min_vram, priority=want.priority, pausable=want.pausable,
                        timeout=want.timeout, tenant=tenant, on_wait=Progress().tell)
    lease.call_it(job.text)
    return lease


def consent(want: Want, job: Job) -> None:
    """Lets the driver park this worker, as `sublet run` does for its programs. Finds the daemon first."""
    if want.pausable in ("no", "cooperative"):
        call = Call("GET", "/v1/status")
    else:
        call = Call("POST", f"/v1/consumers/{quote(want.name or job.consumer, safe='')}/grant", {})
    patiently(want, call)


def patiently(want: Want, call: Call) -> None:
    """Makes the call, and repeats it while no daemon answers, for `daemon_wait`."""
    patience = seconds_of(want.daemon_wait, "daemon_wait") or 0.0
    until, told = time.monotonic() + patience, False
    while True:
        try:
            client_here().call(call)
            return
        except DaemonUnavailable as problem:
            if time.monotonic() >= until:
                raise
            if not told:
                log(f"{problem.message}; it is looked for, for {patience:.0f} s")
                told = True
            time.sleep(LOOK_SECONDS)


def as_tenant(want: Want, job: Job, call: Callable[[Optional[str]], _T]) -> _T:
    """Makes the call with the tenant. A namespace that is no tenant of the user is left out."""
    named, implied = tenant_of(want, job)
    if named is not None or implied is None:
        return call(named)
    try:
        return call(implied)
    except Denied as problem:
        log(f"the namespace {implied} names no tenant of this user, who is charged: {problem.message}")
        return call(None)
