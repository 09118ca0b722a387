# SPDX-License-Identifier: Apache-2.0
"""The lease inside which a request is made, and the device that the user's environment names."""
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
_HINT = "name one device by gpu=, or unset CUDA_VISIBLE_DEVICES"
_FIXED_HINT = "name one of these devices by gpu=, or take one lease for all of them before the first use of CUDA"


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


def wished_device(count: int = 1) -> Flow[Optional[str]]:
    """Returns the device for a lease of `count` devices; None: any devices.

    If CUDA is initialised under an earlier lease, it is the device of that lease, since CUDA sees no other. Else it is
    the device that the user's CUDA_VISIBLE_DEVICES names, as for `sublet run`. A lease is on one named device or on
    any. Raises `BadRequest` if neither one device nor all are named.
    """
    fixed = _held.fixed_devices()
    if fixed is not None:
        found = yield from _named_device(fixed, count, "CUDA of this process is initialised with", _FIXED_HINT)
        return found
    visible = _held.visible_before()
    if visible is None or count > 1:
        return None
    if not _held.cuda_is_initialised() and (yield from _is_of_outer_lease(visible)):
        return None
    found = yield from _named_device(visible, count, "CUDA_VISIBLE_DEVICES is", _HINT)
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


def _named_device(visible: str, count: int, fact: str, hint: str) -> Flow[Optional[str]]:
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
    meant = {device["uuid"] for device in devices for entry in entries
             if str(device["index"]) == entry or (len(entry) > 4 and device["uuid"].startswith(entry))}
    if len(meant) == len(devices):
        return None
    raise BadRequest(f"{fact} '{visible}', which is {len(meant)} of {len(devices)} devices", hint)


@functools.lru_cache(maxsize=1)
def command_line() -> str:
    """Returns the command of this process as the daemon shows it to its owner and to admins."""
    try:
        with open("/proc/self/cmdline", "rb") as file:
            words = file.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return ""
    return "".join(character if character.isprintable() else " " for character in shlex.join(words[:-1]))[:1000]
