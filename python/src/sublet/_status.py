# SPDX-License-Identifier: Apache-2.0
"""The daemon, its devices and its warnings at a glance."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Mapping, Optional, Tuple

from ._http import Call, client_here


@dataclass(frozen=True)
class Device:
    """A GPU. Sizes are bytes."""

    id: str  # such as "gpu0"
    index: int
    uuid: str
    name: str
    total_bytes: int
    used_bytes: int
    leased_bytes: int
    effective_free_bytes: int  # may still be leased; below 0: more is taken than there is
    state: str  # ok, unknown or lost
    problem: Optional[str]


@dataclass(frozen=True)
class Warn:
    """A present problem of the daemon or the machine."""

    code: str
    text: str
    hint: str
    since: str


@dataclass(frozen=True)
class Status:
    """The state of the daemon, as `sublet status` shows it."""

    version: str
    devices: Tuple[Device, ...]
    leases: Mapping[str, int]  # number of leases by state
    waiting_bytes: int
    warnings: Tuple[Warn, ...]
    raw: Mapping[str, Any] = field(repr=False)  # the whole answer of the daemon


def status() -> Status:
    """Asks the daemon once. Any thread."""
    return ask(Call("GET", "/v1/status"))


def ask(call: Call) -> Status:
    """As `status`, with the patience of the call."""
    answer = client_here().call(call)
    devices = tuple(Device(**{name: row[name] for name in Device.__dataclass_fields__}) for row in answer["devices"])
    warnings = tuple(Warn(row["code"], row["text"], row["hint"], row["since"]) for row in answer["warnings"])
    return Status(answer["daemon"]["version"], devices, answer["leases"], answer["waiting_bytes"], warnings, answer)
