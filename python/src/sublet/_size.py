# SPDX-License-Identifier: Apache-2.0
"""Sizes and durations as people write them. Any thread."""
from __future__ import annotations

import datetime
import re
from typing import Optional, Union

from .errors import BadRequest

Size = Union[int, str]  # bytes, or "8GiB"
Seconds = Union[int, float, datetime.timedelta]

_SIZE = re.compile(r"(\d+(?:\.\d+)?) *([KMGTP]?)(I?B?)$", re.IGNORECASE)
_HINT = "write a size such as 8GiB, 512MiB or 1.5G"
_MOST = 1 << 62


def parse_size(size: Size) -> int:
    """Returns the size in bytes. Raises `BadRequest` for a text that is no size.

    The units are those of the command line: K, Ki and KiB are 1024 bytes, KB is 1000 bytes.
    """
    if isinstance(size, bool):
        raise BadRequest(f"the size {size!r} is not a number", _HINT)
    if isinstance(size, int):
        total = size
    else:
        match = _SIZE.match(size)
        if match is None or (not match.group(2) and match.group(3).upper() not in ("", "B")):
            raise BadRequest(f"the size {size!r} is not a size", _HINT)
        base = 1000 if match.group(2) and match.group(3).upper() == "B" else 1024
        power = " KMGTP".index(match.group(2).upper() or " ")
        whole, _, fraction = match.group(1).partition(".")
        total = int(whole + fraction) * base**power // 10**len(fraction)
    if total <= 0 or total > _MOST:
        raise BadRequest(f"the size {size!r} is not between 1 byte and 2^62 bytes", _HINT)
    return total


def format_size(count: int) -> str:
    """Returns the size for people, with the unit: "8.0 GiB"."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}" if count < 100 * unit else f"{count / unit:.0f} {name}"
    return f"{count} B"


def seconds_of(duration: Optional[Seconds]) -> Optional[float]:
    """Returns the duration in seconds; None stays None."""
    return duration.total_seconds() if isinstance(duration, datetime.timedelta) else duration
