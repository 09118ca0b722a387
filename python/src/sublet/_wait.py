# SPDX-License-Identifier: Apache-2.0
"""The state of a wait as a value, and the line that tells it on a terminal."""
from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence

from ._size import LEAST_BYTES, format_duration, format_size, format_size_down


@dataclass(frozen=True)
class Waiting:
    """The place of a lease in the queue, as the `on_wait` callback gets it."""

    lease: str
    waited_seconds: float
    place: Optional[int]  # 1 is next; None: the daemon tells places of the first hundred only
    short_bytes: Optional[int]  # missing on the device where it lacks least
    device: Optional[str]  # UUID of that device
    device_name: Optional[str]  # such as "gpu0"
    eta_seconds: Optional[int]  # None: unknown
    basis: str  # what the estimate rests on
    holders: str  # the largest holder of the memory, for people
    reserved_for: str = ""  # it would fit, but the memory is reserved for this lease, which has waited longer
    held_back: bool = False  # its owner holds it back, and the place is kept
    fits_bytes: int = 0  # a size that fits although unleased processes hold memory; 0: none

    def __str__(self) -> str:
        if self.held_back:
            return f"{self.lease} is held back, and keeps place {self.place}: sublet resume {self.lease}"
        text = f"{self.lease} waits"
        if self.place:
            text += f": place {self.place}"
        if self.short_bytes and self.short_bytes > 0:
            text += f" · {format_size(self.short_bytes)} short"
            text += f" on {self.device_name}" if self.device_name else ""
        text += f" · {self.start}"
        if self.reserved_for:
            text += f" · memory is reserved for {self.reserved_for}"
        elif self.holders:
            text += f" · held by {self.holders}"
        if self.fits_bytes:
            size = format_size_down(self.fits_bytes).replace(" ", "")
            text += f" · {size} or less would fit now, and min_vram= accepts a smaller lease"
        return text + (f" · {self.basis}" if self.basis else "")

    @property
    def start(self) -> str:
        """The estimate for people, such as "starts in about 5 min"."""
        if self.eta_seconds is None:
            return "start unknown"
        return f"starts in about {format_duration(self.eta_seconds)}" if self.eta_seconds >= 1 else "starts at once"


def waiting_of(lease: Mapping[str, Any], waited: float, names: Mapping[str, str]) -> Waiting:
    """Reads a lease document in the state `queued`, or one that waits for a larger size. `names`: devices by UUID."""
    queue: Mapping[str, Any] = lease.get("queue") or {}
    device = queue.get("device")
    return Waiting(str(lease["id"]), waited, queue.get("place"), queue.get("short_bytes"), device,
                   names.get(device, device[:12]) if device else None, queue.get("eta_seconds"),
                   str(queue.get("basis") or ""), _holders_text(queue.get("holders") or []),
                   str(queue.get("reserved_for") or ""), bool(queue.get("held_back")), _fitting_bytes(lease, queue))


def _holders_text(holders: Sequence[Mapping[str, Any]]) -> str:
    if not holders:
        return ""
    first = holders[0]
    size = format_size_down(first["bytes"]) if first["lease"] else format_size(first["bytes"])
    return f"{first['what'] or first['lease']} {size}" + (f" and {len(holders) - 1} more" if len(holders) > 1 else "")


def _fitting_bytes(lease: Mapping[str, Any], queue: Mapping[str, Any]) -> int:
    """Returns the free bytes if processes without a lease hold all that is missing."""
    short, free = queue.get("short_bytes") or 0, queue.get("free_bytes") or 0
    helps = short > 0 and (queue.get("unleased_bytes") or 0) >= short and free >= LEAST_BYTES
    return int(free) if helps and lease["state"] == "queued" and not queue.get("reserved_for") else 0


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
