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


def wished_device() -> Flow[Optional[str]]:
    """Returns the device that the user's CUDA_VISIBLE_DEVICES names, as `sublet run` does; None: any device.

    A lease is on one named device or on any. Raises `BadRequest` if the variable names neither one device nor all.
    """
    visible = _held.visible_before()
    if visible is None:
        return None
    entries: List[str] = []
    for entry in visible.split(","):
        if entry.strip() == "-1":
            break
        entries.append(entry.strip())
    if not entries or not visible.strip():
        raise BadRequest(f"CUDA_VISIBLE_DEVICES is '{visible}', so that the program may use no device", _HINT)
    if len(set(entries)) == 1:
        return entries[0]
    devices: List[Any] = (yield Call("GET", "/v1/devices"))["devices"]
    meant = {device["uuid"] for device in devices for entry in entries
             if str(device["index"]) == entry or (len(entry) > 4 and device["uuid"].startswith(entry))}
    if len(meant) == len(devices):
        return None
    raise BadRequest(f"CUDA_VISIBLE_DEVICES is '{visible}', which is {len(meant)} of {len(devices)} devices", _HINT)


@functools.lru_cache(maxsize=1)
def command_line() -> str:
    """Returns the command of this process as the daemon shows it to its owner and to admins."""
    try:
        with open("/proc/self/cmdline", "rb") as file:
            words = file.read().decode("utf-8", "replace").split("\0")
    except OSError:
        return ""
    return "".join(character if character.isprintable() else " " for character in shlex.join(words[:-1]))[:1000]
