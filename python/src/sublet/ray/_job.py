# SPDX-License-Identifier: Apache-2.0
"""The wish of a decorator, the names of Ray's work, and the lines in the log of a worker."""
from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from typing import Optional, Tuple

from .._devices import Gpus
from .._size import Seconds
from .._wait import Waiting, printable
from ._engine import ray

REPEAT_SECONDS = 30.0  # between two lines about the same wait
MARK = "ray job "  # the beginning of the `command` of each lease of Ray


@dataclass(frozen=True)
class Want:
    """The options of the decorator `gpu`. Travels to the worker with the code."""

    vram: int  # bytes on each device
    tier: Optional[str] = None
    name: Optional[str] = None
    gpu: Gpus = None
    gpus: int = 1
    min_vram: Optional[int] = None
    priority: int = 0
    pausable: Optional[str] = None
    timeout: Optional[Seconds] = None
    tenant: Optional[str] = None
    gang: Optional[str] = "auto"
    visible: str = "uuid"
    daemon_wait: Seconds = 60.0


@dataclass(frozen=True)
class Job:
    """The words of Ray for the code that this process runs."""

    name: str  # of the task or actor
    code: str  # name of its function or class
    job: str  # id of the job
    namespace: str
    text: str  # all of it, for the `command` of the lease

    @property
    def consumer(self) -> str:
        """The name under which size and run time are remembered. Names of actors may be random."""
        return f"ray.{self.code}"[:64]

    @property
    def tag(self) -> str:
        """Name of the lease. Ray shows job and pid too, and a worker has one lease at a time."""
        return tag_of(self.name, self.job, str(os.getpid()))


def tag_of(name: str, *ends: str) -> str:
    """Returns "NAME-END-END" with a name that is short enough."""
    end = "".join(f"-{each}" for each in ends)
    return f"{name[:64 - len(end)]}{end}"


def job_here(name: str) -> Job:
    """Asks Ray what this worker runs. `name` is the name of the function or class."""
    context = ray().get_runtime_context()
    job, actor = str(context.get_job_id()), context.get_actor_id()
    code = _plain(name.replace("<locals>.", ""))
    given = context.get_actor_name() if actor else None
    short = _plain(given) if given else code
    what = f"actor {short} {actor}" if actor else f"task {short} {context.get_task_id()}"
    namespace = str(context.namespace)
    return Job(short, code, job, namespace, f"{MARK}{job}, {what}, namespace {namespace}, node {context.get_node_id()}")


def _plain(name: str) -> str:
    """Returns the name without the characters that a tag cannot have."""
    plain = "".join("_" if letter == "/" or not letter.isprintable() else letter for letter in name)
    return plain.lstrip("-") or "work"


def tenant_of(want: Want, job: Job) -> Tuple[Optional[str], Optional[str]]:
    """Returns the tenant that the code names, and the one that its namespace may stand for."""
    named = want.tenant or os.environ.get("SUBLET_TENANT") or None
    if named is not None or _is_made_up(job.namespace):
        return named, None
    return None, job.namespace


def _is_made_up(namespace: str) -> bool:
    """True for the namespace of a job that names none: Ray makes a UUID."""
    parts = namespace.split("-")
    hexadecimal = all(letter in "0123456789abcdef" for letter in "".join(parts))
    return not namespace or (hexadecimal and [len(part) for part in parts] == [8, 4, 4, 4, 12])


def log(text: str) -> None:
    """Writes one line to the log of the worker. Ray shows it at the driver."""
    print(f"sublet: {printable(text)}", file=sys.stderr, flush=True)


class Progress:
    """The log of one wait. As `on_wait` it also makes the worker look up often enough to be cancelled."""

    def __init__(self) -> None:
        self._place: Optional[int] = None
        self._next = 0.0

    def tell(self, waiting: Waiting) -> None:
        """Writes a line if the place has changed, or now and then."""
        now = time.monotonic()
        if now < self._next and waiting.place == self._place:
            return
        self._place, self._next = waiting.place, now + REPEAT_SECONDS
        log(str(waiting))
