# SPDX-License-Identifier: Apache-2.0
"""The lease of this worker: held for a task, or until the end of an actor."""
from __future__ import annotations

import contextlib
import os
from typing import Any, Iterator, Optional, Union

from .._http import Call, client_here
from .._lease import Lease
from .._size import format_size_down
from ..errors import SubletError
from . import _gang
from ._job import Job, Want, job_here, log
from ._take import take
from ._watch import Watch

VISIBLE = "CUDA_VISIBLE_DEVICES"


class _Own:
    """A lease that this process alone holds."""

    def __init__(self, want: Want, job: Job) -> None:
        self._before = os.environ.get(VISIBLE)
        if self._before == "":  # Ray hides all devices from work without num_gpus
            del os.environ[VISIBLE]
        self._by_index = want.visible == "index"
        try:
            self.lease = take(want, job)
            self._begin(job)
        except BaseException:  # Ray may cancel the task at any time
            if hasattr(self, "lease"):
                self.leave()
            self._restore()
            raise

    def _begin(self, job: Job) -> None:
        if self._by_index:
            os.environ[VISIBLE] = indices_of(self.lease.devices)
        names = ", ".join(self.lease.device_names)
        log(f"{self.lease.id} ({job.tag}): {format_size_down(self.lease.vram_bytes)} on {names}")
        self.watch = Watch(self.lease.id, job.tag).start()

    def leave(self) -> None:
        """Gives the lease back."""
        try:
            self.lease.release()
        finally:
            self._restore()

    def _restore(self) -> None:
        if self._by_index or self._before == "":
            os.environ.pop(VISIBLE, None)
            if self._before is not None:
                os.environ[VISIBLE] = self._before


_here: Optional[Union[_Own, "_gang.Member"]] = None


def _begin(want: Want, name: str) -> None:
    global _here
    job = job_here(name)
    group = _gang.group_here(want)
    _here = _gang.Member(group, want, job) if group is not None else _Own(want, job)


def _end() -> None:
    global _here
    ours, _here = _here, None
    if ours is None:
        return
    ours.watch.stop()
    try:
        ours.leave()
    except (SubletError, OSError) as problem:
        log(f"cannot give the lease back: {problem}; it ends with this worker")


@contextlib.contextmanager
def task_lease(want: Want, name: str) -> Iterator[None]:
    """Holds a lease for the block, unless this worker holds one already."""
    if _here is not None:
        yield
        return
    try:
        _begin(want, name)
        yield
    finally:
        _end()


def actor_lease(want: Want, name: str) -> None:
    """Takes the lease of an actor, unless this worker holds one already. It ends with the process."""
    if _here is None:
        _begin(want, name)


def held() -> Optional[Lease]:
    """Returns the lease of this task or actor, in each of its threads; None: it has none of its own."""
    return _here.lease if isinstance(_here, _Own) and _here.lease.held else None


def paused() -> bool:
    """True while the lease of this worker is being paused, is paused, or is on its way back. Any thread.

    It asks neither the daemon nor the card, so it returns at once.
    """
    return _here is not None and _here.watch.state in ("pausing", "paused", "resuming")


def healthy() -> bool:
    """For `check_health` of Ray Serve: True while the lease of this worker lives, also during a pause. Any thread.

    It asks neither the daemon nor the card, so it returns at once. Without a lease it is True.
    """
    return _here is None or _here.watch.state not in ("ended", "poisoned")


def indices_of(devices: Any) -> str:
    """Returns the devices by their indices, joined by commas."""
    known = client_here().call(Call("GET", "/v1/devices"))["devices"]
    index = {str(device["uuid"]): str(device["index"]) for device in known}
    return ",".join(index[uuid] for uuid in devices)
