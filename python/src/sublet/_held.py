# SPDX-License-Identifier: Apache-2.0
"""The leases that this process holds, and the variables that show them to CUDA and to child programs.

While a lease is held, os.environ has the variables that `sublet run` would set, and the end of the last lease restores
the values from before. CUDA reads them once, when it is initialised. After that a change would show other devices to
child programs than the program itself uses, so the variables stay as they are. With several leases CUDA sees the
devices of all of them, and SUBLET_LEASE names the oldest.
"""
from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from typing import Dict, Optional, Protocol, Tuple

from .errors import DaemonUnavailable, SubletError

OURS = ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "SUBLET_HOST", "SUBLET_LEASE", "SUBLET_LEASE_BYTES")


class Holding(Protocol):
    """A lease in the registry."""

    @property
    def id(self) -> str: ...

    @property
    def devices(self) -> Tuple[str, ...]: ...

    @property
    def variables(self) -> Dict[str, str]: ...

    def give_back_at_exit(self) -> None: ...


_lock = threading.RLock()
_held: Dict[str, Holding] = {}  # by id, the oldest first
_devices: Dict[str, int] = {}  # number of held leases by device
_before: Optional[Dict[str, Optional[str]]] = None  # the values to restore; None: nothing is set
_set: Dict[str, str] = {}
_fixed: Optional[str] = None  # CUDA_VISIBLE_DEVICES of a lease, with which CUDA was initialised
_inherited: Optional[Tuple[str, Optional[str]]] = None  # in a forked child: the parent's lease's value, and the user's


def hold(lease: Holding) -> None:
    """Adds a granted lease."""
    with _lock:
        if lease.id not in _held:
            for device in lease.devices:
                _devices[device] = _devices.get(device, 0) + 1
        _held[lease.id] = lease
        _show()


def let_go(lease: Holding) -> None:
    """Removes a lease that was given back."""
    with _lock:
        if _held.pop(lease.id, None) is None:
            return
        for device in lease.devices:
            _devices[device] -= 1
            if _devices[device] == 0:
                del _devices[device]
        _show()


def is_held(lease_id: str) -> bool:
    """True if this process, and not a parent, holds the lease."""
    return lease_id in _held


def visible_before() -> Optional[str]:
    """Returns CUDA_VISIBLE_DEVICES as the user set it; None if a lease or nobody did."""
    name = "CUDA_VISIBLE_DEVICES"
    with _lock:
        if _before is not None:
            return _before[name]
        visible = os.environ.get(name)
        if _inherited is not None and visible == _inherited[0]:
            return _inherited[1]
        return visible


def fixed_devices() -> Optional[str]:
    """Returns the CUDA_VISIBLE_DEVICES of a lease with which this process has initialised CUDA; None if it has not, or
    under no lease. CUDA never sees other devices in this process.
    """
    with _lock:
        _note_cuda()
        return _fixed


def _note_cuda() -> None:
    global _fixed
    if _fixed is None and _set and cuda_is_initialised():
        _fixed = os.environ.get("CUDA_VISIBLE_DEVICES")


def cuda_is_initialised() -> bool:
    """True if this process has initialised CUDA, as far as can be seen without loading it."""
    torch = sys.modules.get("torch")
    with contextlib.suppress(Exception):
        if torch is not None and torch.cuda.is_initialized():
            return True
    with contextlib.suppress(OSError):
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                # NVML opens the other devices, CUDA alone opens this one.
                if os.readlink(f"/proc/self/fd/{number}").startswith("/dev/nvidia-uvm"):
                    return True
    return False


def _wanted() -> Dict[str, str]:
    if not _held:
        return {}
    return {**next(iter(_held.values())).variables, "CUDA_VISIBLE_DEVICES": ",".join(_devices)}


def _show() -> None:
    """Call with the lock."""
    global _before, _set
    wanted = _wanted()
    if wanted == _set:
        return
    name = "CUDA_VISIBLE_DEVICES"
    _note_cuda()
    if wanted.get(name) != _set.get(name) and cuda_is_initialised():
        if not _set or wanted:
            return
    if _before is None:
        _before = {name: os.environ.get(name) for name in OURS}
    for name in OURS:
        if os.environ.get(name) != _set.get(name, _before[name]):
            continue  # the program changed it meanwhile: its value stays
        value = wanted.get(name, _before[name])
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _set = wanted
    if not wanted:
        _before = None


def _forked() -> None:
    """The child of a fork holds none of the leases. The variables stay: its memory counts for the parent's lease."""
    global _lock, _before, _set, _inherited
    _lock = threading.RLock()
    _held.clear()
    _devices.clear()
    if _before is not None:
        _inherited = _set["CUDA_VISIBLE_DEVICES"], _before["CUDA_VISIBLE_DEVICES"]
    _before, _set = None, {}


def _exit() -> None:
    for lease in list(_held.values()):
        try:
            lease.give_back_at_exit()
        except DaemonUnavailable:
            return  # no try for each lease
        except (SubletError, OSError):
            continue


os.register_at_fork(after_in_child=_forked)
atexit.register(_exit)
