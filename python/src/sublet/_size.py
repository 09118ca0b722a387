# SPDX-License-Identifier: Apache-2.0
"""Sizes and durations as people write them. Any thread."""
from __future__ import annotations

import datetime
import re
from typing import Optional, Union

from .errors import BadRequest

Size = Union[int, str]  # bytes, or "8GiB"
Seconds = Union[int, float, str, datetime.timedelta]  # seconds, or "5s", "10m", "1h"

_SIZE = re.compile(r"(\d+(?:\.\d+)?) *([KMGTP]?)(I?B?)$", re.IGNORECASE)
_DURATION = re.compile(r"(\d+(?:\.\d+)?) *(ms|s|m|min|h|d)$")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_HINT = "write a size such as 8GiB, 512MiB or 1.5G"
_MOST = 1 << 62


def parse_size(size: Size, least: int = 1) -> int:
    """Returns the size in bytes. Raises `BadRequest` for a value that is no size, or is less than `least`.

    The units are those of the command line: K, Ki and KiB are 1024 bytes, KB is 1000 bytes.
    """
    if isinstance(size, bool) or not isinstance(size, (int, str)):
        raise BadRequest(f"the size {size!r} is neither a number of bytes nor a text", _HINT)
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
    if total < least or total > _MOST:
        raise BadRequest(f"the size {size!r} is not between {least} and 2^62 bytes", _HINT)
    return total


def format_size(count: int) -> str:
    """Returns the size for people, with the unit: "8.0 GiB"."""
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}" if count < 100 * unit else f"{count / unit:.0f} {name}"
    return f"{count} B"


def seconds_of(duration: Optional[Seconds]) -> Optional[float]:
    """Returns the duration in seconds; None stays None. Raises `BadRequest` for a value that is no duration."""
    if duration is None:
        return None
    seconds: Optional[float] = None
    if isinstance(duration, datetime.timedelta):
        seconds = duration.total_seconds()
    elif isinstance(duration, str):
        match = _DURATION.match(duration)
        seconds = float(match.group(1)) * _UNITS[match.group(2)] if match else None
    elif isinstance(duration, (int, float)) and not isinstance(duration, bool):
        seconds = float(duration)
    if seconds is None or not seconds >= 0:
        raise BadRequest(f"the timeout {duration!r} is no duration",
                         "give seconds, a timedelta, or a text such as 5s or 10m")
    return seconds
