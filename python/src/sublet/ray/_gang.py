# SPDX-License-Identifier: Apache-2.0
"""Gangs: the members of a placement group on one node share one lease, so a pause parks all of them or none.

The first member writes the request and a secret key to Ray's table of keys. All members ask with this key, and so get
the same lease. Each keeps a connection to the daemon and books its process: the lease lives until the last member ends.
"""
from __future__ import annotations

import importlib
import itertools
import json
import os
import secrets
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional, Tuple

from .._devices import device_field
from .._flow import Wish, acquire, drive, path_of
from .._http import Call, Client, client_here
from .._size import format_size_down, seconds_of
from ..errors import LeaseEnded, Stale
from ._engine import RESOURCE, bytes_of, ray
from ._job import Job, Progress, Want, log, tag_of
from ._take import as_tenant, consent
from ._watch import Watch

LOOK_SECONDS = 3.0  # a member that leaves keeps its connection for so long
VARIABLES = ("CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES", "SUBLET_HOST", "SUBLET_LEASE", "SUBLET_LEASE_BYTES")


@dataclass(frozen=True)
class Group:
    """The bundles of a placement group with VRAM on this node."""

    id: str  # of the placement group
    node: str
    sizes: Tuple[int, ...]  # bytes of each bundle
    spans: bool  # it has such bundles on other nodes too

    def slot(self, *words: str) -> bytes:
        """Returns a key of Ray's table."""
        return ":".join(("sublet", "gang", self.id, self.node, *words)).encode()


def group_here(want: Want) -> Optional[Group]:
    """Returns the group of this worker; None if it is in none, is to have its own lease, or is alone."""
    if want.gang is None:
        return None
    group = importlib.import_module("ray.util").get_current_placement_group()
    if group is None:
        return None
    table: Dict[str, Any] = importlib.import_module("ray.util").placement_group_table(group)
    node = str(ray().get_runtime_context().get_node_id())
    sizes = {index: bytes_of(float(bundle[RESOURCE])) for index, bundle in table["bundles"].items()
             if bundle.get(RESOURCE)}
    here = tuple(size for index, size in sorted(sizes.items()) if table["bundles_to_node_id"][index] == node)
    return Group(str(table["placement_group_id"]), node, here, len(here) < len(sizes)) if len(sizes) > 1 else None


class Member:
    """This process as a member of a gang."""

    def __init__(self, group: Group, want: Want, job: Job) -> None:
        self._group = group
        self._client = Client(client_here().endpoint)  # its connections hold the lease
        self._before = {name: os.environ.get(name) for name in VARIABLES}
        consent(want, job)
        document, attempt = as_tenant(want, job, lambda tenant: self._take(want, job, tenant))
        self._token = str(document["token"])
        self.lease = str(document["id"])
        self.watch = Watch(self.lease, str(document["tag"]), self._token, self._client, LOOK_SECONDS).start()
        devices = self._devices(document, attempt, want.gpus)
        self._show(document, devices)
        log(f"{self.lease} ({document['tag']}): {format_size_down(document['vram_bytes'])}, "
            f"shared by the {len(group.sizes)} members of a gang")

    def leave(self) -> None:
        """Lets go of the lease. It ends with the last member."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    # --- taking it ---

    def _take(self, want: Want, job: Job, tenant: Optional[str]) -> Tuple[Dict[str, Any], int]:
        """Returns the lease of the gang. A gang that starts again after the end of its lease gets another one."""
        self._was_over, attempt = False, 0
        while True:
            made = json.loads(put_first(self._group.slot(str(attempt), tenant or ""),
                                        json.dumps(self._request(want, job, tenant, attempt))))
            try:
                return self._join(made["key"], made["body"], want), attempt
            except LeaseEnded:
                if not self._was_over:
                    raise
            attempt += 1

    def _request(self, want: Want, job: Job, tenant: Optional[str], attempt: int) -> Dict[str, Any]:
        sizes = self._group.sizes
        body: Dict[str, Any] = {"consumer": want.name or job.consumer, "command": f"{job.text}, gang {self._group.id}",
                                "tag": tag_of(job.name, job.job, "gang", self._group.id[:8] + str(attempt or "")),
                                "pausable": "no" if self._group.spans else want.pausable}
        packed = want.gang == "pack" or (want.gang == "auto" and want.gpus == 1 and sum(sizes) <= self._largest())
        apart = {"vram_bytes": max(sizes) // want.gpus, "devices": len(sizes) * want.gpus}
        body.update({"vram_bytes": sum(sizes)} if packed else apart)
        body.update({"device": device_field(want.gpu), "tier": want.tier, "priority": want.priority or None,
                     "tenant": tenant})
        body = {name: value for name, value in body.items() if value is not None}
        return {"key": secrets.token_hex(16), "body": body}

    def _largest(self) -> int:
        devices = self._client.call(Call("GET", "/v1/devices"))["devices"]
        return max((int(device["capacity_bytes"]) for device in devices), default=0)

    def _join(self, key: str, body: Dict[str, Any], want: Want) -> Dict[str, Any]:
        """Waits for the lease and books this process to it."""
        first = self._client.call(Call("POST", "/v1/leases", body, key=key))
        token = str(first["token"])
        look = Call("GET", path_of(str(first["id"])), lease_token=token)
        self._was_over = self._client.call(look)["state"] == "ended"  # the answer may be of an earlier start
        wish = Wish(seconds_of(want.timeout), Progress().tell)
        document: Dict[str, Any] = drive(acquire(body, wish, key), self._client)
        while True:
            document = self._client.call(look)
            if document["state"] == "ended":
                raise LeaseEnded(f"the lease {document['id']} of the gang has ended: {document['end_reason']}",
                                 "start the members again", {"end_reason": document["end_reason"]})
            if document["state"] == "active":
                try:
                    booking = {"pid": os.getpid(), "owner": False}
                    self._client.call(Call("POST", path_of(document["id"], "/attach"), booking, lease_token=token))
                    return {**document, "token": token}
                except Stale:
                    continue  # it is being paused
            waiting = path_of(document["id"], f"?wait=2s&since={document['state']}")
            self._client.call(Call("GET", waiting, lease_token=token))

    # --- its devices ---

    def _devices(self, document: Dict[str, Any], attempt: int, count: int) -> List[str]:
        """Returns the devices of this member: the only one, or some of its own if each member has its own."""
        devices: List[str] = list(document["devices"])
        if len(devices) < 2:
            return devices
        number = take_place(self._group, attempt, len(devices) // count, process_of(os.getpid()), lives)
        return devices if number is None else devices[number * count:(number + 1) * count]

    def _show(self, document: Dict[str, Any], devices: List[str]) -> None:
        os.environ.update({"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(devices),
                           "SUBLET_HOST": self._client.endpoint.url, "SUBLET_LEASE": self.lease,
                           "SUBLET_LEASE_BYTES": str(document["vram_bytes"])})


def take_place(group: Group, attempt: int, places: int, ours: str, lives: Callable[[str], bool]) -> Optional[int]:
    """Returns the number of a place that no living member has; None: there is none. Each place has a row of keys, one
    for each process that had it. A key is written once, so that two members never follow the same process.
    """
    for number in range(places):
        for heir in itertools.count():
            owner = put_first(group.slot(str(attempt), str(number), str(heir)), ours)
            if owner == ours:
                return number
            if lives(owner):
                break
    return None


def process_of(pid: int) -> str:
    """Returns "PID:START", which no later process has; "" if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return f"{pid}:{file.read().rsplit(')', 1)[1].split()[19]}"
    except OSError:
        return ""


def lives(process: str) -> bool:
    """Tells whether the process of `process_of` lives."""
    return process == process_of(int(process.split(":")[0]))


class Table:
    """Ray's table of keys, which all workers of a cluster share."""

    def __init__(self) -> None:
        self._module: Any = importlib.import_module("ray.experimental.internal_kv")

    def set(self, key: bytes, value: bytes, overwrite: bool) -> None:
        """Writes a value."""
        self._module._internal_kv_put(key, value, overwrite=overwrite)

    def get(self, key: bytes) -> bytes:
        """Returns a value."""
        value: bytes = self._module._internal_kv_get(key)
        return value


def put_first(key: bytes, value: str) -> str:
    """Writes the value unless another worker has written one. Returns the value in the table."""
    known = Table()
    known.set(key, value.encode(), False)
    return known.get(key).decode()
