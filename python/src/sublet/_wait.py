# SPDX-License-Identifier: Apache-2.0
"""The state of a wait as a value, and the line that tells it on a terminal."""
from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import Any, Mapping, Optional

from ._size import format_size


@dataclass(frozen=True)
class Waiting:
    """The place of a lease in the queue, as the `on_wait` callback gets it."""

    lease: str
    waited_seconds: float
    place: Optional[int]  # 1 is next; None: the daemon tells places of the first hundred only
    short_bytes: Optional[int]  # missing on the device where it lacks least
    device: Optional[str]  # UUID of that device
    eta_seconds: Optional[int]  # None: unknown
    basis: str  # what the estimate rests on
    holders: str  # the largest holder of the memory, for people

    def __str__(self) -> str:
        text = f"{self.lease} waits"
        if self.place:
            text += f": place {self.place}"
        if self.short_bytes and self.short_bytes > 0:
            text += f" · {format_size(self.short_bytes)} short"
        text += " · start unknown" if self.eta_seconds is None else f" · starts in about {self.eta_seconds} s"
        return text + (f" · held by {self.holders}" if self.holders else "")


def waiting_of(lease: Mapping[str, Any], waited: float) -> Waiting:
    """Reads a lease document in the state `queued`, or one that waits for a larger size."""
    queue: Mapping[str, Any] = lease.get("queue") or {}
    holders = queue.get("holders") or []
    first = f"{holders[0]['what']} {format_size(holders[0]['bytes'])}" if holders else ""
    more = f" and {len(holders) - 1} more" if len(holders) > 1 else ""
    return Waiting(str(lease["id"]), waited, queue.get("place"), queue.get("short_bytes"), queue.get("device"),
                   queue.get("eta_seconds"), str(queue.get("basis") or ""), first + more)


def printable(text: str) -> str:
    """Names of other users' programs must not control the terminal."""
    return "".join(character if character.isprintable() else "?" for character in text)


class Line:
    """One line on stderr that is written anew with each state. It shows nothing if stderr is no terminal."""

    def __init__(self) -> None:
        self._shown = False

    @staticmethod
    def is_live() -> bool:
        """True if stderr is a terminal that can rewrite a line."""
        try:
            return os.isatty(sys.stderr.fileno()) and os.environ.get("TERM", "dumb") != "dumb"
        except (AttributeError, OSError, ValueError):
            return False

    def show(self, waiting: Waiting) -> None:
        width = shutil.get_terminal_size().columns - 1
        text = printable(str(waiting))
        text = text if len(text) <= width else text[:max(width - 1, 0)] + "…"
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()
        self._shown = True

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self._shown = False
