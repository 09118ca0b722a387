# SPDX-License-Identifier: Apache-2.0
"""The lease inside which a request is made, and the devices that the user's environment names."""
from __future__ import annotations

import functools
import os
import shlex
from typing import Any, List, Optional

from . import _held
from ._endpoint import Endpoint
from ._flow import Document, Flow, path_of
from ._http import Call
from .errors import BadRequest, NotFound, Refusal

GRANTED = ("active", "pausing", "paused", "resuming")
_HINT = "name devices by gpu=, or unset CUDA_VISIBLE_DEVICES"
_FIXED_HINT = "name some of these devices by gpu=, or take one lease for all of them before the first use of CUDA"


def named_lease(endpoint: Endpoint) -> Flow[Optional[Document]]:
    """Returns the granted lease that SUBLET_LEASE names, if this process belongs to its program.

    The variable alone proves nothing, since anybody can copy it.
    """
    name = os.environ.get("SUBLET_LEASE", "")
    if not name or os.environ.get("SUBLET_HOST") != endpoint.url or _held.is_held(name):
        return None
    try:
        document: Document = yield Call("GET", path_of(name))
    except (NotFound, Refusal):
        return None
    owner = document["owner"]
    ours = owner["pid"] == os.getpid() or _is_below(owner["pid"]) or _is_below(owner["keeper_pid"])
    return document if document["state"] in GRANTED and ours else None


def outer_lease(endpoint: Endpoint) -> Flow[Optional[Document]]:
    """Returns the granted lease inside which this process runs and that it does not hold itself.

    The daemon knows it by descent, also if this process was attached to it later or lost its variables.
    """
    named: Optional[Document] = yield from named_lease(endpoint)
    if named is not None:
        return named
    status: Document = yield Call("GET", "/v1/status")
    inside = status.get("inside")
    if not inside or _held.is_held(inside):
        return None
    try:
        document: Document = yield Call("GET", path_of(inside))
    except (NotFound, Refusal):
        return None
    # Another thread may just have taken it, and does not hold it yet. A lease from outside has another command.
    own = document["owner"]["pid"] == os.getpid() and document["command"] == command_line()
    return document if document["state"] in GRANTED and not own else None


def _is_below(ancestor: Optional[int]) -> bool:
    pid = os.getpid()
    for _ in range(1000):
        if not ancestor or ancestor <= 1 or pid <= 1:
            return False
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                pid = int(file.read().rpartition(b")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            return False
        if pid == ancestor:
            return True
    return False


def wished_devices(count: int = 1) -> Flow[Optional[str]]:
    """Returns the devices for a lease of `count` devices, joined by commas; None: any devices.

    If CUDA is initialised under an earlier lease, they are the devices of that lease, since CUDA sees no others. Else
    they are the devices that the user's CUDA_VISIBLE_DEVICES names, as for `sublet run`. Raises `BadRequest` if these
    are fewer than `count`.
    """
    fixed = _held.fixed_devices()
    if fixed is not None:
        found = yield from _named_devices(fixed, count, "CUDA of this process is initialised with", _FIXED_HINT)
        return found
    visible = _held.visible_before()
    if visible is None:
        return None
    if not _held.cuda_is_initialised() and (yield from _is_of_outer_lease(visible)):
        return None
    found = yield from _named_devices(visible, count, "CUDA_VISIBLE_DEVICES is", _HINT)
    return found


def _is_of_outer_lease(visible: str) -> Flow[bool]:
    """True if the value came with SUBLET_LEASE, whose lease has ended."""
    name = os.environ.get("SUBLET_LEASE", "")
    if not name or _held.is_held(name):
        return False
    try:
        document: Document = yield Call("GET", path_of(name))
    except (NotFound, Refusal):
        return False
    return ",".join(document["devices"]) == visible


def _named_devices(visible: str, count: int, fact: str, hint: str) -> Flow[Optional[str]]:
    entries: List[str] = []
    for entry in visible.split(","):
        if entry.strip() == "-1":
            break
        entries.append(entry.strip())
    if not entries or not visible.strip():
        raise BadRequest(f"{fact} '{visible}', so that the program may use no device", hint)
    if len(set(entries)) == 1 and count == 1:
        return entries[0]
    devices: List[Any] = (yield Call("GET", "/v1/devices"))["devices"]
    meant: List[str] = []
    for entry in entries:
        found = [device["uuid"] for device in devices
                 if str(device["index"]) == entry or (len(entry) > 4 and device["uuid"].startswith(entry))]
        if not found:
            raise BadRequest(f"{fact} '{visible}'; '{entry}' names none of the {len(devices)} devices", hint)
        meant += [uuid for uuid in found if uuid not in meant]
    if len(meant) < count:
        raise BadRequest(f"{fact} '{visible}', which is fewer than gpus={count}", hint)
    return None if len(meant) == len(devices) else ",".join(meant)


@functools.lru_cache(maxsize=1)
def command_line() -> str:
    """Returns the command of this process as the daemon shows it to its owner and to admins."""
    try:
        with open("/proc/self/cmdline", "rb") as file:
            words = file.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return ""
    return "".join(character if character.isprintable() else " " for character in shlex.join(words[:-1]))[:1000]
